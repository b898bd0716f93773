"""What an agent says of its context window, with what holds where it says nothing. Pure."""

from dataclasses import dataclass
from typing import Any

import msgspec

from carpal.agent_context import DEFAULT_POLICY, Context, check_context
from carpal.errors import refuse
from carpal.mistake import Mistake
from carpal.status import Reason

Json = dict[str, Any]

WINDOW = 200_000
"""Tokens of a model's window, where nothing else is known: one that is larger is cut early."""
_WINDOWS = {"claude-opus-4-6": 1_000_000, "claude-sonnet-4-6": 1_000_000}
"""Models, by how their name begins, whose window has another size."""
MAX_TOKENS = 8192
"""Of a reply, where the agent says nothing."""


@dataclass(frozen=True)
class Settings:
    """How a session's window is made. Every size is in tokens."""

    policy: str
    window: int
    at: int
    """A request that may be larger than this has the window cut first."""
    keep: int
    """The newest of the conversation that stays as it is."""
    summary: int
    """The most that a summary or a note may take."""
    found: int
    """The most that is brought back from before the newest."""
    instructions: str
    """Of a summary or a note; empty where the policy's own hold."""


def settings(agent: Json) -> Settings:
    """The settings that an agent of the log means. CONFIG_INVALID names the key."""
    said = _read(agent.get("context"))
    window = said.window_tokens or window_of(str(agent.get("model", "")))
    reply = min(int(agent.get("max_tokens") or MAX_TOKENS), window // 2)
    at = said.at_tokens or (window - reply) * 4 // 5
    return Settings(
        policy=said.policy,
        window=window,
        at=at,
        keep=min(said.keep_tokens or at // 5, at * 3 // 4),
        summary=min(said.summary_tokens or 8192, window // 8),
        found=said.found_tokens or at // 5,
        instructions=said.instructions or "",
    )


def window_of(model: str) -> int:
    """Tokens that a model takes in one request, its reply included."""
    return next((size for name, size in _WINDOWS.items() if model.startswith(name)), WINDOW)


def _read(data: Any) -> Context:
    if data is None:
        return Context(DEFAULT_POLICY)
    try:
        context = msgspec.convert(data, Context)
        check_context(context)
    except Mistake as mistake:
        raise _invalid(f"{mistake.key}: {mistake.problem}") from None
    except msgspec.ValidationError as error:
        raise _invalid(f"context: {error}") from None
    return context


def _invalid(what: str) -> Exception:
    action = "give the session an agent whose context is as docs/agents.md says"
    return refuse(Reason.CONFIG_INVALID, f"the session's agent: {what}", action=action)
