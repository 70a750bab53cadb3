"""A PostgreSQL server of the test's own, on loopback, as an ordinary user."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.support.ports import free_port


def _program(name: str) -> str:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    program = str(found[-1]) if found else shutil.which(name)
    assert program, f"{name} is missing: apt-get install postgresql"
    return program


class Postgres:
    """`with Postgres() as pg: pg.new()` names a new database in it as a lake's catalog."""

    def __init__(self) -> None:
        # Not below pytest's folders: PostgreSQL does not run as root, and only root may enter those.
        self._temporary = tempfile.TemporaryDirectory(prefix="pbkv-pg-")
        self.folder = Path(self._temporary.name)
        self.port = free_port()
        self._as = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(self.folder, "postgres")
        self._run("initdb", "-D", str(self.folder / "db"), "-A", "trust", "-U", "pbkv", "--no-sync")
        self.start()
        self._count = 0

    def _run(self, name: str, *args: str) -> None:
        done = subprocess.run([*self._as, _program(name), *args], capture_output=True, text=True, timeout=120, cwd="/")
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1 -c fsync=off"
        # Its output must not hold the test's pipes open.
        command = [*self._as, _program("pg_ctl"), "-D", str(self.folder / "db"), "-o", options, "-w", "-l", str(self.folder / "log")]
        command.append("start")
        assert subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120, cwd="/").returncode == 0

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", str(self.folder / "db"), "-m", mode, "stop")

    def new(self) -> str:
        """A source for a new, empty database."""
        self._count += 1
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "pbkv", f"lake{self._count}")
        return f"postgres:host=127.0.0.1 port={self.port} user=pbkv dbname=lake{self._count}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
        self._temporary.cleanup()
