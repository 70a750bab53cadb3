"""One module per panel of the screen."""
