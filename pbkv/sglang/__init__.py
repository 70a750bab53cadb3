"""PBKV as an out-of-tree SGLang plugin. Only this package imports sglang."""
