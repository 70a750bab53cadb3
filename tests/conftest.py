"""Shared fixtures, and the rule that in CI a skipped test is a failed run."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.ports import free_port

# Fixed examples and no wall-clock deadlines: the machine may be busy, and a failure must repeat.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this test's own, also for the processes it starts."""
    folder = tmp_path / "state"
    monkeypatch.setenv("PBKV_STATE_DIR", str(folder))
    monkeypatch.delenv("PBKV_TOKEN", raising=False)
    return folder


@pytest.fixture
def port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    return free_port()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny model that a SGLang server on CPU can serve."""
    from pbkv_sglang_cpu.model import make_model

    return make_model(tmp_path_factory.mktemp("model") / "tiny")


#: Folders whose tests share something that is slow to start, slowest first; each stays on one worker. Elsewhere a file does.
_TOGETHER = ("server", "demo", "dashboards", "sglang_cache")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell the workers of a parallel run what belongs together, and begin with what takes longest."""

    def group(item: pytest.Item) -> str:
        folder = item.path.parent.name
        return folder if folder in _TOGETHER else str(item.path)

    for item in items:
        item.add_marker(pytest.mark.xdist_group(group(item)))
    items.sort(key=lambda item: _TOGETHER.index(group(item)) if group(item) in _TOGETHER else len(_TOGETHER))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a suite that was skipped has not been run: the exit status says so."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") and reporter is not None and reporter.stats.get("skipped") and session.exitstatus == 0:
        reporter.write_line("CI: a skipped test is a failure", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
