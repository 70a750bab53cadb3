"""The event stream: one schema table, a packed wire format, a non-blocking writer."""
