"""Telling a daemon that comes back from a second machine with its identity. Pure.

One daemon opens a link anew whenever it likes, also before its old one has
ended, and takes the old one's place. A machine that was copied with its key
looks the same but for two things. It runs another instance of the daemon; or,
if a running machine was copied, the same one, which then does not know of the
links that the other copy had since. Neither proves anything as long as the
first is silent: it may have been restarted, or replaced. If the first still
answers, there are two.
"""

from dataclasses import dataclass
from enum import Enum, auto


@dataclass(frozen=True, slots=True)
class Machine:
    """What a daemon's hello says of where it runs."""

    instance: str
    """New at each start of the daemon."""
    boot: str
    """New at each start of the machine."""
    journal: str
    """The daemon's journal. A copied file is another, the copied disk of a machine is not."""
    epoch: int
    """Of its link; of one that says hello, of the last link it obeyed."""


class Verdict(Enum):
    """What to do with one that says hello."""

    ADMIT = auto()
    """It is the daemon, or takes its place; a link there is of the past."""
    ASK = auto()
    """Ask the first whether it still answers, and judge again."""
    CLONE = auto()
    """Both live: it is a second machine."""


def judge(first: Machine | None, new: Machine, answers: bool | None = None) -> Verdict:
    """What `new` is to the daemon linked now, `first`; `answers` says whether that still does.

    A half-open link of the same daemon is never asked: its place is taken at once.
    """
    if first is None or (new.instance == first.instance and new.epoch >= first.epoch):
        return Verdict.ADMIT
    if answers is None:
        return Verdict.ASK
    return Verdict.CLONE if answers else Verdict.ADMIT


def describe(first: Machine, new: Machine) -> str:
    """How the second shows that it is one, in words."""
    if new.instance == first.instance:
        return "a copy of the running machine"
    if new.boot == first.boot:
        return "a copied state folder on the same machine"
    if new.journal == first.journal:
        return "a copied machine"
    return "another machine, or a copy, with a journal of its own"


def is_same(pinned: Machine, new: Machine) -> bool:
    """Whether one that says hello is the machine that was first, when a clone of it was seen.

    Its daemon may be restarted; after a restart of the machine nobody can tell it from a copy.
    """
    return (new.boot, new.journal) == (pinned.boot, pinned.journal) and new.epoch >= pinned.epoch
