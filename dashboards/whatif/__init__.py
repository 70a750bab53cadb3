"""What-if on the web page: forecasts beside staged knobs, and grids."""
