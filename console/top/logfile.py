"""While the app owns the terminal (it draws on stderr), whatever would be said there goes to a file."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from collector.token import state_dir
from pbkv.errors import UsageError


def log_to_file() -> Path:
    """Send all logging to top.log in the state folder. Raises UsageError when it cannot be written."""
    path = state_dir() / "top.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handler = RotatingFileHandler(path, maxBytes=1 << 20, backupCount=1)
    except OSError as error:
        raise UsageError(f"log file {str(path)!r}: {error.strerror}; name another folder with PBKV_STATE_DIR") from None
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True)
    logging.captureWarnings(True)
    return path
