"""`pbkv demo`: an engine, a collector and a load on one machine, watched in a terminal, in a browser or by a script."""
