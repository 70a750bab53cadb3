"""The collector as a process of its own: start, wait until it serves, stop, kill."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from collector import client
from collector.reader import Reader
from pbkv.errors import PbkvError


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 120.0) -> Any:
    """The first true value of `condition`; fails after `timeout_s`. A condition that raises PbkvError is not true yet."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            value = condition()
        except PbkvError as error:
            value = None
            what = f"{what.partition(' (')[0]} ({error})"
        if value:
            return value
        assert time.monotonic() < deadline, f"did not happen in {timeout_s:g} s: {what}"
        time.sleep(0.05)


class CollectorProcess:
    """`python -m collector` on `connect` = [(events, replay), ...]; ready when constructed. `extra` goes to Popen."""

    def __init__(self, connect: list[tuple[str, str]], db: Path, *, listen: str = "127.0.0.1:0", prefix: list[str] | None = None) -> None:
        command = [*(prefix or []), sys.executable, "-m", "collector", "--db", str(db), "--listen", listen, "--state-dir", str(db.parent)]
        for pair in connect:
            command += ["--connect", ",".join(pair)]
        self.db = db
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the collector did not start: {self.process.communicate()[1]}"
        self.ready: dict[str, Any] = json.loads(line)
        self.source: str = self.ready["source"]
        self.token = Path(self.ready["token_file"]).read_text().strip()

    def reader(self) -> Reader:
        return client.open(self.source, self.token)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.communicate()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, dict[str, Any], str]:
        """(exit code, final status, standard error) after a signal."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=120)
        return self.process.returncode, json.loads(out.splitlines()[-1]) if out.strip() else {}, err

    def stored(self, epoch: int) -> int:
        """High-water mark of the stream with `epoch`."""
        with self.reader() as reader:
            sql = "SELECT max(h.seq) AS n FROM raw.high_water h JOIN raw.source s USING (src) WHERE s.epoch = $epoch"
            return reader.sql(sql, {"epoch": epoch}).to_pylist()[0]["n"] or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
