"""Effects: what a harness may ask for, and what it gets back. Pure.

A harness is a generator: it yields an effect and is sent that effect's
result. It keeps nothing of its own: whatever it needs to decide is in the
transcript it was given, which grows as effects are performed. So a brain can
be killed between any two effects, and the next one simply starts the
generator again over the same log.

    def loop(transcript: Transcript) -> Harness:
        reply = yield CallModel(...)
        yield Finish("end_turn")

The runner appends the intent of an effect before, and its outcome after.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from brain.transcript import Transcript

Json = dict[str, Any]


@dataclass(frozen=True)
class CallModel:
    """Call the model once. Result: `Replied` or `Failed`."""

    model: str
    system: str
    messages: list[Json]
    tools: list[Json]
    max_tokens: int
    policy: str
    """Name and version of the context policy that chose the messages."""
    through: int
    """Position of the last event the messages were made from."""

    def parameters(self) -> Json:
        """The Messages API's parameters: exactly what is sent, and hashed."""
        parameters: Json = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "messages": self.messages,
        }
        if self.system:
            parameters["system"] = self.system
        if self.tools:
            parameters["tools"] = self.tools
        return parameters


@dataclass(frozen=True)
class Replied:
    """The model replied, and the reply is in the log."""

    stop_reason: str


@dataclass(frozen=True)
class Failed:
    """The model did not reply; the log says why."""

    kind: str
    """An error type of the log's vocabulary, such as `model_overloaded_error`."""
    message: str
    retryable: bool
    retry_after: float | None = None
    """Seconds the service asked to wait."""


@dataclass(frozen=True)
class Execute:
    """Run tool calls that are in the log and have no result yet. Result: None.

    Hands are provisioned at their first use. Each call's outcome, whatever it
    is, becomes its `agent.tool_result`.
    """

    call_ids: tuple[str, ...]


@dataclass(frozen=True)
class Emit:
    """Append an event. Result: its position."""

    type: str
    data: Json = field(default_factory=dict)


@dataclass(frozen=True)
class Sleep:
    """Wait, or until a person interrupts. Result: None."""

    seconds: float


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do until the next wake. Never resumed."""

    stop_reason: str
    """`end_turn`, `refusal`, `retries_exhausted`, …"""
    details: Json | None = None
    through: int | None = None
    """Events up to here were considered; the transcript's head when not said."""


Effect = CallModel | Execute | Emit | Sleep | Finish
Result = Replied | Failed | int | None
Harness = Generator[Effect, Result, None]
HarnessFactory = Callable[["Transcript"], Harness]
"""What an entry point of the group `carpal.harnesses` names."""
