"""Agent workflows to play against an engine: synthetic graphs and recorded conversations."""
