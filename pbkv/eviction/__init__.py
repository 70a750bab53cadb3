"""Eviction policies (one file each) over one persistent queue."""
