"""The token that readers show to a collector: a file of mode 0600 in the user's state folder."""

import os
import secrets
from pathlib import Path

from pbkv.errors import UsageError


def state_dir(given: str | Path | None = None) -> Path:
    """`given`, else PBKV_STATE_DIR, else ~/.local/state/pbkv."""
    if given:
        return Path(given)
    from_env = os.environ.get("PBKV_STATE_DIR")
    return Path(from_env) if from_env else Path.home() / ".local" / "state" / "pbkv"


def load_or_create(folder: Path) -> str:
    """The token in `folder`, made on first use. Raises UsageError when the folder or file cannot be used."""
    path = folder / "token"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if (token := load(folder)) is not None:
            return token
        # O_EXCL: of two collectors that start together one writes, the other reads what it wrote.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            token = secrets.token_urlsafe(32)
            file.write(token + "\n")
        return token
    except FileExistsError:
        token = load(folder)
        if token is not None:
            return token
        raise UsageError(f"token file {str(path)!r}: is empty; delete it and start again") from None
    except OSError as error:
        raise UsageError(f"token file {str(path)!r}: cannot be made ({error.strerror}); name another folder with PBKV_STATE_DIR") from None


def load(folder: Path) -> str | None:
    """The token in `folder`, or None without one."""
    try:
        return (folder / "token").read_text().strip() or None
    except FileNotFoundError:
        return None


def reader_token(given: str | None) -> str:
    """Token a reader shows: `given`, else PBKV_COLLECTOR_TOKEN, else the one in the state folder, else "" (which is refused)."""
    try:
        return given or os.environ.get("PBKV_COLLECTOR_TOKEN") or load(state_dir()) or ""
    except OSError as error:
        raise UsageError(f"token file {str(state_dir() / 'token')!r}: cannot be read ({error.strerror})") from None
