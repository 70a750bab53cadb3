"""What a CPU-only machine needs to run a real SGLang server: entry points, a tiny model, and the launch command."""
