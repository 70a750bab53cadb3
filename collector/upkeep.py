"""The thread that keeps the store small and quick to ask: rollups every few seconds, checkpoints, retention now and then.

Whatever fails here (a full disk, an archive that is gone) is noted, shown in the status and tried again; storing events goes on meanwhile.
"""

import threading
import time

import duckdb

from collector.retention import Keeper, Retention
from collector.roller import Roller
from collector.store import Store
from pbkv.errors import PbkvError

#: Between two rollups per minute, seconds.
MINUTES_S = 60.0
#: Write-ahead log above which a checkpoint is made, bytes. A commit waits while one runs, so they are few; a longer log would hold more
#: of DuckDB's memory, and take longer than a second to replay after a crash.
CHECKPOINT_BYTES = 192 << 20
#: Between two looks at age and size, seconds.
RETAIN_S = 20.0


class Upkeep:
    """Runs `roll` and `retain` until `stop`; a last rollup is made then, so that a closed file has all of them."""

    def __init__(self, store: Store, retention: Retention) -> None:
        """Raises UsageError when the archive cannot be used."""
        self._store = store
        self._roller = Roller(store)
        self.keeper = Keeper(store, retention)
        self.stop = threading.Event()
        self.failures = 0
        self.failing = ""
        self.thread = threading.Thread(target=self._run, name="pbkv-upkeep", daemon=True)

    def _run(self) -> None:
        minutes = retain = time.monotonic()
        while not self.stop.wait(self._store.roll_s):
            now = time.monotonic()
            if self._try(minutes=now >= minutes, retain=now >= retain):
                minutes = now + MINUTES_S if now >= minutes else minutes
                retain = now + RETAIN_S if now >= retain else retain

    def _try(self, *, minutes: bool, retain: bool) -> bool:
        try:
            self._roller.roll(self._store.stored(), minutes=minutes)
            self._store.checkpoint(CHECKPOINT_BYTES)
            if retain:
                self.keeper.turn(self._roller.done(), time.time())
        except (duckdb.Error, PbkvError, OSError) as error:
            self.failures += 1
            self.failing = (str(error).splitlines() or [type(error).__name__])[0]
            return False
        self.failing = ""
        return True

    def finish(self) -> None:
        """End the thread; make the last rollups; give the archive free. After the last commit, before the store is closed."""
        self.stop.set()
        if self.thread.ident is not None:
            self.thread.join()
            self._try(minutes=True, retain=False)
        self.keeper.close()
