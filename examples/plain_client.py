"""Three agents in turn through the plain `openai` client: all that PBKV needs is `extra_body`.

    python examples/plain_client.py --url http://127.0.0.1:30000
"""

import argparse
import json
import sys
import uuid
from typing import Any

from openai import APIConnectionError, OpenAI

RULES = "You are one of three reviewers of a change to a parser. Read the change and what the others said before you. " * 4
CHANGE = "def parse(line): return line.strip().split(',') if line else None"
AGENTS = ("reader", "critic", "writer")


def main() -> None:
    """One workflow, three calls; the last one says that it is the last."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="the server, without /v1")
    url = parser.parse_args().url.rstrip("/")
    client = OpenAI(base_url=f"{url}/v1", api_key="none")
    model = client.models.list().data[0].id
    workflow = f"review-{uuid.uuid4().hex[:12]}"  # new for each run; it says nothing about the text
    messages: list[Any] = [{"role": "system", "content": RULES}, {"role": "user", "content": CHANGE}]
    cached = 0
    for n, agent in enumerate(AGENTS, 1):
        answer = client.chat.completions.create(
            model=model, messages=messages, max_tokens=48,
            extra_body={"custom_params": {"pbkv": {"workflow": workflow, "agent": agent, "final": n == len(AGENTS)}}},
        )
        text = answer.choices[0].message.content or ""
        details = answer.usage.prompt_tokens_details if answer.usage else None
        cached += (details.cached_tokens or 0) if details else 0
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": f"That was the {agent}. Next."}]
    print(json.dumps({"workflow": workflow, "calls": len(AGENTS), "cached_tokens": cached}))


if __name__ == "__main__":
    try:
        main()
    except APIConnectionError:
        sys.exit("no server answers at --url; start one with: pbkv serve --embedded")
