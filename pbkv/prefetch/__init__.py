"""Prefetch from host memory, only when nothing can be hurt."""
