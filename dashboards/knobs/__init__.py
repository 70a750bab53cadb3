"""The knob card: what is in force, what is staged, and applying it at a scheduler step."""
