"""What a collector tells about itself: status for people and for Prometheus, over HTTP, and TLS for its readers."""

import datetime
import ipaddress
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from collector import client
from collector.metrics import MetricsPage
from collector.options import Options, Tls, parse_duration, parse_size
from collector.retention import Retention
from collector.service import Collector
from collector.status import lines, prometheus
from pbkv.errors import Unreachable, UsageError
from tests.support.collector import eventually
from tests.support.stream import LiveProducer

_SAMPLE = re.compile(r'pbkv_collector_[a-z0-9_]+(\{[a-z]+="(?:[^"\\]|\\.)*"(?:,[a-z]+="(?:[^"\\]|\\.)*")*\})? -?[0-9.e+-]+')


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("status")
    options = Options(Retention(archive=folder / "archive"), metrics="127.0.0.1:0")
    with LiveProducer(server='a "b"\\c', speed=20) as producer:
        collector = Collector([(producer.endpoint, producer.replay_endpoint)], folder / "e.duckdb", "127.0.0.1:0", folder, options)
        eventually(lambda: collector.ingest.commits > 2, "commits")
        yield collector
        collector.close()


def page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return answer.read().decode()


def test_every_line_of_metrics_is_well_formed(running: Collector):
    text = page(running.about()["metrics"])
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("# HELP pbkv_collector_", "# TYPE pbkv_collector_")) or _SAMPLE.fullmatch(line), line
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))


def test_metrics_and_status_say_the_same(running: Collector):
    eventually(lambda: running.status()["rows"]["batch"] > 100, "rows")
    text = page(running.about()["metrics"])
    status = running.status()
    stored = int(re.search(r'rows_total\{kind="batch"\} (\d+)', text)[1])
    assert 0 < stored <= status["rows"]["batch"]
    assert status["rows_per_s"] > 0
    assert 'server="a \\"b\\"\\\\c"' in text
    assert "pbkv_collector_failing 0" in text
    assert "pbkv_collector_archive_segments 0" in text


def test_status_for_people_names_everything(running: Collector):
    table = dict(lines(running.status()))
    assert set(table) == {"database", "events", "queue", "commits", "lost", "refused", "queries", "archive", 'a "b"\\c/0'}
    assert "per second" in table["events"]
    assert "lag" in table['a "b"\\c/0']


def test_a_failure_and_a_refusal_are_shown(running: Collector):
    status = {**running.status(), "failing": "no room", "refused": 3, "last_refusal": "torn", "archive": None, "commit_ms_p50": None}
    table = dict(lines(status))
    assert (table["failing"], table["refused"]) == ("no room", "3, last: torn")
    assert "pbkv_collector_failing 1" in prometheus(status)
    assert "archive" not in table
    status["sources"] = [{**status["sources"][0], "lag_s": None, "age_s": None}] * 1500
    assert "not heard" in lines(status)[-1][1]
    assert prometheus(status).count("pbkv_collector_stream_seq{") == 1000


def test_only_metrics_is_served_and_only_to_get(running: Collector):
    url = running.about()["metrics"].removesuffix("/metrics")
    for request in (url, url + "/status", urllib.request.Request(url + "/metrics", data=b"x")):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=30)
        assert caught.value.code in (404, 501)
    assert page(url + "/metrics?x=1")


def test_a_client_that_says_nothing_keeps_nobody_waiting(running: Collector):
    host, port = running.about()["metrics"].removeprefix("http://").removesuffix("/metrics").split(":")
    with socket.create_connection((host, int(port))):
        assert page(running.about()["metrics"])


def test_a_metrics_port_in_use_is_named_and_leaves_nothing_open(tmp_path: Path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"127\.0\.0\.1:{port}: cannot be bound"):
            MetricsPage("127.0.0.1", port, dict)
        pair = [(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")]
        with pytest.raises(UsageError, match=f"{port}: cannot be bound"):
            Collector(pair, tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path, Options(metrics=f"127.0.0.1:{port}"))
    Collector(pair, tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path, Options(metrics=f"127.0.0.1:{port}")).close()


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1.5m", 90), ("24h", 86_400), ("7d", 604_800)])
def test_durations(text: str, seconds: float):
    assert parse_duration(text, "--keep") == seconds


@pytest.mark.parametrize("text", ["", "5", "h", "0s", "-5s", "5 s", "1e9s", "9999999999d", "5000d", "1h30m"])
def test_a_duration_that_is_none(text: str):
    with pytest.raises(UsageError, match=r"--keep .*expected a time"):
        parse_duration(text, "--keep")


@pytest.mark.parametrize(("text", "size"), [("2MB", 2 * 10**6), ("1MiB", 1 << 20), ("1.5GiB", 3 << 29), ("2TB", 2 * 10**12)])
def test_sizes(text: str, size: int):
    assert parse_size(text, "--keep-bytes") == size


@pytest.mark.parametrize("text", ["", "5", "MB", "1kB", "1B", "5mb", "-1GB", "1 GB", "999999999TiB"])
def test_a_size_that_is_none(text: str):
    with pytest.raises(UsageError, match=r"--keep-bytes .*expected a size"):
        parse_size(text, "--keep-bytes")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = Tls(folder / "cert.pem", folder / "key.pem")
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_readers_over_tls(tmp_path: Path, tls: Tls, monkeypatch: pytest.MonkeyPatch):
    pair = [(f"ipc://{tmp_path}/e", f"ipc://{tmp_path}/r")]
    collector = Collector(pair, tmp_path / "e.duckdb", "127.0.0.1:0", tmp_path, Options(tls=tls))
    token = collector.token_file.read_text().strip()
    try:
        assert collector.source.startswith("grpc+tls://127.0.0.1:")
        monkeypatch.setenv("PBKV_COLLECTOR_CA", str(tls.certificate))
        with client.open(collector.source, token) as reader:
            assert reader.sql("SELECT 1 AS one").to_pylist() == [{"one": 1}]
        with client.open(collector.source, "wrong") as reader, pytest.raises(UsageError, match="refuses the token"):
            reader.sql("SELECT 1")
        with client.open(collector.source.replace("+tls", ""), token) as reader, pytest.raises(Unreachable):
            reader.sql("SELECT 1")
        monkeypatch.delenv("PBKV_COLLECTOR_CA")
        with client.open(collector.source, token) as reader, pytest.raises(Unreachable):
            reader.sql("SELECT 1")
    finally:
        collector.close()


def test_tls_files_that_cannot_be_used(tmp_path: Path, tls: Tls, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "x.pem").write_text("no certificate")
    for files, words in (
        (Tls(tmp_path / "none.pem", tls.key), "cannot be read"), (Tls(tls.certificate, tmp_path / "x.pem"), "not PEM"),
    ):
        with pytest.raises(UsageError, match=words):
            files.read()
    monkeypatch.setenv("PBKV_COLLECTOR_CA", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match="PBKV_COLLECTOR_CA"):
        client.open("grpc+tls://127.0.0.1:1", "t")
