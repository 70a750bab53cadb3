"""One module per panel: what it draws, what it says when there is nothing, and its rows for CSV."""
