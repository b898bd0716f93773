"""What the log says of an MCP call that has no result: for each reason of the proxy's. Pure.

A call that was not sent did not run. Of one that may have been, nobody knows: the log says that it
may have happened, in just those words, and it is not sent again.
"""

from collections.abc import Mapping
from typing import NamedTuple

from brain.mcp.wire import Refused
from brain.session.entries import Call, New
from brain.session.results import settled
from carpal import layers
from carpal.layers import Layer
from carpal.status import Reason

MAYBE = "; the call may have happened, and is not sent again"


class _Row(NamedTuple):
    outcome: str
    text: str
    cause: str
    """A `Reason`, or of `layers.CAUSES`."""


_NOT_RUN: Mapping[str, tuple[str, str]] = {
    "TOOL_DENIED": ("the server has no such tool now", layers.MCP_NO_TOOL),
    "SERVER_UNKNOWN": ("the session's grant has no such server", layers.MCP_NO_TOOL),
    "APPROVAL_REQUIRED": (
        "the server describes the tool otherwise than when the session first saw it; call it "
        "again, by what is said of it now, and a person is asked",
        layers.MCP_TOOL_CHANGED,
    ),
    "AT_CAPACITY": ("too many calls go on at the vault", layers.MCP_BUSY),
    "UNREACHABLE": ("the server cannot be reached", layers.MCP_UNREACHABLE),
    "AUTHENTICATION_FAILED": (
        "the server does not take the credential",
        layers.MCP_UNAUTHENTICATED,
    ),
    "CREDENTIAL_UNAVAILABLE": (
        "the vault has no usable credential for the server",
        layers.MCP_UNAUTHENTICATED,
    ),
    "NOT_SENDABLE": ("the arguments cannot be sent to this server", Reason.INPUT_INVALID),
    "PARAMS_INVALID": ("the arguments are not those of a call", Reason.INPUT_INVALID),
    "NO_REQUEST": ("the arguments are larger than the vault takes", Reason.INPUT_INVALID),
    **dict.fromkeys(
        ("MALFORMED", "METHOD_UNKNOWN", "VERSION_UNSUPPORTED", "CALL_ID_MISSING"),
        ("the vault takes no such request", layers.MCP_REFUSED),
    ),
    "UNAVAILABLE": ("the vault cannot write down what it does", Reason.AUDIT_NOT_WRITTEN),
}
"""Reasons of which nothing left the vault → what the model is told, and the cause."""
_MAYBE: Mapping[str, _Row] = {
    "TIMED_OUT": _Row("timed_out", "the server did not answer in time", layers.MCP_UNANSWERED),
    "SERVER_GONE": _Row(
        "interrupted", "the server ended the connection before its answer", layers.MCP_UNANSWERED
    ),
    "SERVER_BROKEN": _Row("interrupted", "the server's answer is none", layers.MCP_UNANSWERED),
    "RESULT_TOO_LARGE": _Row(
        "interrupted", "the server's answer is larger than is taken", layers.MCP_UNANSWERED
    ),
}
_REFUSED: Mapping[str, str] = {
    "SERVER_REFUSED": "the server refused the call",
    "INPUT_REFUSED": "the server asked for something in the middle of the call, which it may not",
}


def refused(call: Call, refusal: Refused) -> New:
    """Of a refusal that another try does not mend."""
    reason = refusal.reason
    if reason == "CALL_SENT":
        return sent_before(call, str(refusal.data.get("outcome")))
    if row := _NOT_RUN.get(reason):
        text, cause = row
        if str(refusal.data.get("credential")) in Reason.__members__:
            cause = str(refusal.data["credential"])
        return _settled(call, "error", f"not run: {text}", cause)
    if maybe := _MAYBE.get(reason):
        return _settled(call, maybe.outcome, maybe.text + MAYBE, maybe.cause)
    if text := _REFUSED.get(reason, ""):
        return _settled(call, "error", text, layers.MCP_REFUSED)
    return _settled(call, "interrupted", f"the vault refused it ({reason})" + MAYBE,
                    layers.MCP_UNANSWERED)  # fmt: skip


def why(refusal: Refused) -> tuple[str, str]:
    """What went wrong of a request that had no effect to have, and the cause."""
    reason = refusal.reason
    if row := _MAYBE.get(reason):
        return row.text, row.cause
    return _NOT_RUN.get(reason) or (
        _REFUSED.get(reason) or f"the vault refused it ({reason})",
        layers.MCP_REFUSED,
    )


def sent_before(call: Call, outcome: str) -> New:
    """Of a call that was sent already, of which the vault knows so much."""
    before = "the call was sent once, and the server"
    lost = "; its answer was lost with the brain or the vault that waited for it"
    match outcome:
        case "ok":
            return settled(call, "ok", f"{before} did it{lost}")
        case "error":
            return _settled(call, "error", f"{before} said that it failed{lost}",
                            layers.OUTPUT_FREED)  # fmt: skip
        case "refused":
            return _settled(call, "error", f"{before} refused it", layers.MCP_REFUSED)
    return _settled(call, "interrupted", f"nobody knows what became of it{MAYBE}",
                    layers.MCP_UNANSWERED)  # fmt: skip


def no_vault(call: Call, why: str, cause: str, *, sent: bool) -> New:
    """Of a call for which the vault was not there; `sent` when it may have been sent before."""
    if sent:
        return _settled(call, "interrupted", why + MAYBE, cause)
    return _settled(call, "error", f"not run: {why}", cause)


def cancelled(call: Call, *, sent: bool) -> New:
    """Of a call that a person interrupted."""
    if sent:
        return settled(call, "cancelled", "interrupted; the call may have happened all the same")
    return settled(call, "cancelled", "interrupted before it was sent")


def _settled(call: Call, outcome: str, text: str, cause: str) -> New:
    layer = Layer.MODEL if cause == Reason.INPUT_INVALID else Layer.VAULT
    return settled(call, outcome, text, failed=(layer, cause))
