"""The web page: one Dash app over a live collector or a recording."""
