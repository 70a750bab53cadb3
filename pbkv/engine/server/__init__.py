"""The embedded engine as a server: OpenAI API, control interface and metrics over an engine that follows the wall clock."""
