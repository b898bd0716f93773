"""Effects: what a harness may ask for, and what it gets back. Pure.

A harness is a generator: it yields an effect and is sent that effect's
result. It keeps nothing of its own: whatever it needs to decide is in the
transcript it was given, which grows as effects are performed. So a brain can
be killed between any two effects, and the next one simply starts the
generator again over the same log.

    def loop(transcript: Transcript) -> Harness:
        reply = yield CallModel(...)
        yield Finish("end_turn")

    HARNESS = HarnessType("1", loop)

A harness that has something else to wait for, such as a process of its own,
is an async generator; it yields and is sent the same. The runner appends the
intent of an effect before, and its outcome after.
"""

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from brain.session.transcript import Transcript

Json = dict[str, Any]

Purpose = Literal["reply", "compaction", "aside"]
"""What a model call is for: the conversation's next reply; a summary for a context policy; a
question of the harness's own. Only a `reply` becomes part of the conversation."""


@dataclass(frozen=True)
class CallModel:
    """Call the model once. Result: `Replied` or `Failed`.

    When the session's budget does not allow it, the drive ends, and the harness begins again
    once a limit is raised.
    """

    request: Json
    """The Messages API's parameters: exactly what is sent, and hashed; but that a picture that left
    a hand is named by its blob, whose bytes are sent in its place."""
    policy: str
    """Name and version of what made the request: a context policy, or `given/1` of what no
    policy can make again, whose request is kept as a blob."""
    through: int
    """Position of the last event the request was made from."""
    provider: str = ""
    """Which of the brain's providers is asked; empty is the brain's own choice."""
    purpose: Purpose = "reply"
    covers: int = 0
    """Of a compaction: the position up to which the answer is to stand for the log."""
    calls_prefix: str = ""
    """What the request puts before each tool's name; it is no part of the name in the log."""


@dataclass(frozen=True)
class Replied:
    """The model replied, and the reply is in the log."""

    stop_reason: str
    blocks: list[Json] = field(default_factory=list)
    """The reply's content as the API gave it, but that a `tool_use` has its call's id."""
    usage: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Failed:
    """The model did not reply; the log says why."""

    kind: str
    """An error type of the log's vocabulary, such as `model_overloaded_error`."""
    message: str
    retryable: bool
    retry_after: float | None = None
    """Seconds the service asked to wait."""
    status: int | None = None
    """The HTTP status of the refusal, if it was one."""
    feature: str = ""
    """What of the request the provider does not have; the log says so, and it is left out."""
    media: tuple[str, ...] = ()
    """Digests of the sources of images that were refused; the log says so too."""
    layer: str = ""
    """The part that failed, where that is not the model."""
    usage: Json | None = None
    """What it cost all the same, as far as is known; None: as far as is known, nothing."""


@dataclass(frozen=True)
class Provision:
    """Have a named hand before its first call. Result: None; the transcript says what came of it.

    Nobody needs to: `Execute` provisions what its calls need.
    """

    hand: str


@dataclass(frozen=True)
class Execute:
    """Run tool calls that are in the log and have no result yet, wherever. Result: None.

    Hands are provisioned at their first use; calls of MCP servers go through
    the vault. Each call's outcome, whatever it is, becomes its
    `agent.tool_result`. Calls that a person must allow wait, the others run
    meanwhile; when those alone are left, the drive ends, and the harness
    begins again once they are decided.
    """

    call_ids: tuple[str, ...]


@dataclass(frozen=True)
class ReadEvents:
    """Read a slice of the log, also of what the transcript no longer holds. Result: the entries."""

    after: int = 0
    """Only positions above this one."""
    before: int = 0
    """Only positions below this one, if it is not 0; `after` is passed over then."""
    newest_first: bool = False
    limit: int = 100
    """How many at most, up to 1,000; there may be fewer when they are large."""
    types: tuple[str, ...] = ()
    """Only events of these types; all when empty."""


@dataclass(frozen=True)
class Emit:
    """Append an event. Result: its position.

    Of a type of the harness's own, `context.*`, `session.error`, or a cut of the window.
    """

    type: str
    data: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Sleep:
    """Wait, a day at most. Result: None.

    It ends early when a person interrupts or says something, or the agent is changed; what came
    while the model was asked last ends it at once, but no second wait.
    """

    seconds: float


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do until the next wake. Never resumed."""

    stop_reason: str
    """`end_turn`, `refusal`, `retries_exhausted`, …"""
    details: Json | None = None
    through: int | None = None
    """Events up to here were considered; the transcript's head when not said."""
    settled: bool = True
    """What was considered is over. Not of a turn that goes on: once a person decided, say."""
    reason_more: Mapping[str, Any] = field(default_factory=dict)
    """What else the stop reason says, such as `event_ids` of `requires_action`."""


Effect = CallModel | Provision | Execute | ReadEvents | Emit | Sleep | Finish
Harness = Generator[Effect, Any, None]
AsyncHarness = AsyncGenerator[Effect, Any]


@dataclass(frozen=True)
class HarnessType:
    """What an entry point of the group `carpal.harnesses` names."""

    version: str
    """Says which code decided; a new version goes on where an older one left off."""
    start: "Callable[[Transcript], Harness | AsyncHarness]"
    """Begin, or go on, over a session's transcript."""
    wait_limit: float = 900.0
    """Seconds that an async one may wait for something of its own without asking for anything;
    after that its drive has failed."""
