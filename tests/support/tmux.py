"""A program in a real terminal of a given size."""

import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

DEADLINE_S = 90.0


class Tmux:
    """`with Tmux(command, 80, 24) as t: t.until("word"); t.keys("q")`. A tmux server of its own; nothing else is touched."""

    def __init__(self, command: list[str], width: int, height: int, env: Mapping[str, str] | None = None) -> None:
        assert shutil.which("tmux"), "tmux is not installed; the terminal tests need it"
        self._socket = f"pbkv-{uuid.uuid4().hex[:12]}"
        exports = [f"{k}={v}" for k, v in (env or {}).items()]
        # The size is the terminal's, whatever the environment of the test run says.
        line = shlex.join(["env", "-u", "COLUMNS", "-u", "LINES", *exports, *command]) + "; echo EXIT-$?; exec sleep 600"
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(width), "-y", str(height), line)

    def _tmux(self, *args: str) -> str:
        return subprocess.run(["tmux", "-L", self._socket, *args], capture_output=True, text=True, check=True).stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._tmux("kill-server")

    def screen(self) -> str:
        """What stands on the screen."""
        return self._tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        """Press keys, named as tmux names them."""
        self._tmux("send-keys", *keys)

    def until(self, condition: str | Callable[[str], bool]) -> str:
        """The screen, once it contains the words or fulfils the condition."""
        holds = condition if callable(condition) else lambda screen: condition in screen
        end = time.monotonic() + DEADLINE_S
        while not holds(screen := self.screen()):
            assert time.monotonic() < end, f"never on the screen: {condition}\n{screen}"
            time.sleep(0.1)
        return screen
