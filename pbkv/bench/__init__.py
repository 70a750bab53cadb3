"""Experiments on the embedded engine: many small runs in virtual time, kept by content, summed up in tables and plots."""
