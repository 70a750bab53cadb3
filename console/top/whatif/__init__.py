"""What-if: grids over the last minutes."""
