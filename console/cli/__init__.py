"""One module per command of `pbkv`; none is imported before its command runs."""
