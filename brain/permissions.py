"""Which calls a person must allow, and what their word decides. Pure.

The agent says it, by tool, as the model is told it:

    permissions: {default: always_allow, tools: {bash: always_ask, "web__*": always_ask}}

Where it says nothing, a hand's tool needs nobody, and an MCP server's a person.

A call that needs a person waits: it is sent to no hand, and the session goes
idle with `requires_action`. A `user.tool_confirmation` decides it, the first
one that counts and that an operator appended. It names the call's id, and the
event of that id never changes: so what is allowed is the call with just that
input, once.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol

from carpal.agent import OWN_HAND

Json = dict[str, Any]
Permission = Literal["allow", "ask", "deny"]
"""`evaluated_permission` of an `agent.tool_use`: it runs, waits for a person, or never runs."""

MESSAGE_MAX = 10_000
"""Characters of a person's message to the model."""


@dataclass(frozen=True)
class Decision:
    """What a person said of a call."""

    position: int
    """Of the event."""
    allowed: bool
    message: str = ""
    """To the model, with a no."""


class Asked(Protocol):
    """A call, as far as it matters here."""

    permission: Permission
    decision: Decision | None
    result: Json | None


def evaluate(agent: Json, name: str, hand: str = "", *, of_server: bool = False) -> Permission:
    """What the agent's permissions say of a tool, by the name it is offered by.

    The tool's own name beats a pattern, a pattern those after it, and all of them the default.
    A tool that the agent is not offered is denied. The brain's own read the log, and nothing
    leaves: they need nobody. A tool `of_server`, an MCP server's, needs a person unless the agent
    says otherwise: what it does, it does elsewhere, with somebody's credential.
    """
    if hand == OWN_HAND:
        return "allow"
    if not is_offered(agent, name):
        return "deny"
    said = agent.get("permissions") or {}
    tools = said.get("tools") or {}
    policy = tools.get(name) or next(
        (each for pattern, each in tools.items() if fnmatchcase(name, pattern)),
        said.get("default") or ("always_ask" if of_server else "always_allow"),
    )
    return "allow" if policy == "always_allow" else "ask"


def is_offered(agent: Json, name: str) -> bool:
    """Whether the agent's `tools.offer` lets the model have a tool; without one, all are."""
    offer = (agent.get("tools") or {}).get("offer")
    return offer is None or any(fnmatchcase(name, pattern) for pattern in offer)


def read_permission(said: Any) -> Permission:
    """An `evaluated_permission` of the log; what is not known here needs a person."""
    if said is None or said == "allow":
        return "allow"
    return "deny" if said == "deny" else "ask"


def undecided(call: Asked) -> bool:
    """Whether a person must still decide a call, unless somebody interrupts."""
    return call.permission == "ask" and call.decision is None and call.result is None


def denial(call: Asked) -> str:
    """Why a call must not run, as the model is told; empty when it may."""
    if call.permission == "deny":
        return "this agent may not use the tool"
    if call.decision is None or call.decision.allowed:
        return ""
    said = call.decision.message
    return f"a person did not allow this call: {said}" if said else "a person did not allow it"


def read_decision(data: Json, position: int) -> Decision:
    """What a `user.tool_confirmation` says; ValueError when it is none."""
    result, message = data["result"], data.get("deny_message")
    if result not in ("allow", "deny"):
        raise ValueError("the result is neither allow nor deny")
    if not isinstance(message, str | None):
        raise ValueError("the message is no text")
    return Decision(position, result == "allow", (message or "")[:MESSAGE_MAX])


def moot(call: Asked | None, *, stopped: bool, by_person: bool = True) -> str:
    """Why a confirmation decides nothing, to be told; empty when it decides the call.

    `stopped`: a person interrupted after the call. `by_person`: an operator appended it, and no
    harness, which could otherwise allow its own calls.
    """
    if not by_person:
        return "no operator said it, and only a person's word counts"
    if call is None:
        return "no call of that id waits"
    if call.permission != "ask":
        return "the call needed nobody's word"
    if call.decision is not None:
        word = "allowed" if call.decision.allowed else "denied"
        return f"event {call.decision.position} had {word} the call before"
    if stopped:
        return "the call had been interrupted before"
    if call.result is not None:
        return "the call had its result before"
    return ""
