"""The daemon's inner contract with a hand type: what it asks of one, and promises it.

A hand type makes hands: environments that run tools. Types that come with the daemon are written
against this, and so is what carries everyone else's: who writes a type reads `hands/api.py`. The
daemon does the rest: claiming, journaling, replaying, fencing, ordering calls, and the link. It
promises that a call_id is executed at most once, that calls of one hand come one at a time, and
that inputs fit the schema described.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

LISTS_TOOLS = "lists_tools"
"""Capability of a type each of whose hands has tools of its own, which `provision` tells."""


class Outcome(StrEnum):
    """How a call ended; what each means is in `hand.proto`."""

    OK = "ok"
    ERROR = "error"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    LOST = "lost"


class HandLost(Exception):
    """The hand is gone; says why. What ran in it may have partly happened."""


class MountFailed(Exception):
    """A mount could not be put into the workspace, or the workspace not be saved; says why."""


class ProvisionFailed(Exception):
    """The environment did not start; says why, in words for the agent's owner."""

    def __init__(self, message: str, action: str = "") -> None:
        """`action` says what to do; without it, to read on in the daemon's log."""
        super().__init__(message)
        self.action = action


class NotBegun(ProvisionFailed):
    """The same, where nothing of the environment was begun: there is nothing to end."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of a hand type."""

    name: str
    description: str
    input_schema: Mapping[str, Any]
    """JSON Schema; held to as far as `hands/inside/schema.py` knows its words.

    A field of the format `blob` is the SHA-256, in hex, of what the session's log has attached; a
    type that takes mounts finds it in the workspace, as `blobs/SHA256`, before the call begins.
    """


@dataclass(frozen=True, slots=True)
class Description:
    """What a hand type is."""

    type: str
    description: str
    tools: Sequence[Tool]
    """Of a type that `LISTS_TOOLS` none: its hands have their own."""
    config_schema: Mapping[str, Any]
    """JSON Schema of `Order.config`."""
    capabilities: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Health:
    """Whether a type can provision now. Neither ready nor broken means starting."""

    ready: bool
    broken: bool = False
    reason: str = ""
    """What to do about it when it is not ready."""
    not_enforceable: Sequence[str] = ()
    """What this machine cannot enforce for the type."""


@dataclass(frozen=True, slots=True)
class Order:
    """A hand to provision."""

    hand_id: str
    folder: Path
    """The hand's own, made for it with mode 0700; removed after `release`."""
    config: Mapping[str, Any]
    limits: Mapping[str, float]
    """Limits asked for: memory_bytes, disk_bytes, processes, cpus. Refuse what you cannot keep."""
    orphan_deadline: float
    """Seconds without `contact` after which the hand ends itself and all it started."""
    unit: str = ""
    """Of a type that `HasUnits`: the one that is this hand's alone, and was just reset."""


@dataclass(frozen=True, slots=True)
class Call:
    """One execution of a tool."""

    call_id: str
    tool: str
    input: Mapping[str, Any]
    time_limit: float = 0.0
    """Seconds; 0 means the tool's own default."""
    ceiling: float = 0.0
    """Seconds that the machine's owner lets it take, whatever its tool would; 0 for any."""

    def within(self, own: float) -> float:
        """Seconds it may take, of a tool that by itself would take at most `own`."""
        seconds = self.time_limit or own
        return min(seconds, self.ceiling) if self.ceiling else seconds


@dataclass(frozen=True, slots=True)
class Started:
    """The call runs, as this process where there is one; `start_time` in ticks since boot."""

    pid: int
    start_time: int


@dataclass(frozen=True, slots=True)
class Output:
    """Output as it comes, all of it; the daemon keeps what it has room for and counts the rest."""

    offset: int
    """Bytes of output before `data`, also those that the hand itself left out."""
    data: bytes


@dataclass(frozen=True, slots=True)
class Spooled:
    """There is output up to `end`: the hand put it into the call's spool itself, or left it out.

    For hands whose supervisor writes `spool/CALL_ID` in the hand's folder, by
    `hands/inside/spool.py`, so that output outlives the daemon.
    """

    end: int


class Change(StrEnum):
    """What happened to a file."""

    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a call did to one file of the workspace."""

    path: str
    """From the workspace on."""
    kind: Change
    size: int = 0
    """Bytes; of a removed file none."""
    digest: bytes = b""
    """SHA-256 of its content; empty when it was too large to read, or removed."""
    kept: bool = False
    """The content is in the hand's folder, as `kept/DIGEST`, for the daemon to take."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A picture or a file that leaves the hand with a result, whose text stands in its place.

    Its bytes are in the hand's folder, as `kept/DIGEST`, for the daemon to take.
    """

    digest: bytes
    """SHA-256."""
    size: int
    media_type: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """How a call ended. `content` is the string the tool returns, never empty."""

    outcome: Outcome
    content: str
    exit_code: int | None = None
    output_bytes: int = 0
    omitted_bytes: int = 0
    background: int = 0
    """Processes still running in the hand."""
    started: float = 0.0
    """Unix time."""
    elapsed: float = 0.0
    """Seconds, on a monotonic clock."""
    files: Sequence[FileChange] = ()
    """What the call did to the workspace, where the hand follows that."""
    files_omitted: int = 0
    """Changes beyond those in `files`."""
    attachments: Sequence[Attachment] = ()
    """At most 20; those whose bytes cannot be taken are left out, and the text says so."""
    files_unknown: bool = False
    """The workspace is too large to follow: `files` says nothing."""
    out_of_memory: bool = False
    """The kernel killed in the hand meanwhile, at its memory limit."""


Step = Started | Output | Spooled | Result
"""What a running call gives: any number of outputs, and last its one result."""


class Hand(Protocol):
    """One provisioned environment."""

    @property
    def held(self) -> frozenset[str]:
        """Calls it holds that are not acknowledged, right after `adopt`."""

    @property
    def quiet(self) -> float:
        """Seconds since the last `contact`, right after `adopt`; 0 when it does not know."""

    def execute(self, call: Call) -> AsyncIterator[Step]:
        """Run a call whose id was never given before. Raises HandLost."""

    def attach(self, call_id: str) -> AsyncIterator[Step]:
        """All a held call gave and gives, from its first output on. Raises HandLost."""

    async def cancel(self, call_id: str, grace: float) -> None:
        """Stop a call: TERM to its whole tree, KILL after `grace` seconds. Its result says so."""

    async def acknowledge(self, call_id: str) -> None:
        """The result is in the daemon's journal: forget it."""

    async def contact(self) -> None:
        """A brain with a live lease was heard: the orphan deadline starts over."""

    async def wait_lost(self) -> str:
        """Returns once the hand died by itself, or answers no more, with the reason."""

    async def release(self) -> None:
        """End it and all it started. Leaves nothing but the folder; again is no error."""

    async def detach(self) -> None:
        """The daemon ends; the hand and its calls go on and wait to be adopted."""


@dataclass(frozen=True, slots=True)
class Placing:
    """Something to put into a hand's workspace."""

    kind: Literal["file", "tar", "git"]
    path: str
    """From the workspace on, without `.` or `..`; `.` alone is the workspace, for a tar."""
    url: str = ""
    """Of a git repository, which the hand itself clones."""
    ref: str = ""
    """A branch, tag or commit of it; empty for its own default."""


@runtime_checkable
class Mountable(Protocol):
    """What a hand can besides, whose type has the capability `mounts`."""

    async def place(self, placing: Placing, data: AsyncIterator[bytes]) -> str:
        """Put it there, as the hand's own user, and never outside of the workspace.

        `data` is the file, or the archive: nothing of a git repository. Says in a few words what
        was placed. It is asked before the first call. Raises MountFailed, HandLost, and whatever
        `data` does.
        """


@dataclass(frozen=True, slots=True)
class Event:
    """Something a hand says unasked."""

    event_id: str
    """The hand's own: one that it says again is the same event."""
    kind: str
    """What it is about: 1 to 64 of a-z, 0-9, `.`, `_` and `-`."""
    data: Mapping[str, Any]
    """JSON, at most 16 KiB of it."""


@runtime_checkable
class Speaking(Protocol):
    """What a hand can besides, whose type has the capability `events`."""

    def events(self) -> AsyncIterator[Event]:
        """What it says, from after the last that was `heard`; ends when no more can come.

        Asked once for each `Hand`. What was not heard when the daemon died comes again.
        """

    async def heard(self, event_id: str) -> None:
        """It is in the daemon's journal, or passed over for good: forget it."""


@runtime_checkable
class Savable(Protocol):
    """What a hand can besides, whose type has the capability `save`."""

    async def save(self, take: Callable[[bytes], Awaitable[None]]) -> str:
        """Give the workspace as a tar that `place` takes, piece by piece, after the calls before.

        Says in a few words what it holds. Raises MountFailed, HandLost, and whatever `take` does.
        """


@dataclass(frozen=True, slots=True)
class Entrance:
    """A person's way into a hand."""

    tunnel_id: str
    kind: Literal["shell", "copy", "forward", "view", "control"]
    options: Mapping[str, Any]
    """What `hands/people/tunnel_options.py` makes of what the person asked for."""


@dataclass(frozen=True, slots=True)
class Bytes:
    """What came out of a tunnel. Of nothing: no more comes, though more may be given."""

    data: bytes
    error: bool = False
    """A shell without a terminal says it as an error."""


@dataclass(frozen=True, slots=True)
class Left:
    """How a tunnel ended: the last that comes out of it."""

    exit_code: int | None = None
    problem: str = ""
    """Why, when that was not its own end."""
    said: str = ""
    theirs: bool = True
    """It is the hand's own word, which may hold what was typed or seen: for the person alone."""


class Inside(Protocol):
    """The hand's end of a tunnel. Who waits in `give` delays nobody but the person."""

    async def give(self, data: bytes) -> None:
        """What the person sends. Waits while the hand takes no more."""

    async def resize(self, rows: int, columns: int) -> None:
        """Their terminal has another size."""

    async def end(self) -> None:
        """They send no more."""

    async def take(self, most: int) -> Bytes | Left:
        """What came, at most so many bytes: all there is at once. After `Left` nothing does."""


@runtime_checkable
class Enterable(Protocol):
    """What a hand can besides, whose type has the capability `tunnel`."""

    def enter(self, entrance: Entrance) -> AbstractAsyncContextManager[Inside]:
        """Let a person in, beside its calls; raises HandLost and EnterFailed.

        At the end of the block nothing is left of what the person started.
        """


class EnterFailed(Exception):
    """A person could not be let in; says why, in the hand's own words maybe."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A hand, and what the daemon keeps about it."""

    hand: Hand
    state: Mapping[str, Any]
    """JSON that `adopt` and `reap` need after a restart of the daemon."""
    note: str
    """What the model should know about the place, such as its workspace path."""
    not_enforced: Sequence[str] = field(default=())
    """What one may expect and this hand does not keep."""
    tools: Sequence[Tool] = field(default=())
    """Of a type that `LISTS_TOOLS` all that the hand has, for its life; of another none."""


class HandType(Protocol):
    """A kind of environment."""

    def describe(self) -> Description:
        """What it is; the same for the life of the daemon."""

    async def probe(self) -> Health:
        """Whether it can provision now."""

    async def provision(self, order: Order, progress: Callable[[str], None]) -> Provisioned:
        """Make a hand, ready to execute.

        Raises ProvisionFailed, leaving nothing but the folder; a CarpalError
        with LIMIT_NOT_ENFORCEABLE for a limit it cannot enforce, or with
        INVALID_FIELD for a config it does not take.
        """

    async def adopt(self, hand_id: str, folder: Path, state: Mapping[str, Any]) -> Hand:
        """The hand again, after the daemon restarted on the same boot. Raises HandLost."""

    async def reap(self, hand_id: str, folder: Path) -> int:
        """Kill whatever is left of a hand nobody holds; says how many processes that were.

        Its folder, and what is mounted there, stay until the hand is released. Raise what you
        like when something resists: it is asked again at the release.
        """

    async def left(self, hand_id: str, folder: Path) -> Mapping[str, Result]:
        """Results, by call, that a hand had when it ended, and nobody took; asked before `reap`.

        A type whose hands write down nothing gives none.
        """


@dataclass(frozen=True, slots=True)
class Unit:
    """A thing that is not cattle: a phone, a bench. One hand has it at a time."""

    unit_id: str
    """The same for the thing's life: 1 to 128 of letters, digits, `_` and `-`."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """What a config's `unit` may ask for."""


@runtime_checkable
class HasUnits(HandType, Protocol):
    """What a type can besides, that has the capability `units`: each hand has one of its units.

    `Order.unit` says which. A config's `unit`, an object of labels, is the daemon's: the type does
    not see it.
    """

    def units(self) -> Sequence[Unit]:
        """Those there are now; asked often, so it waits for nothing. Raises UnitsUnknown."""

    async def reset(self, unit_id: str) -> None:
        """Bring it to the state in which each hand finds it; again is no error.

        Asked before a hand is made, and after it ended: then nothing of it runs any more. Raise
        what you like, with the reason, when it cannot be: like one that takes longer than a
        minute, it is given to no hand until the machine's owner clears it.
        """


class UnitsUnknown(Exception):
    """Which units there are cannot be said now; says why. Who has one keeps it meanwhile."""


def having_units(kind: HandType | None) -> HasUnits | None:
    """The type as one with units, if it is one."""
    if isinstance(kind, HasUnits) and "units" in kind.describe().capabilities:
        return kind
    return None


@runtime_checkable
class Preparing(Protocol):
    """A type that finds out about its machine before it is described."""

    async def prepare(self) -> None:
        """Once, at the daemon's start; raises nothing, and takes seconds at most."""


@runtime_checkable
class Closing(Protocol):
    """A type that holds something open."""

    async def close(self) -> None:
        """Once, at the daemon's end, when its hands are detached; raises nothing."""
