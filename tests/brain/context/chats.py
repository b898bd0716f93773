"""Conversations of a size that a test wants, and what is asked of the requests they make."""

import json
from itertools import pairwise
from typing import Any

from brain.context.conversation import conversation, joined
from brain.context.request import next_reply
from brain.session.transcript import Transcript
from tests.brain.logs import AGENT, HANDS, Log

Json = dict[str, Any]


def log_with(**context: Any) -> Log:
    """A log whose agent has a context policy."""
    log = Log()
    log.add("session.updated", {"agent": AGENT | {"context": context}, "hands": HANDS})
    return log


def work(log: Log, rounds: int, *, size: int = 2000, calls: int = 1, thinks: bool = False) -> Json:
    """So many requests, each answered by calls with results of `size` characters; the last one."""
    last: Json = {}
    for number in range(rounds):
        last = next_reply(log.transcript).request
        request = log.ask()
        if thinks:
            block = {"type": "thinking", "thinking": "hm " * 100, "signature": f"s{number}"}
            log.add("agent.thinking", {"content": [block], "model_request_start_id": request})
        made = log.reply(
            request, f"step {number}", calls=tuple(f"run {number}.{n}" for n in range(calls))
        )
        for call in made:
            log.result(call, f"{number} " + "x" * size)
    return last


def bare(value: Any) -> Any:
    """Without the breakpoints: they are no part of what is cached."""
    if isinstance(value, dict):
        return {key: bare(each) for key, each in value.items() if key != "cache_control"}
    return [bare(each) for each in value] if isinstance(value, list) else value


def prefixes(request: Json) -> list[bytes]:
    """What the API caches of a request: tools, system and messages up to each breakpoint."""
    parts: list[tuple[str, Json]] = [("tools", tool) for tool in request.get("tools", [])]
    parts += [("system", block) for block in request.get("system", [])]
    for turn in request["messages"]:
        parts += [(turn["role"], block) for block in turn["content"]]
    found, upto = [], b""
    for where, block in parts:
        upto += json.dumps([where, bare(block)], sort_keys=True).encode()
        if "cache_control" in block:
            found.append(upto)
    return found


def whole_of(request: Json) -> bytes:
    """All of a request's tools, system and messages, to compare with prefixes."""
    turns = [bare(turn) for turn in request["messages"]]
    last = turns[-1]["content"][-1]
    marked = {**request, "messages": [*turns[:-1], {**turns[-1]}]}
    marked["messages"][-1]["content"] = [*turns[-1]["content"][:-1], last | {"cache_control": 1}]
    return prefixes(marked)[-1]


def check_fit(request: Json) -> None:
    """What the Messages API holds every request to: roles alternate, each call has its result."""
    open_calls: list[str] = []
    roles = [turn["role"] for turn in request["messages"]]
    assert roles[0] == "user"
    assert roles[-1] == "user"
    assert all(a != b for a, b in pairwise(roles))
    for turn in request["messages"]:
        results = [b["tool_use_id"] for b in turn["content"] if b["type"] == "tool_result"]
        assert [b["type"] for b in turn["content"][: len(results)]] == ["tool_result"] * len(
            results
        ), "results come first"
        assert sorted(results) == sorted(open_calls)
        open_calls = [b["id"] for b in turn["content"] if b["type"] == "tool_use"]
    assert not open_calls


def messages(transcript: Transcript) -> list[Json]:
    """Messages API messages of everything up to the transcript's head."""
    return joined(conversation(transcript))
