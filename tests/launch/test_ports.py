"""Addresses that are taken are named before anything is started."""

import socket
from collections.abc import Iterator

import pytest

from pbkv.config import ServerConfig
from pbkv.errors import UsageError
from pbkv.launch.ports import check_endpoints, check_http


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        yield listener.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", ""])
def test_a_taken_port(taken: int, host: str) -> None:
    with pytest.raises(UsageError, match=f"--port {taken}: the port is in use; stop what listens there, or name another"):
        check_http(host, str(taken))


def test_a_free_port_stays_free(port: int) -> None:
    for _ in range(2):
        check_http("127.0.0.1", port)


def test_an_address_of_another_machine() -> None:
    with pytest.raises(UsageError, match=r"--host 192\.0\.2\.1"):
        check_http("192.0.2.1", 31000)


def test_a_host_that_only_the_server_can_judge() -> None:
    check_http("no such host \ud800", 31000)


@pytest.mark.parametrize("port", [True, "x", "0", "-1", "65536", "", "9" * 5000, None])
def test_what_is_no_port(port: object) -> None:
    with pytest.raises(UsageError, match="expected a whole number from 1 to 65535"):
        check_http("127.0.0.1", port)


@pytest.mark.parametrize("name", ["events", "replay"])
def test_a_taken_endpoint(taken: int, name: str) -> None:
    config = ServerConfig(**{name: f"tcp://127.0.0.1:{taken}"})
    with pytest.raises(UsageError, match=f"{name} = 'tcp://127.0.0.1:{taken}' in the settings file: the port is in use"):
        check_endpoints(config, 1)


@pytest.mark.parametrize("endpoint", [
    "", "tcp://127.0.0.1:*", "tcp://*:0", "ipc:///tmp/x", "nonsense", "tcp://", "tcp://no.such.host.invalid:5557", "tcp://[::1]:*", "tcp://a:b",
])
def test_endpoints_that_the_publisher_judges(endpoint: str) -> None:
    check_endpoints(ServerConfig(events=endpoint), 1)


def test_each_replica_takes_ports_of_its_own(taken: int) -> None:
    check_endpoints(ServerConfig(), 8)
    config = ServerConfig(events=f"tcp://127.0.0.1:{taken - 2}")
    with pytest.raises(UsageError, match=f":{taken}' in the settings file, moved for replica 1: the port is in use"):
        check_endpoints(config, 2)
