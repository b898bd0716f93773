"""Which part of Carpal failed: the `layer` of every error and failed result in a log. Pure.

A refusal says it by its reason, where the reason can only come from one of them;
else it is the layer that was asked.
"""

from enum import StrEnum

from carpal.status import Reason


class Layer(StrEnum):
    """The six, from the model to the vault."""

    MODEL = "model"
    """The model's service, or what the model itself said: a tool that is none, an input that does
    not fit."""
    HARNESS = "harness"
    """The loop in the brain, the brain that runs it, or what they go by: the agent, an event."""
    LINK = "link"
    """The way to a daemon: it could not be reached, or not in time."""
    DAEMON = "daemon"
    """The daemon on the machine, or that there is none that fits or may."""
    HAND = "hand"
    """The environment itself, or the tool that ran in it."""
    VAULT = "vault"
    """Certificates, credentials, and what is sent through the vault."""


OUT_OF_REACH = "out_of_reach"
MACHINE_CHANGED = "machine_changed"
SUPERVISOR_ENDED = "supervisor_ended"
OUT_OF_MEMORY = "out_of_memory"
OUTPUT_FREED = "output_freed"
OUTCOME_UNKNOWN = "outcome_unknown"
REPLY_CUT = "reply_cut"
HAND_UNKNOWN = "hand_unknown"
DRIVER_LOST = "driver_lost"
MCP_NO_TOOL = "mcp_no_tool"
MCP_TOOL_CHANGED = "mcp_tool_changed"
MCP_BUSY = "mcp_busy"
MCP_UNREACHABLE = "mcp_unreachable"
MCP_UNAUTHENTICATED = "mcp_unauthenticated"
MCP_UNANSWERED = "mcp_unanswered"
MCP_REFUSED = "mcp_refused"
CAUSES = frozenset({
    OUT_OF_REACH, MACHINE_CHANGED, SUPERVISOR_ENDED, OUT_OF_MEMORY, OUTPUT_FREED,
    OUTCOME_UNKNOWN, REPLY_CUT, HAND_UNKNOWN, DRIVER_LOST, MCP_NO_TOOL, MCP_TOOL_CHANGED,
    MCP_BUSY, MCP_UNREACHABLE, MCP_UNAUTHENTICATED, MCP_UNANSWERED, MCP_REFUSED,
})  # fmt: skip
"""What a `cause` may be that is no `Reason`: docs/reference/events.md says what each means."""

OWNER_STOPPED = "the machine's owner stopped"
"""How a daemon begins to say that its owner ended a hand: its results have no cause for it."""

_TELLS: dict[Reason, Layer] = {
    Reason.TOOL_NOT_FOUND: Layer.MODEL,
    Reason.INPUT_INVALID: Layer.MODEL,
    Reason.HARNESS_FAILED: Layer.HARNESS,
    Reason.STALE_EPOCH: Layer.HARNESS,
    Reason.UNREACHABLE: Layer.LINK,
    Reason.DAEMON_NOT_LINKED: Layer.LINK,
    Reason.LINK_SUPERSEDED: Layer.LINK,
    Reason.LINK_SILENT: Layer.LINK,
    Reason.MESSAGE_TOO_LARGE: Layer.LINK,
    Reason.LINK_VIOLATION: Layer.DAEMON,
    Reason.NAME_MISMATCH: Layer.DAEMON,
    Reason.VERSION_UNSUPPORTED: Layer.DAEMON,
    Reason.DAEMON_QUARANTINED: Layer.DAEMON,
    Reason.DAEMON_NOT_FOUND: Layer.DAEMON,
    Reason.HAND_TYPE_NOT_FOUND: Layer.DAEMON,
    Reason.AT_CAPACITY: Layer.DAEMON,
    Reason.LIMIT_NOT_ENFORCEABLE: Layer.DAEMON,
    Reason.POLICY_FORBIDS: Layer.DAEMON,
    Reason.HAND_NOT_FOUND: Layer.HAND,
    Reason.HAND_GONE: Layer.HAND,
    Reason.PROVISION_FAILED: Layer.HAND,
    Reason.SAVE_FAILED: Layer.HAND,
    Reason.MOUNT_NOT_FOUND: Layer.HAND,
    Reason.IDENTITY_REVOKED: Layer.VAULT,
    Reason.RENEWAL_REFUSED: Layer.VAULT,
    Reason.VAULT_UNAVAILABLE: Layer.VAULT,
    Reason.SEAL_KEY_WRONG: Layer.VAULT,
    Reason.VAULT_SEALED: Layer.VAULT,
    Reason.VAULT_ROLLED_BACK: Layer.VAULT,
    Reason.VAULT_CORRUPT: Layer.VAULT,
    Reason.CREDENTIAL_NOT_FOUND: Layer.VAULT,
    Reason.CREDENTIAL_CORRUPT: Layer.VAULT,
    Reason.CONSENT_FAILED: Layer.VAULT,
    Reason.CREDENTIAL_NEEDS_CONSENT: Layer.VAULT,
    Reason.CREDENTIAL_NOT_REFRESHED: Layer.VAULT,
    Reason.CREDENTIAL_NOT_FETCHED: Layer.VAULT,
    Reason.TICKET_REFUSED: Layer.VAULT,
}


def layer_of(reason: Reason, asked: Layer) -> Layer:
    """Which layer a refusal is of; `asked` when the reason may come from any."""
    return _TELLS.get(reason, asked)


def failure(layer: Layer, cause: str) -> dict[str, str]:
    """The two members of an event that says what failed; `cause` is a `Reason`, or of `CAUSES`."""
    return {"layer": str(layer), "cause": str(cause)}
