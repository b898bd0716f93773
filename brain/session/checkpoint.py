"""A transcript as JSON and back: what a driver wakes from without reading all of the log. Pure.

It stands in the event that says a window was cut, and is the fold of the log
up to the cut. Whoever wakes from it and follows the log from there has what a
fold from the start has. It is a convenience, never the truth: one that was
redacted, that other code wrote, that is damaged, or that no brain of this
service appended, is passed over, and the log is folded from its start.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from brain.budget import Budget
from brain.permissions import Decision
from brain.session.consents import Consent
from brain.session.entries import KNOWN_TYPES, Call, Entry, Hand, ModelRequest, Save, Window
from brain.session.eviction import evict
from brain.session.model_standing import Failure, Standing
from brain.session.transcript import Transcript
from brain.text import canonical
from carpal.sources import is_of_role

Json = dict[str, Any]

FORMAT = 1
"""Raised when the same fields come to mean something else; new fields are noticed by themselves."""
MAX_BYTES = 640 * 1024
"""Of a checkpoint: its event, of 1 MiB at most, has a text too."""
KINDS: tuple[type[Any], ...] = (
    *(Budget, Call, Consent, Decision, Entry, Failure, Hand, ModelRequest, Save, Standing, Window),
)
"""What a transcript is made of beside JSON: dataclasses, whose names differ."""
_BY_NAME = {kind.__name__: kind for kind in KINDS}


def shape() -> str:
    """Names what a checkpoint of this code looks like: another shape is not read."""
    # Who knows fewer types must not miss that an event of another, in there, must be understood.
    said: list[Any] = [FORMAT, sorted(vars(Transcript())), sorted(KNOWN_TYPES)]
    said += [[kind.__name__, [(f.name, str(f.type)) for f in fields(kind)]] for kind in KINDS]
    return f"{FORMAT}/{hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]}"


def checkpoint(transcript: Transcript) -> Json | None:
    """The fold up to the transcript's head, which is a cut; None when it is too large.

    The transcript forgets what the cut took. TypeError when it holds what is no JSON and of no
    kind that is known here.
    """
    evict(transcript, transcript.head)
    state: Json = {
        "version": shape(),
        "through": transcript.head,
        "inherited": transcript.inherited,
        "fold": _Encoder().encode(vars(transcript)),
    }
    body = canonical(state)
    if len(body) > MAX_BYTES:
        return None
    return state | {"sha256": hashlib.sha256(body).hexdigest()}


def restored(state: Any, inherited: int) -> Transcript:
    """The transcript that a checkpoint holds; ValueError when it cannot be gone by.

    `inherited`: up to where the log is another session's. A fork may wake from what the other
    session's driver left before they parted.
    """
    if not isinstance(state, dict) or state.get("version") != shape():
        raise ValueError("the checkpoint is none that this code wrote")
    body = {key: value for key, value in state.items() if key != "sha256"}
    if state.get("sha256") != hashlib.sha256(canonical(body)).hexdigest():
        raise ValueError("the checkpoint is damaged")
    theirs, through = state["inherited"], state["through"]
    if theirs != inherited and not theirs <= through <= inherited:
        raise ValueError("the checkpoint is of another session's fold")
    transcript = Transcript(inherited)
    vars(transcript).update(_Decoder().decode(state["fold"]) | {"inherited": inherited})
    if through == inherited != theirs:
        transcript.leave_behind()
    return transcript


def usable(entry: Entry, inherited: int, imported_to: int = 0) -> Transcript | None:
    """The transcript that an event of a cut holds; None when it has none to go by.

    Of an imported event nobody here knows who appended it.
    """
    by_brain = is_of_role(entry.source, "brain")
    if entry.redacted or not by_brain or entry.position <= imported_to:
        return None
    state = entry.data.get("state")
    if not isinstance(state, dict) or state.get("through") != entry.data.get("through"):
        return None
    try:
        return restored(state, inherited)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


class _Encoder:
    """Objects to JSON; one that stands in two places is one again when it is read."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def encode(self, value: Any) -> Any:
        """The JSON of a value. TypeError for what is no JSON and of no kind."""
        if value is None or isinstance(value, str | int | float | bool):
            return value
        if isinstance(value, list):
            return [self.encode(each) for each in value]
        if isinstance(value, tuple):
            return {"@tuple": [self.encode(each) for each in value]}
        if isinstance(value, set | frozenset):
            return {"@set": sorted(self.encode(each) for each in value)}
        if isinstance(value, dict):
            if all(isinstance(key, str) and not key.startswith("@") for key in value):
                return {key: self.encode(each) for key, each in value.items()}
            return {"@dict": [[self.encode(k), self.encode(v)] for k, v in value.items()]}
        if is_dataclass(value) and type(value) in KINDS:
            if (number := self._seen.get(id(value))) is not None:
                return {"@same": number}
            self._seen[id(value)] = len(self._seen)
            said = {field.name: self.encode(getattr(value, field.name)) for field in fields(value)}
            return {f"@{type(value).__name__}": said}
        raise TypeError(f"a {type(value).__name__} is nothing that a checkpoint can hold")


class _Decoder:
    """The way back."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def decode(self, value: Any) -> Any:
        """The value of its JSON."""
        if isinstance(value, list):
            return [self.decode(each) for each in value]
        if not isinstance(value, dict):
            return value
        tag, inner = next(iter(value.items())) if value else ("", None)
        return self._tagged(tag, inner) if tag.startswith("@") else self._plain(value)

    def _plain(self, value: Json) -> Json:
        return {key: self.decode(each) for key, each in value.items()}

    def _tagged(self, tag: str, inner: Any) -> Any:
        plain: dict[str, Callable[[], Any]] = {
            "@tuple": lambda: tuple(self.decode(each) for each in inner),
            "@set": lambda: {self.decode(each) for each in inner},
            "@dict": lambda: {self.decode(k): self.decode(v) for k, v in inner},
            "@same": lambda: self._made[inner],
        }
        if tag in plain:
            return plain[tag]()
        kind = _BY_NAME[tag[1:]]
        number = len(self._made)
        self._made.append(None)
        # Fields are read in the order in which they were written: what is the same is counted so.
        said = {field.name: self.decode(inner[field.name]) for field in fields(kind)}
        self._made[number] = kind(**said)
        return self._made[number]
