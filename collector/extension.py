"""DuckDB extensions, loaded from their Python packages: nothing is downloaded and nothing is copied into a home folder."""

from importlib import util
from pathlib import Path

import duckdb

from pbkv.errors import UsageError


def load(db: duckdb.DuckDBPyConnection, names: tuple[str, ...], extra: str) -> None:
    """LOAD each of `names`. Raises UsageError naming the `extra` of this package to install when one is missing."""
    for name in names:
        path = _find(name)
        if path is None:
            raise UsageError(
                f"DuckDB extension {name} of version {duckdb.__version__} is not installed; pip install 'pbkv-console[{extra}]'"
            )
        db.execute(f"LOAD '{path}'")


def _find(name: str) -> Path | None:
    spec = util.find_spec(f"duckdb_extension_{name}")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for folder in folders for p in Path(folder).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension")]
    return found[0] if found else None
