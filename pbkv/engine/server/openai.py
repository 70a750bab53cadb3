"""Answers as OpenAI's and SGLang's clients know them, at once or as a stream."""

import json
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from pbkv.engine.requests import Finished
from pbkv.engine.server.calls import Written, usage
from pbkv.engine.server.errors import BadRequest
from pbkv.engine.server.models import ChatRequest, GenerateRequest
from pbkv.engine.server.service import ClientGone, Service
from pbkv.engine.server.text import chat_bytes

_GONE = 499


def models(service: Service) -> dict[str, Any]:
    """GET /v1/models."""
    model = {"id": service.model, "object": "model", "owned_by": "pbkv", "max_model_len": service.calls.context}
    return {"object": "list", "data": [model]}


async def chat(service: Service, asked: ChatRequest, request: Request) -> Response:
    """POST /v1/chat/completions."""
    prompt = chat_bytes([m.plain() for m in asked.messages])
    written = service.calls.make(asked, asked.custom_params, prompt, asked.tokens, request.headers)
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": asked.model or service.model}
    if asked.stream:
        # Before the answer begins: a refusal still has its status.
        future = service.live.submit(written.request)
        with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        return StreamingResponse(_chunks(service.follow(written, future), written, head, with_usage), media_type="text/event-stream")
    try:
        done = await service.finish(written, request)
    except ClientGone:
        return Response(status_code=_GONE)
    message = {"role": "assistant", "content": written.reply.decode()}
    choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": None}
    return JSONResponse({**head, "object": "chat.completion", "choices": [choice], "usage": usage(written, done)})


async def _chunks(
    pieces: AsyncIterator[tuple[bytes, Finished | None]], written: Written, head: dict[str, Any], with_usage: bool,
) -> AsyncIterator[str]:
    def chunk(delta: dict[str, str], finish: str | None = None) -> str:
        return _event({**head, "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for text, done in pieces:
            yield chunk({"content": text.decode()}, "length" if done else None)
            if done and with_usage:
                yield _event({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage(written, done)})
    except BadRequest as error:
        # The status has been sent: what went wrong later can only be said in the stream.
        yield _event({"error": {"message": str(error), "code": error.status}})
    yield "data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, separators=(',', ':'))}\n\n"


async def generate(service: Service, asked: GenerateRequest, request: Request) -> Response:
    """POST /generate, SGLang's own interface, without streaming."""
    prompt, sampling = _prompt_of(asked), asked.sampling_params
    custom = asked.custom_params if sampling.custom_params is None else sampling.custom_params
    written = service.calls.make(asked, custom, prompt, sampling.max_new_tokens, request.headers)
    try:
        done = await service.finish(written, request)
    except ClientGone:
        return Response(status_code=_GONE)
    return JSONResponse({"text": written.reply.decode(), "output_ids": list(written.reply), "meta_info": _meta(written, done)})


def _prompt_of(asked: GenerateRequest) -> bytes:
    if (asked.text is None) == (asked.input_ids is None):
        raise BadRequest("expected either text or input_ids")
    if asked.text is not None:
        return asked.text.encode(errors="replace")
    ids = asked.input_ids or []
    if not all(0 <= token <= 255 for token in ids):
        raise BadRequest("input_ids: expected numbers from 0 to 255, since this engine's tokens are bytes")
    return bytes(ids)


def _meta(written: Written, done: Finished) -> dict[str, Any]:
    return {
        "id": str(written.request.id), "finish_reason": {"type": "length", "length": written.request.output_tokens},
        "prompt_tokens": written.request.prompt_tokens, "completion_tokens": written.request.output_tokens,
        "cached_tokens": done.device_hit + done.host_hit,
        "cached_tokens_details": {"device": done.device_hit, "host": done.host_hit},
        "e2e_latency": done.ended - done.arrived,
    }
