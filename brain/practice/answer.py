"""What the practice model can be told to answer: the shape of scripts. Pure."""

from typing import Annotated, Any, Literal

import msgspec

from brain.practice.blocks import ToolName

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]
Times = Positive | Literal["always"]
StopReason = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tool the turn calls. The name is played as it stands, offered or not."""

    name: ToolName
    input: dict[str, Any] = {}


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Token counts to report in place of estimates."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Count = 0
    cache_read_input_tokens: Count = 0


class Delay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How slow the answer is, in seconds."""

    first: Seconds = 0
    """Before the first byte."""
    chunk: Seconds = 0
    """Before each delta of a stream."""


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error in place of the answer."""

    status: Annotated[int, msgspec.Meta(ge=400, le=599)]
    message: str | None = None
    retry_after: Seconds | None = None
    after: Count | None = None
    """In a stream: as an `error` event after this many events, under status 200."""
    times: Times = 1
    """How many attempts at the same request meet it."""


class Cut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The connection breaks; what came before it stays without an end."""

    after: Count
    """Events of a stream that still arrive; a plain response breaks halfway."""
    clean: bool = False
    """End the stream as if it were whole, in place of breaking the connection."""
    times: Times = 1


class StopDetails(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the model refused."""

    category: (
        Literal["cyber", "bio", "frontier_llm", "reasoning_extraction", "general_harms"] | None
    ) = None
    explanation: str | None = None


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a turn says: thinking, then text, then tool calls."""

    when: str | None = None
    thinking: str | None = None
    text: str | None = None
    tools: list[ToolCall] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    stop_details: StopDetails | None = None
    usage: Usage = Usage()
    delay: Delay = Delay()
    chunk: Positive = 24
    """Characters in one delta of text, thinking or tool input."""
    error: Failure | None = None
    cut: Cut | None = None


class Script(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A list of turns, and which conversations they are for."""

    turns: Annotated[list[Answer], msgspec.Meta(min_length=1)]
    match: str | None = None
    """Played where the system prompt or the first user message holds this."""
    name: str = ""
    """The file's own, without its suffix, unless given."""
