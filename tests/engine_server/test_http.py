"""Routes of the embedded server: answers of the right shape and size, refusals in the client's words, limits that hold."""

import json
import socket
import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.embedded import EmbeddedServer
from tests.support.processes import until


def metric(server: EmbeddedServer, name: str, **labels: str) -> float:
    text = server.call("GET", "/metrics").text
    samples = [s for family in text_string_to_metric_families(text) for s in family.samples if s.name == name]
    (value,) = [s.value for s in samples if labels.items() <= s.labels.items()]
    return value


def test_a_reply_is_as_long_as_asked_and_repeats(server: EmbeddedServer) -> None:
    first, again = (server.chat("tell me of glaciers", n=37) for _ in range(2))
    text = first["choices"][0]["message"]["content"]
    assert len(text) == 37
    assert text == again["choices"][0]["message"]["content"]
    assert first["object"] == "chat.completion"
    assert (first["choices"][0]["finish_reason"], first["usage"]["completion_tokens"]) == ("length", 37)


def test_a_conversation_sent_back_is_found_in_the_cache(server: EmbeddedServer) -> None:
    messages: list[dict[str, str]] = [{"role": "system", "content": "You weigh claims about rivers. " * 8}]
    cached: list[int] = []
    for turn in range(4):
        messages.append({"role": "user", "content": f"Claim {turn}: the river is long."})
        body = {"messages": messages, "max_tokens": 40, "custom_params": {"pbkv": {"workflow": "talk", "agent": "a"}}}
        answer = server.call("POST", "/v1/chat/completions", body).json()
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        usage = answer["usage"]
        cached.append(usage["prompt_tokens_details"]["cached_tokens"])
        assert usage["total_tokens"] == usage["prompt_tokens"] + 40
    assert cached[0] < cached[1] < cached[2] < cached[3]
    # All but the new question and the page that was not full: the reply of the turn before is in the cache too.
    assert usage["prompt_tokens"] - cached[-1] < 100


def test_a_stream_says_the_same_piece_by_piece(server: EmbeddedServer) -> None:
    body = {"messages": [{"role": "user", "content": "stream of news"}], "max_tokens": 200}
    whole = server.call("POST", "/v1/chat/completions", body).json()
    streamed = server.call("POST", "/v1/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"]) == whole["choices"][0]["message"]["content"]
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] == "length"
    assert chunks[-1]["usage"]["completion_tokens"] == 200
    assert len({c["id"] for c in chunks}) == 1
    assert len(chunks) > 4, "not all at the end"


def test_the_openai_client_reads_both(server: EmbeddedServer) -> None:
    import openai

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        messages: Any = [{"role": "user", "content": "hello"}]
        whole = client.chat.completions.create(model="any", messages=messages, max_tokens=20)
        assert whole.usage is not None and whole.usage.prompt_tokens_details is not None
        stream = client.chat.completions.create(model="any", messages=messages, max_tokens=20, stream=True)
        assert "".join(c.choices[0].delta.content or "" for c in stream) == whole.choices[0].message.content
        (model,) = client.models.list().data
        assert model.id == "qwen3-14b@h100"
        with pytest.raises(openai.BadRequestError, match="the context holds 2048"):
            client.chat.completions.create(model="any", messages=messages, max_tokens=5000)


def test_generate_like_sglang(server: EmbeddedServer) -> None:
    tokens = list(b"the same beginning every time, longer than a page of sixteen")
    server.generate(tokens)
    answer = server.generate(tokens, n=12)
    assert len(answer["output_ids"]) == 12
    assert bytes(answer["output_ids"]).decode() == answer["text"]
    meta = answer["meta_info"]
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["cached_tokens"]) == (len(tokens), 12, len(tokens) // 16 * 16)
    assert meta["cached_tokens_details"] == {"device": meta["cached_tokens"], "host": 0}


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(("path", "body", "says"), [
    ("/v1/chat/completions", {}, "messages"),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 0}, "max_tokens"),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 2048}, "the context holds 2048: shorten one of them"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "y" * 5000}]}, "the prompt has 50"),
    ("/v1/chat/completions", {**CHAT, "max_tokens": 2048, "stream": True}, "the context holds 2048"),
    ("/generate", {"text": "a", "input_ids": [1]}, "either text or input_ids"),
    ("/generate", {"input_ids": [300]}, "tokens are bytes"),
    ("/generate", {"input_ids": []}, "at least one token"),
    ("/close_session", {}, "session_id"),
])
def test_what_cannot_be_served_is_refused_with_its_reason(server: EmbeddedServer, path: str, body: Any, says: str) -> None:
    answer = server.call("POST", path, body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["message"]


def test_a_body_without_end_is_cut_off(server: EmbeddedServer) -> None:
    answer = server.call("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "z" * (2 << 20)}]})
    assert answer.status_code == 413
    assert server.alive()


def test_broken_json_is_refused(server: EmbeddedServer) -> None:
    import requests

    answer = requests.post(f"{server.url}/v1/chat/completions", data=b"{", timeout=10)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


def test_metrics_count_what_was_served(server: EmbeddedServer) -> None:
    totals = ("prompt_tokens_total", "generation_tokens_total", "num_requests_total", "time_to_first_token_seconds_count")
    names = [f"sglang:{name}" for name in totals]
    before = [metric(server, name) for name in names]
    hit = metric(server, "sglang:cached_tokens_total", cache_source="device")
    first = server.chat("count me, " * 20, n=16)["usage"]
    second = server.chat("count me, " * 20, n=16)["usage"]
    after = [metric(server, name) for name in names]
    assert [a - b for a, b in zip(after, before, strict=True)] == [2 * first["prompt_tokens"], 32, 2, 2]
    found = first["prompt_tokens_details"]["device"] + second["prompt_tokens_details"]["device"]
    assert metric(server, "sglang:cached_tokens_total", cache_source="device") == hit + found
    assert metric(server, "sglang:kv_evictable_tokens") + metric(server, "sglang:kv_available_tokens") == 3072
    assert metric(server, "sglang:token_usage") == 0, "nothing runs"
    assert metric(server, "sglang:max_total_num_tokens") == 3072
    assert metric(server, "sglang:num_running_reqs") == 0


def test_flush_empties_the_cache(server: EmbeddedServer) -> None:
    server.chat("keep this in mind " * 10)
    assert server.state()["leaves"] > 0
    assert server.call("POST", "/flush_cache").status_code == 200
    assert server.state()["leaves"] == 0
    assert server.chat("keep this in mind " * 10)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_takes_its_call_with_it(server: EmbeddedServer, stream: bool) -> None:
    aborted = metric(server, "sglang:num_aborted_requests_total")
    body = json.dumps({**CHAT, "max_tokens": 1900, "stream": stream}).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        until(lambda: metric(server, "sglang:num_running_reqs") == 1, "the call runs")
    until(lambda: metric(server, "sglang:num_running_reqs") == 0, "the call is dropped")
    assert metric(server, "sglang:num_aborted_requests_total") == aborted + 1
    assert server.alive()


def test_many_at_once_are_all_answered(server: EmbeddedServer) -> None:
    replies: list[int] = []

    def ask(n: int) -> None:
        replies.append(len(server.chat(f"{n} " * 100, n=50)["choices"][0]["message"]["content"]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [50] * 24
