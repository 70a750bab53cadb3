"""`pbkv doctor`: what is installed, what is reachable, and what to do about the rest."""
