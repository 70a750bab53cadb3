"""Recorded traces as token-level workloads, one file format each."""
