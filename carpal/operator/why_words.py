"""The sentences of `carpal session why`: what each failure means, and what to do. Pure.

Only our own words are in them, and what `plain` lets through: ids, names of tools and
hands, numbers, times. Nothing that a person, a model or a tool said is ever among them.
"""

import re
from dataclasses import dataclass
from datetime import datetime

from carpal import layers
from carpal.status import SPECS, Reason

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
_MESSAGE = "send it a message once that is done: it goes on from where it stands"


@dataclass(frozen=True)
class Finding:
    """One thing that is true of a session, and is a reason for how it stands."""

    kind: str
    text: str
    """A sentence."""
    layer: str | None = None
    """Which part failed; None when none did."""
    since: datetime | None = None
    until: datetime | None = None
    """When it was over; None when it is not, or that is not known."""
    next: str | None = None
    """What to do, as a sentence's end; None when there is nothing to do."""
    wrong: bool = False
    """It is not as it should be, now."""


def plain(value: object) -> str:
    """A word of ours, an id or a name, as it is; what may be anything else is not shown."""
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else "(not shown)"


def when(moment: datetime) -> str:
    """UTC, to the second."""
    return f"{moment:%Y-%m-%d %H:%M:%SZ}"


MODEL_FAILURES: dict[str, tuple[str, str]] = {
    "model_overloaded_error": ("its service was overloaded", f"wait a while, then {_MESSAGE}"),
    "model_rate_limited_error": (
        "its service takes no more requests of this key for now",
        f"wait, or raise the limit with the provider, then {_MESSAGE}",
    ),
    "model_request_failed_error": (
        "its service refused the request, or broke",
        "find the refusal itself with `carpal session tail`, in a terminal where the session's "
        f"content may be seen, then {_MESSAGE}",
    ),
    "model_timeout_error": ("its service did not answer in time", f"wait a while, then {_MESSAGE}"),
    "model_stream_cut_error": (
        "its answer broke off on the way",
        "check what lies between the brain and the service: a proxy that ends long answers",
    ),
    "model_empty_reply_error": ("it answered with nothing", "send it a message that says more"),
    "model_context_exceeded_error": (
        "the conversation is longer than its context window",
        "give the agent a context policy that cuts (`compact`), or another model",
    ),
    "model_feature_missing_error": (
        "its service lacks a feature that was asked for",
        "nothing: requests go on without it",
    ),
    "model_media_refused_error": (
        "its service refused an image or a document",
        "nothing: a note stands in its place",
    ),
    "model_not_found_error": (
        "its service has no model of that name",
        f"correct the agent's `model`, then {_MESSAGE}",
    ),
    "model_provider_error": (
        "the brain's settings lead to no service",
        "correct `[providers]` in the brain's configuration and restart the brain, then send the "
        "session a message",
    ),
    "authentication_error": (
        "its service did not accept the key",
        "give the brain a key that is valid, then send the session a message",
    ),
    "permission_error": (
        "the key may not use that model",
        f"let it, with the provider, or name another model, then {_MESSAGE}",
    ),
    "billing_error": (
        "its service wants to be paid first",
        f"settle that with the provider, then {_MESSAGE}",
    ),
}
"""Kinds of failure of a model call → what it was, what to do."""

UNANSWERED = (
    "nobody answers at the provider's address",
    "see whether the service is up, whether the brain's machine reaches it, and whether `base_url` "
    "in the brain's configuration is right; what the network said is in `carpal session tail`, in "
    f"a terminal where the session's content may be seen; then {_MESSAGE}",
)
"""The same where the service was never reached."""

BY_OWNER = (
    "the owner of the machine stopped {it}",
    "ask the machine's owner whether it may run there again, or place the hand elsewhere: the next "
    "call makes another one, without what was in this one",
)
"""What became of a hand that its machine's owner ended, and what to do."""

ERRORS: dict[str, tuple[str, str]] = {
    "agent_invalid_error": (
        "The agent in its log has a mistake, so nothing can be driven by it.",
        "start another session with the agent corrected: `carpal agent create FILE` says what is "
        "wrong with it, line by line",
    ),
    "tool_unknown_error": (
        "Its agent's permissions or offer name tools that no hand has: such a name protects "
        "nothing.",
        "correct those names in the agent, for sessions to come",
    ),
    "malformed_event_error": (
        "An event was passed over, because it is not what its type says.",
        "correct whoever appended it",
    ),
    "confirmation_moot_error": (
        "A person's word was passed over, because the call it is about was decided already or is "
        "none.",
        "nothing: a call is decided once",
    ),
}
"""Types of `session.error` that stand for themselves → what it was, what to do."""

_CAUSES: dict[str, tuple[str, str]] = {
    Reason.PROVISION_FAILED: (
        "it did not start",
        "read its message, by `carpal session show`, and the daemon's log",
    ),
    layers.OUT_OF_REACH: (
        "its daemon was out of reach past the orphan deadline, by which the hand has ended itself",
        "bring the daemon back: look at it with `carpal fleet show`",
    ),
    layers.MACHINE_CHANGED: (
        "its machine was restarted, or its daemon has another journal now",
        "nothing, if the restart was meant: the model is told that the call may have partly "
        "happened",
    ),
    layers.SUPERVISOR_ENDED: (
        "what runs its calls was ended from outside, or crashed",
        "look at the machine's log for what killed it",
    ),
    layers.OUT_OF_MEMORY: (
        "the hand was out of memory: the kernel killed in it at its limit",
        "raise `limits.memory_bytes` of that hand in the agent, or have it do less at once",
    ),
    layers.OUTPUT_FREED: (
        "it had ended, and its output was freed before it was in the log",
        "nothing: its outcome is in the log",
    ),
    layers.OUTCOME_UNKNOWN: (
        "its daemon told an outcome that this version does not know",
        "upgrade the brains: the daemon is newer than they are",
    ),
    layers.REPLY_CUT: (
        "the model's reply was cut before its end, or it refused to go on",
        "raise the agent's `max_tokens`, if that is what cut it",
    ),
    str(Reason.HAND_GONE): (
        "the hand is gone: it ended, or was ended, on its machine",
        "nothing: the next call makes another hand, without what was in this one",
    ),
    str(Reason.LIMIT_NOT_ENFORCEABLE): (
        "its machine cannot keep a limit that is asked for",
        SPECS[Reason.LIMIT_NOT_ENFORCEABLE].action,
    ),
    layers.HAND_UNKNOWN: ("the agent has no hand of that name", "correct the agent's `hands`"),
    layers.DRIVER_LOST: (
        "the brain that drove it was lost each time",
        "look at the brains' logs: the machine may be out of memory, or sessiond out of their "
        "reach",
    ),
    str(Reason.AT_CAPACITY): (
        "every daemon that fits is full",
        "let a session go that no longer needs its hands, or add a daemon",
    ),
    str(Reason.DAEMON_NOT_FOUND): (
        "no connected daemon has a hand of that type that fits its placement, by the word of its "
        "machine's owner too, or all are drained",
        "look with `carpal fleet ls`: connect one, lift a drain, or correct the placement",
    ),
    str(Reason.DAEMON_NOT_LINKED): (
        "its daemon had no link",
        "look at the daemon with `carpal fleet show`, and on its machine with `carpal hand doctor`",
    ),
    str(Reason.POLICY_FORBIDS): (
        "the policy of the machine's owner forbids it",
        "ask the machine's owner, or place the hand elsewhere",
    ),
    str(Reason.LINK_VIOLATION): (
        "its daemon answered against the contract",
        "upgrade the daemon: see `carpal fleet show` for its version",
    ),
    str(Reason.HARNESS_FAILED): (
        "the agent's harness is at fault",
        "correct the harness, or have the agent name another",
    ),
    layers.MCP_NO_TOOL: (
        "the server has no such tool now",
        "nothing: the model is told what the server has",
    ),
    layers.MCP_TOOL_CHANGED: (
        "the server describes the tool otherwise than when the session first saw it",
        "nothing now: the next call of it waits for a person",
    ),
    layers.MCP_BUSY: (
        "too many calls went on at the vault",
        "nothing, if it passes; else let fewer sessions call the server at a time",
    ),
    layers.MCP_UNREACHABLE: (
        "the vault does not reach the server",
        "see whether the server is up and the agent's `url` is right, and read `carpal vault audit "
        "show`",
    ),
    layers.MCP_UNAUTHENTICATED: (
        "the server does not take the credential, or there is none for it",
        "look at it with `carpal vault credential list` and `validate`: it must be for the very "
        "URL of the server, in a vault that the agent's `vault_ids` name",
    ),
    layers.MCP_UNANSWERED: (
        "the server did not answer as it should, or nobody knows what became of the call",
        "see at the server whether it was done: the vault does not send it again",
    ),
    layers.MCP_REFUSED: (
        "the server refused",
        "read `carpal vault audit show`: the vault notes why",
    ),
    str(Reason.GRANT_REFUSED): (
        "the vault did not take the session's grant",
        "read `carpal vault audit show`: the vault notes why",
    ),
    str(Reason.VAULT_UNAVAILABLE): ("the vault did not answer", "bring the vault back"),
}


def cause_words(cause: object) -> tuple[str, str]:
    """What a cause means and what to do; of one that is not known, its one word."""
    word = plain(cause)
    if word in _CAUSES:
        return _CAUSES[word]
    if word in Reason.__members__:
        return f"the reason is {word}", SPECS[Reason(word)].action
    if cause is None:
        return "no cause is in the log", "read the log of the process that is at fault"
    return f"the cause is {word}", "read the log of the process that is at fault"
