"""A harness run over a recorded log, with the model's recorded answers: the first difference. Pure.

Nothing is asked and nothing runs: what the world did (people, hands, the model) is
read from the log, and what the harness decides is held against what is there. So one
sees what another version of a harness, or of a context policy, would have done.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from brain.context.request import digest
from brain.effect_check import as_appended
from brain.effects import (
    CallModel,
    Effect,
    Emit,
    Execute,
    Failed,
    Finish,
    Harness,
    HarnessType,
    Provision,
    ReadEvents,
    Replied,
    Sleep,
)
from brain.fault import checked, raised
from brain.recorded.recording import START, Recording
from brain.session.entries import COMPACTED, Entry
from brain.session.transcript import Transcript
from carpal.errors import refuse
from carpal.status import Reason

Json = dict[str, Any]
IDLE = "session.status_idle"
ERROR = "session.error"
RUNNING = "session.status_running"
_DECIDED = (START, IDLE, ERROR)
"""Events that say what a harness decided, and of which head (`through`)."""
_OF_A_CUT = ("policy", "kind", "through", "text")
"""What a harness says of a cut of the window that does not hang on when exactly it came to it."""
_STEPS_MAX = 1_000_000


@dataclass(frozen=True)
class Difference:
    """Where the harness parted from the log."""

    position: int
    """Of the recorded event that it does not agree with; one beyond the head when there is none."""
    recorded: str
    now: str


@dataclass(frozen=True)
class Replayed:
    """What came of it."""

    decisions: int
    """Decisions that are as they were recorded."""
    difference: Difference | None


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(difference)
        self.difference = difference


class Replay:
    """One harness over one recording."""

    def __init__(self, recording: Recording, kind: HarnessType, name: str) -> None:
        """`name`: of the harness, for what is said of it."""
        self._name = name
        self._entries = recording.entries
        self._ends = {asked.start.id: asked.end for asked in recording.asked() if asked.end}
        self._kind = kind
        self._transcript = Transcript(recording.inherited)
        self._next = 0
        """Index of the first entry that the transcript has not seen."""
        self._since: list[Entry] = []
        """Entries that came since the harness decided last."""
        self._decisions = 0

    def run(self) -> Replayed:
        """To the log's end, or to the first difference.

        CONFIG_INVALID for an async harness, HARNESS_FAILED for one that is at fault.
        """
        parted_at = None
        while self._decision() is not None:
            try:
                self._drive()
            except _Differs as parted:
                # A brain may have died here, and the next one begun anew: so does the harness.
                if parted_at == (self._next, self._decisions):
                    return Replayed(self._decisions, parted.difference)
                parted_at = (self._next, self._decisions)
        return Replayed(self._decisions, None)

    def _drive(self) -> None:
        """One drive: a fresh harness up to its end, or to where the log has no more decisions."""
        self._feed(self._head_of_decision())
        try:
            harness = self._kind.start(self._transcript)
        except BaseException as error:
            raise raised(self._name, error) from error
        if not isinstance(harness, Generator):
            raise refuse(
                Reason.CONFIG_INVALID,
                f"the harness {self._name!r} is an async one and cannot be replayed: it waits for "
                "things outside the log, such as a process of its own",
                action="see what it asked with `carpal session request ID --n N`, or replay with a "
                "harness that is no async one, by `--harness`",
            )
        result: object = None
        for _ in range(_STEPS_MAX):
            if self._decision() is None:
                return
            self._feed(self._head_of_decision())
            effect = self._step(harness, result)
            if isinstance(effect, CallModel):
                answered = self._model_call(effect)
                if answered is None:
                    return  # its brain died; the next one began anew
                result = answered
            elif isinstance(effect, Finish):
                self._finish(effect)
                return
            else:
                result = self._other(effect)

    def _step(self, harness: Harness, result: object) -> Effect:
        try:
            effect = harness.send(result)
        except BaseException as error:
            raise raised(self._name, error) from error
        if isinstance(effect, Emit):
            return effect  # it is held against the log, which may have its cut already
        return checked(self._name, effect, self._transcript)

    def _other(self, effect: Effect) -> object:
        match effect:
            case Execute():
                waiting = set(effect.call_ids)
                while waiting & {call.call_id for call in self._transcript.open_calls()}:
                    if not self._one_more():
                        return None
                return None
            case ReadEvents():
                return self._slice(effect)
            case Emit():
                return self._emitted(effect)
            case Sleep() | Provision():
                return None
        raise RuntimeError(f"an effect that is none: {effect!r}")

    def _model_call(self, effect: CallModel) -> Replied | Failed | None:
        start = self._expect(START, effect)
        recorded, now = start.data, digest(effect.request)
        if recorded.get("purpose", "reply") != effect.purpose:
            raise self._differs(start, _said(start), f"a model call for a {effect.purpose}")
        if recorded.get("request_sha256") != now:
            sent = f"a request with SHA-256 {recorded.get('request_sha256')}"
            raise self._differs(start, sent, f"one with {now}, by policy {effect.policy}")
        self._decisions += 1
        end = self._ends.get(start.id)
        if end is None:
            self._feed(start.position)
            return None
        self._feed(end.position)
        self._since.clear()
        return _answer(self._transcript, start.id, end)

    def _finish(self, effect: Finish) -> None:
        idle = self._expect(IDLE, effect)
        reason = idle.data.get("stop_reason")
        recorded = reason.get("type") if isinstance(reason, dict) else None
        if recorded != effect.stop_reason:
            raise self._differs(idle, f"idle for {recorded}", f"idle for {effect.stop_reason}")
        self._decisions += 1
        self._feed(idle.position)
        self._since.clear()

    def _emitted(self, effect: Emit) -> int:
        """The position of the recorded event that says the same; it may have been fed by now."""
        upto, data = self._decision(), as_appended(effect)
        if upto is not None and effect.type == upto.type == COMPACTED:
            if any(upto.data.get(key) != data.get(key) for key in _OF_A_CUT):
                raise self._differs(upto, _said(upto), "another cut of it")
            data = upto.data
        if upto is not None and (upto.type, upto.data) == (effect.type, data):
            self._decisions += 1
            self._feed(upto.position)
            self._since.clear()
            return upto.position
        for index, entry in enumerate(self._since):
            if (entry.type, entry.data) == (effect.type, data):
                del self._since[: index + 1]
                self._decisions += 1
                return entry.position
        position = upto.position if upto else len(self._entries) + 1
        recorded = _said(upto) if upto else "the log ends"
        raise _Differs(Difference(position, recorded, f"an event {effect.type}"))

    def _slice(self, effect: ReadEvents) -> list[Entry]:
        seen = self._entries[: self._next]
        below = effect.before or len(seen) + 1
        above = 0 if effect.before else effect.after
        found = [
            e
            for e in seen
            if above < e.position < below and (not effect.types or e.type in effect.types)
        ]
        if effect.newest_first:
            found.reverse()
        return found[: effect.limit]

    def _expect(self, kind: str, effect: Effect) -> Entry:
        """The next recorded decision, which must be of a kind."""
        entry = self._decision()
        if entry is None or entry.type != kind:
            position = entry.position if entry else len(self._entries) + 1
            recorded = _said(entry) if entry else "the log ends"
            raise _Differs(Difference(position, recorded, _wanted(effect)))
        return entry

    def _decision(self) -> Entry | None:
        """The next recorded decision of a harness; None when there is none any more."""
        rest = (self._entries[n] for n in range(self._next, len(self._entries)))
        return next(filter(_is_decision, rest), None)

    def _head_of_decision(self) -> int:
        """The head that the next recorded decision was made of."""
        entry = self._decision()
        if entry is not None and entry.type == COMPACTED:
            return self._head_of_cut(entry)
        through = entry.data["through"] if entry else len(self._entries)
        return through if isinstance(through, int) else 0

    def _head_of_cut(self, cut: Entry) -> int:
        """The same of a cut, whose `through` says what it stands for and not what was seen.

        That a turn begins may be in one group with it, and is then nothing that it was made of.
        """
        upto = cut.position - 1
        while upto and self._entries[upto - 1].type == RUNNING:
            upto -= 1
        through = cut.data.get("through")
        return max(upto, through) if isinstance(through, int) else upto

    def _feed(self, upto: int) -> None:
        while self._next < min(upto, len(self._entries)):
            self._one_more()

    def _one_more(self) -> bool:
        if self._next >= len(self._entries):
            return False
        entry = self._entries[self._next]
        self._next += 1
        self._transcript.apply(entry)
        self._since.append(entry)
        return True

    @staticmethod
    def _differs(entry: Entry, recorded: str, now: str) -> _Differs:
        return _Differs(Difference(entry.position, recorded, now))


def _is_decision(entry: Entry) -> bool:
    return entry.type == COMPACTED or (entry.type in _DECIDED and "through" in entry.data)


def _answer(transcript: Transcript, request_id: str, end: Entry) -> Replied | Failed:
    error = end.data.get("error")
    if end.data.get("is_error"):
        said = error if isinstance(error, dict) else {}
        after = said.get("retry_after")
        return Failed(
            str(said.get("type", "")),
            str(said.get("message", "")),
            retryable=bool(said.get("retryable")),
            retry_after=after if isinstance(after, int | float) else None,
        )
    request = transcript.requests[request_id]
    blocks: list[Json] = []
    for entry in request.blocks:
        if entry.type == "agent.tool_use":
            use = {"type": "tool_use", "id": entry.id}
            blocks.append({**use, "name": entry.data["name"], "input": entry.data["input"]})
        else:
            blocks.extend(entry.data["content"])
    if request.answer is not None:
        blocks = request.answer.get("content", [])
    return Replied(request.stop_reason, blocks, end.data.get("model_usage") or {})


def _said(entry: Entry) -> str:
    if entry.type == ERROR:
        return f"an event {ERROR}"
    if entry.type == COMPACTED:
        return "a cut of the window"
    if entry.type == IDLE:
        reason = entry.data.get("stop_reason")
        return f"idle for {reason.get('type') if isinstance(reason, dict) else reason}"
    return f"a model call for a {entry.data.get('purpose', 'reply')}"


def _wanted(effect: Effect) -> str:
    if isinstance(effect, Finish):
        return f"idle for {effect.stop_reason}"
    return f"a model call for a {effect.purpose}" if isinstance(effect, CallModel) else str(effect)
