"""Folds of logs: a transcript, and what tells that the log up to its head is still what was folded.

Whoever drove a session keeps its fold, and reads only what came since when it drives it again.
The log decides all the same: a fold is gone on with only if the first event after it chains over
the very hash it ends with, and no event under it was redacted; else the log is folded anew.
"""

from collections import OrderedDict
from collections.abc import Iterable

from brain.session.leases import Log
from brain.session.log import Told
from brain.session.transcript import Transcript
from carpal.chain import event_hash
from carpal.v1 import types_pb2

WEIGHT_MAX = 16 * 1024 * 1024
"""Of all that are kept, as `Fold.weight` has it: some 60 MB of memory."""
CHECKPOINT = 640 * 1024
"""What a fold weighs that began with a checkpoint."""
_EVENT = 1024
"""What an event weighs beside its data."""


class Fold:
    """A transcript that follows a log."""

    def __init__(self, inherited: int = 0) -> None:
        """`inherited`: up to where the log is another session's, or imported."""
        self.transcript = Transcript(inherited)
        self.hash = b""
        """Of the newest event taken; empty when it is not known."""
        self.redacted = 0
        """Events up to the head that were redacted when they were taken, or known to be."""
        self.weight = 0
        """Bytes of data taken, and some for each event: about what it holds, or less."""
        self.ours = True
        """Nobody else's code had it in hand, which might have changed it."""

    @classmethod
    def woken(cls, transcript: Transcript) -> "Fold":
        """One that begins with a checkpoint, or with nothing."""
        fold = cls(transcript.inherited)
        fold.transcript = transcript
        fold.weight = CHECKPOINT if transcript.head else 0
        return fold

    def take(self, told: Iterable[Told], counted: int = 0) -> None:
        """Events in the log's order; up to `counted`, those redacted are counted already."""
        # All or nothing at a cancellation: nothing here waits.
        for each in told:
            self.transcript.apply(each.entry)
            self.hash = each.hash
            self.weight += each.size + _EVENT
            self.redacted += each.entry.redacted and each.entry.position > counted


def goes_on(fold: Fold, log: Log) -> bool:
    """Whether the fold is of the log up to where its events begin, as it is now."""
    if log.events is None or fold.transcript.head != log.after:
        return False
    if not log.after:
        return True
    first = next(iter(log.events), None)
    if first is None:
        same = (fold.transcript.head, fold.hash) == (log.head.position, log.head.hash)
    else:
        same = first.hash == _hash(fold.hash, first)
    new = sum(event.HasField("redaction") for event in log.events)
    return same and fold.redacted + new == log.redacted


def _hash(before: bytes, event: types_pb2.Event) -> bytes:
    return event_hash(
        before,
        id=event.id,
        position=event.position,
        time_ns=event.time.seconds * 10**9 + event.time.nanos,
        type=event.type,
        source=event.source,
        must_understand=event.must_understand,
        digest=event.data_digest,
    )


class Folds:
    """Those of sessions that went idle here: the newest, up to a weight."""

    def __init__(self, weight_max: int = WEIGHT_MAX) -> None:
        self._weight_max = weight_max
        self._kept: OrderedDict[str, Fold] = OrderedDict()
        self._weight = 0

    def keep(self, session_id: str, fold: Fold) -> None:
        """Until it is taken again; whoever gives it uses it no more."""
        self.take(session_id)
        if not fold.ours or not fold.hash or fold.weight > self._weight_max // 4:
            return
        self._kept[session_id] = fold
        self._weight += fold.weight
        while self._weight > self._weight_max:
            _, oldest = self._kept.popitem(last=False)
            self._weight -= oldest.weight

    def take(self, session_id: str) -> Fold | None:
        """What is kept of it, which is the taker's alone from now on."""
        fold = self._kept.pop(session_id, None)
        if fold is not None:
            self._weight -= fold.weight
        return fold
