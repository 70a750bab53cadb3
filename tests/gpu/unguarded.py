"""A SGLang server with the plugin whose batches do not wait for loads that no request asked for: what PbkvCache prevents, made to happen.

    python -m tests.gpu.unguarded <sglang flags>

The scheduler is a process of its own that imports this module first, so what follows holds there too.
"""

import runpy
import sys

from pbkv.sglang.cache import PbkvCache

del PbkvCache.ready_to_load_host_cache
sys.stderr.write("unguarded: batches do not wait for prefetched KV; answers may be wrong\n")

if __name__ == "__main__":
    runpy.run_module("sglang.launch_server", run_name="__main__")
