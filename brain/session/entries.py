"""What a transcript is made of: entries of the log, and the calls, hands and requests they tell of.

Pure.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from brain.budget import Amounts
from brain.permissions import Decision, Permission

Json = dict[str, Any]

COMPACTED = "agent.thread_context_compacted"
"""Type of the event that says where the context window was cut, and what stands for the rest."""
KNOWN_TYPES = frozenset(
    {
        "session.updated",
        "session.status_running",
        "session.status_idle",
        "session.consent_required",
        "session.error",
        "user.consent",
        "user.message",
        "user.interrupt",
        "user.save",
        "user.tool_confirmation",
        "system.message",
        "context.fallback_model",
        "context.feature_missing",
        "context.harness",
        "context.media_refused",
        "context.tools",
        "context.tools_loaded",
        "span.model_request_start",
        "span.model_request_end",
        "agent.thinking",
        "agent.message",
        "agent.tool_use",
        "agent.tool_result",
        "agent.thread_context_compacted",
        "hand.entered",
        "hand.event",
        "hand.left",
        "hand.late_result",
        "hand.provision_requested",
        "hand.provisioned",
        "hand.provision_failed",
        "hand.lost",
        "hand.released",
        "hand.saved",
        "hand.save_failed",
    }
)
"""Event types this brain understands."""


@dataclass(frozen=True)
class Entry:
    """An event, its data parsed."""

    position: int
    id: str
    type: str
    data: Json
    must_understand: bool = False
    time: float = 0.0
    """Seconds since the epoch, by the store's clock."""
    redacted: bool = False
    """Its data was erased; a message then says so in its place."""
    source: str = ""
    """SPIFFE URI of whoever appended it."""


@dataclass(frozen=True)
class New:
    """An event to append."""

    type: str
    data: Json
    id: str = ""
    """Empty means a fresh one."""


@dataclass
class Call:
    """One tool call; its id is its event's id and never changes."""

    call_id: str
    position: int
    name: str
    hand: str
    """Name of the hand the model chose, or of the MCP server."""
    input: Json
    request_id: str
    server: str = ""
    """Name of the MCP server whose tool it is; empty of a hand's."""
    permission: Permission = "allow"
    decision: Decision | None = None
    """Of a person, where one must allow it."""
    consent: Decision | None = None
    """What became of the consent that it waited for last."""
    unsent: bool = False
    """The vault missed its user's consent, and nobody gave it since: so it was sent by nobody."""
    result: Json | None = None
    late: Json | None = None
    """What its hand said of it after it had been given up."""

    @property
    def since(self) -> int:
        """Position from which it may have been sent: its own, or that of a person's last word."""
        said = [each.position for each in (self.decision, self.consent) if each is not None]
        return max(self.position, *said) if said else self.position


@dataclass
class Hand:
    """One provisioned environment, or the wish for one."""

    hand_id: str
    name: str
    type: str
    daemon: str
    config: Json
    orphan_deadline: float
    """Seconds without contact after which it ends itself."""
    requested: int
    """Position of the request."""
    resources: list[tuple[str, str]] = field(default_factory=list)
    """What is mounted: source and path of each."""
    limits: dict[str, float] = field(default_factory=dict)
    state: Literal["requested", "live", "failed", "lost", "released"] = "requested"
    provisioned: int = 0
    """Position of `hand.provisioned`."""
    ended: int = 0
    journal_id: str = ""
    boot_id: str = ""
    sequence: int = 0
    """Highest journal position the log noted for it."""
    given_up: bool = False
    """Its daemon was out of reach for so long that nothing more is asked of it."""
    outdated: list[str] = field(default_factory=list)
    """Tools that are gone, or take something else, since the model was told of another hand's."""


@dataclass(frozen=True)
class Save:
    """A person's wish to have a hand's workspace saved; its id is its event's id."""

    save_id: str
    position: int
    hand: str
    """The hand's name; empty means the default one."""


@dataclass(frozen=True)
class Window:
    """Where a context window was cut: up to there a text stands for the log."""

    position: int
    """Of the event that says so."""
    through: int
    """The last position that the text stands for; what comes after is read as it is."""
    text: str
    """What the model is given in its place."""
    kind: str
    """`summary`, `note`, or `omitted` when nobody could say what stood there."""


@dataclass
class ModelRequest:
    """One call of the model, and where its reply stands in the conversation."""

    request_id: str
    position: int
    through: int
    """The reply answers events up to here, so it stands right after them."""
    purpose: str = "reply"
    reserved: Amounts = field(default_factory=dict)
    """What of the budget it may take."""
    blocks: list[Entry] = field(default_factory=list)
    answer: Json | None = None
    """What the model said to another purpose than a reply: `content, stop_reason`."""
    covers: int = 0
    """Of a compaction: the position up to which the answer is to stand for the log."""
    done: bool = False
    failed: bool = False
    error: Json | None = None
    """Why it failed, as the log says it; None when its driver died."""
    ended: int = 0
    """Position of its end; 0 when it has none."""
    usage: Json = field(default_factory=dict)
    """What the API counted."""
    stop_reason: str = ""
    stop_sequence: str | None = None
    stop_details: Json | None = None


def check_content(content: Any) -> None:
    """ValueError unless it is a list of content blocks, as the Messages API has them."""
    if not isinstance(content, list):
        raise ValueError("content is not a list")
    for block in content:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise ValueError("a content block without a type")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise ValueError("a text block without text")
