"""This machine: DuckDB's extensions, the state folder and its token, disk space, programs that tests use."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from console.doctor.finding import Finding, fail, ok, warn

#: Extensions the collector and its readers use; DuckDB's Python package brings them, so none is ever downloaded.
EXTENSIONS = ("icu", "json", "parquet")
#: Free disk below which the doctor warns, and fails, bytes. A busy server writes some GB a day.
WARN_FREE, FAIL_FREE = 5 << 30, 256 << 20
#: Programs that only tests use.
PROGRAMS = {"chromium": "browser tests", "tmux": "terminal tests"}


def check_duckdb() -> Finding:
    """Whether DuckDB loads its extensions without a network."""
    try:
        import duckdb
    except ImportError as error:
        return fail("duckdb", str(error), "pip install 'duckdb>=1.5.5,<1.6'")
    with duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}) as connection:
        for name in EXTENSIONS:
            try:
                connection.execute(f"LOAD {name}")
            except duckdb.Error as error:
                return fail("duckdb", f"extension {name} does not load ({str(error).splitlines()[0]})", "reinstall the duckdb package")
    return ok("duckdb", f"{duckdb.__version__}, extensions {', '.join(EXTENSIONS)} load offline")


def check_state(folder: Path) -> Iterator[Finding]:
    """The state folder can be written, has room, and keeps its token to its owner."""
    place = folder
    while not place.exists():
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
        yield fail("state folder", f"{folder} cannot be written", "set PBKV_STATE_DIR to a folder you own")
        return
    yield ok("state folder", f"{folder}" + ("" if folder.exists() else " (made on first use)"))
    yield _disk(shutil.disk_usage(place).free, folder)
    if (token := folder / "token").exists():
        yield _token(token)


def _disk(free: int, folder: Path) -> Finding:
    text = f"{free / (1 << 30):.1f} GiB free at {folder}"
    if free < FAIL_FREE:
        return fail("disk", text, "free some space: the collector would stop storing")
    if free < WARN_FREE:
        return warn("disk", text, "free some space, or put databases elsewhere with --db")
    return ok("disk", text)


def _token(path: Path) -> Finding:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        return fail("token", f"{path} has mode {mode:04o}: others can read it", f"chmod 600 {path}")
    if not os.access(path, os.R_OK):
        return fail("token", f"{path} cannot be read", "become its owner, or set PBKV_STATE_DIR")
    return ok("token", f"{path}, mode {mode:04o}")


def check_programs() -> Iterator[Finding]:
    """Programs that only tests use: never a failure."""
    for name, purpose in PROGRAMS.items():
        place = shutil.which(name)
        yield ok(name, place) if place else warn(name, "not on PATH", f"only {purpose} need it: apt-get install {name}")
