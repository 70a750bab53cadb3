"""The HTTP control interface of an engine: the router both engines mount, and the client that consoles use."""
