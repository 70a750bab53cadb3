"""What-if: recorded traffic through the same tree and policies at another setting, with the error of the answer."""
