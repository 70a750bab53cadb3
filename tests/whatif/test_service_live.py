"""The whole path: calls to an embedded server, its events through a collector, and a forecast from what the collector serves meanwhile."""

from functools import partial
from pathlib import Path

import pytest

from collector.client import open as open_source
from pbkv.whatif.live import FromLog
from pbkv.whatif.service import Forecaster
from pbkv.whatif.setting import Setting
from tests.dashboards.processes import Collector
from tests.support.embedded import EmbeddedServer
from tests.whatif.test_service import ask

CALLS = 8


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Collector and reader find their token there."""
    monkeypatch.setenv("PBKV_STATE_DIR", str(tmp_path / "state"))
    return {"PBKV_STATE_DIR": str(tmp_path / "state")}


def work(server: EmbeddedServer, workflows: int) -> None:
    """Every workflow's prompts grow, agents take turns."""
    for w in range(workflows):
        text = f"task {w}: "
        for n in range(CALLS):
            text += f"step {n} of the work on it. "
            identity = {"workflow": f"wf-{w}", "agent": ("planner", "coder")[n % 2], "final": n == CALLS - 1}
            server.chat(text, 4, custom_params={"pbkv": identity})


def test_a_live_collector_is_forecast_from(tmp_path: Path, state: dict[str, str]) -> None:
    with EmbeddedServer(tmp_path, "--device-tokens", "4096", "--host-tokens", "8192", "--speed", "50") as server:
        told = server.state()
        with Collector(told["events"], told["replay"], tmp_path / "live.duckdb", state) as collector:
            work(server, 12)
            service = Forecaster(FromLog(partial(open_source, collector.source)))
            try:
                answer = ask(service, "ana", Setting(policy="lru"), Setting(device_tokens=1)).done()
            finally:
                service.close()
    assert answer.about is not None and answer.about.calls >= 50 and answer.about.device_tokens == 4096 and answer.about.ended
    assert answer.error == "" and answer.found[0].estimates["hit"].low <= answer.found[0].estimates["hit"].high
    assert answer.found[1].refused
