"""All that the author of a hand type in Python reads.

A hand is anything that runs tools for an agent. A type is a class: one object of it is one hand,
in a process of its own, so what it does harms no other. Its name is that of its entry point:

    [project.entry-points."carpal.hand_types"]
    ledger = "ledger:Ledger"

`carpal hand new NAME` writes one; `carpal hand call TYPE TOOL '{…}'` runs a tool of it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hands import attachments, described, said_folder

_Method = TypeVar("_Method", bound=Callable[..., Any])

TIME_LIMIT = 120.0
"""Seconds a call may take when neither its tool nor who calls says otherwise."""


class ToolError(Exception):
    """The tool ran and failed: tells the model what was wrong, and what to do."""


class HandLost(Exception):
    """The environment is gone: the call may have partly happened."""


class Cancelled(BaseException):
    """Raised in a tool, wherever it is, that is cancelled or out of time: clean up and let it pass.

    An `async` tool gets `asyncio.CancelledError`. Who is not done two seconds later is killed, and
    the hand is lost with it.
    """


class Blob(str):
    """The hint of a parameter that is the SHA-256, in hex, of what a hand attached in this log."""

    __carpal_blob__ = True


def tool(*, time_limit: float = TIME_LIMIT) -> Callable[[_Method], _Method]:
    """Make a method a tool; `time_limit` is in seconds.

    Its name is the tool's, its docstring what the model reads, its type hints the JSON Schema of
    the input: `str`, `int`, `float`, `bool`, `Literal[…]` (one of these), `list[T]`,
    `dict[str, T]`, a `TypedDict`. What has a default is optional; `T | None = None` too.
    `Annotated[T, "text"]` says what a parameter means. A parameter of the hint `Context` is the
    call's, and no input. It is a method or an `async` one; calls of a hand come one at a time, in
    one thread. It returns a `str`: the result. Or None: then its output is the result.
    """

    def mark(method: _Method) -> _Method:
        method.__carpal_tool__ = time_limit  # type: ignore[attr-defined]
        return method

    return mark


class Unit(NamedTuple):
    """A thing that is not made anew, such as a phone: one hand has it at a time."""

    unit_id: str
    """The same for the thing's life: 1 to 128 of letters, digits, `_` and `-`."""
    labels: Mapping[str, str] = {}
    """What a hand's config may ask for, as in `unit: {os: android}`."""


class Context:
    """A call as its tool sees it; also that of `provision`. In a test: `Context(tmp_path)`."""

    __carpal_context__ = True

    def __init__(self, folder: Path, call_id: str = "test", time_limit: float = TIME_LIMIT) -> None:
        self.folder = folder
        """The hand's own, empty at first and removed with it. It is the current folder too."""
        self.call_id = call_id
        """Never changes and never comes again: what to give a system that takes each only once."""
        self.time_limit = time_limit
        """Seconds."""
        self.unit = ""
        """The id of the unit that is this hand's alone, where its type has units."""
        self.cancelled = False
        """To look at where no exception gets through, in a thread or in a library's callback."""
        self.attached: list[attachments.Attached] = []
        self.own = folder.parent
        """Where the daemon looks for what the call attached and said: not for you."""

    def say(self, text: str) -> None:
        """Give output as it comes: those who watch see it at once. `print` does the same."""
        print(text, end="", flush=True)  # noqa: T201 - standard output is what is watched

    def attach(self, data: bytes, media_type: str, name: str = "") -> None:
        """Have the result carry a picture or a file: 20 at most, of 5 MiB; else a ToolError."""
        if problem := attachments.problem(len(self.attached), data, name):
            raise ToolError(problem)
        self.attached.append(attachments.keep(self.own, data, media_type, name))

    def blob(self, digest: str) -> bytes:
        """What a `Blob` names, for a type that can `mounts`. Raises ToolError for what is not."""
        if (data := attachments.given(self.folder, digest)) is None:
            raise ToolError(f"nothing of this session's log is {digest[:80]!r}: name a SHA-256")
        return data

    def event(self, kind: str, data: Mapping[str, Any], event_id: str = "") -> None:
        """Say something unasked, at any time and in any thread: it is in the session's log once.

        `data` is JSON, at most 16 KiB; `kind` 1 to 64 of a-z, 0-9, `.`, `_`, `-`, and wakes an
        agent that wants it. An `event_id` said again is the same event. See the how-to.
        """
        said_folder.put(self.own / said_folder.FOLDER, kind, data, event_id)


class HandType:
    """Derive from it. The class's docstring says what a hand of it is.

    Besides its tools it may have these, each a method or an `async` one:

    `def provision(self, context: Context, …) -> str | None` makes the hand ready, within five
    minutes. Its further parameters are the hand's config, by type hints as a tool's. What it
    returns the model reads once. What it raises is why there is no hand.

    `def release(self) -> None` ends what ends not by itself, within three seconds, where an end
    leaves time for that; then every process of the hand is killed, and its folder removed.

    A type of things that are not made anew has two more, each a `@classmethod` in a process of its
    own. `def units(cls) -> Sequence[Unit]` names those there are, every ten seconds. `def
    reset(cls, unit_id: str) -> None` makes one as each hand finds it, within a minute, before and
    after each hand. What it raises is why no hand gets it until the machine's owner clears it.
    """

    __carpal_hand_type__ = True
    capabilities: Sequence[str] = ()
    """`shell`, `files`, `visual`: `carpal hand check` holds it to them. `save`: its folder can be
    saved. `mounts`: what a session mounts is put there, between `provision` and the first call.
    A screen for people needs none: methods `view` and `control`, see `hands/controls.py`."""

    @classmethod
    def probe(cls) -> str:
        """Why no hand can be made on this machine now, and what to do; empty when one can."""
        return ""


describe = described.described
"""What the daemon will say of such a class. Raises TypeError, which names what is wrong."""
