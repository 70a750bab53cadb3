"""The `pbkv` command line and the terminal app."""
