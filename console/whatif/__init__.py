"""`pbkv whatif`: grids of settings over recorded traffic."""
