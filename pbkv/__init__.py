"""PBKV: prediction-based KV-cache management for agent workflows."""

__version__ = "0.1.0"
