"""The release of a program, on a server without an engine."""

import asyncio

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from pbkv.control.programs import programs_router
from pbkv.control.router import MAX_BODY
from pbkv.errors import PbkvError


@pytest.fixture
def closed() -> list[str]:
    return []


@pytest.fixture
def client(closed: list[str]) -> TestClient:
    async def close(workflow: str) -> bool:
        await asyncio.sleep(0)
        if workflow == "gone":
            raise PbkvError("the scheduler did not answer")
        closed.append(workflow)
        return workflow == "live"

    app = FastAPI()
    app.include_router(programs_router(close))
    return TestClient(app)


@pytest.mark.parametrize(("sent", "name", "released"), [("live", "live", True), ("nobody", "nobody", False), (7, "7", False)])
def test_a_release_names_the_workflow_and_says_whether_it_was_live(
    client: TestClient, closed: list[str], sent: object, name: str, released: bool,
) -> None:
    answer = client.post("/programs/release", json={"program_id": sent})
    assert (answer.status_code, answer.json()) == (200, {"program_id": name, "released": released})
    assert closed == [name]


def test_a_long_name_is_released_under_the_name_its_calls_had(client: TestClient, closed: list[str]) -> None:
    assert client.post("/programs/release", json={"program_id": "p" * 5000}).status_code == 200
    assert closed == ["p" * 256]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"{}", b'{"program_id": ""}', b'{"program_id": [1]}', b"[" * 100_000, b"\xff"])
def test_what_names_no_program_is_refused(client: TestClient, closed: list[str], body: bytes) -> None:
    answer = client.post("/programs/release", content=body)
    assert answer.status_code in (400, 413)
    assert answer.json()["error"]
    assert closed == []


def test_a_huge_body_is_not_read(client: TestClient) -> None:
    assert client.post("/programs/release", content=b" " * (MAX_BODY + 1)).status_code == 413


def test_a_scheduler_that_does_not_answer(client: TestClient) -> None:
    answer = client.post("/programs/release", json={"program_id": "gone"})
    assert (answer.status_code, answer.json()) == (503, {"error": "the scheduler did not answer"})
