"""Tunnels that a log must be told of, in the daemon's journal: when each began, and how it ended.

A brain may die before it has written that a person left. So it is kept here
until some brain says that the log has it. Nothing that a person typed is here.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from carpal.errors import refuse
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.journal import Journal

_NOTE = "tunnels"
MOST = 256
"""Kept at once: a log that cannot be told of more must not be entered."""
_BECAUSE_MAX = 300
"""Characters of why one ended."""


@dataclass
class Record:
    """One tunnel."""

    tunnel_id: str
    session_id: str
    hand_id: str
    hand: str
    operator: str
    kind: str
    took: bool
    opened: float
    """Unix time."""
    ended: float = 0.0
    """0 while it is open."""
    because: str = ""
    settled: bool = False
    """The log has its end already."""

    def info(self) -> pb.TunnelInfo:
        """As a message."""
        said = asdict(self)
        opened, ended = said.pop("opened"), said.pop("ended")
        del said["settled"]
        info = pb.TunnelInfo(**said)
        info.opened.FromNanoseconds(int(opened * 1e9))
        if ended:
            info.ended.FromNanoseconds(int(ended * 1e9))
        return info


class Records:
    """Kept in the journal, and read from it once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._rows = {each.tunnel_id: each for each in _read(journal.note(_NOTE, "[]"))}
        open_still = [each for each in self._rows.values() if not each.ended]
        for each in open_still:
            each.ended, each.because = time.time(), "the daemon ended"
        if open_still:
            self._keep()

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self._rows.values()))

    def __len__(self) -> int:
        return len(self._rows)

    def check_room(self) -> None:
        """AT_CAPACITY when too many logs were not told."""
        if len(self._rows) >= MOST:
            raise refuse(
                Reason.AT_CAPACITY,
                f"of {MOST} tunnels the logs have not been told that they ended",
                action="see why the brain reaches no sessiond",
            )

    def begin(self, record: Record) -> None:
        """One opens."""
        self._rows[record.tunnel_id] = record
        self._keep()

    def end(self, tunnel_id: str, because: str) -> None:
        """It is over."""
        record = self._rows[tunnel_id]
        record.ended, record.because = time.time(), because[:_BECAUSE_MAX]
        if record.settled:
            del self._rows[tunnel_id]
        self._keep()

    def settle(self, tunnel_ids: list[str]) -> None:
        """The logs have the ends of these; one that is open here is just being ended."""
        for each in tunnel_ids:
            if (record := self._rows.get(each)) is None:
                continue
            record.settled = True
            if record.ended:
                del self._rows[each]
        self._keep()

    def _keep(self) -> None:
        self._journal.keep_note(_NOTE, json.dumps([asdict(each) for each in self._rows.values()]))


def _read(note: str) -> list[Record]:
    return [Record(**each) for each in json.loads(note)]
