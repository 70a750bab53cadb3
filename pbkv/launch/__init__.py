"""Starting SGLang with the pbkv cache: its flags, what does not go together with the cache, and what the cache needs set."""
