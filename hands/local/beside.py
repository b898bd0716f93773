"""Trying a hand type beside the daemons of the machine: its units are theirs to give out."""

from collections.abc import Iterator
from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.builtin.socket import SocketType
from hands.contract import HandType, having_units
from hands.files import HandFiles
from hands.local import notes
from hands.local.asking import answers, ask


def check(state: Path, name: str, kind: HandType) -> None:
    """Refuse a hand of a type with units that a daemon here gives to hands of its own.

    Two that choose for themselves would give one phone to two, and reset it under a session. Asked
    are the daemon of `state`, and those that this user runs, wherever their state is. UNAVAILABLE;
    also when one does not say which units it has.
    """
    if having_units(kind) is not None:
        not_given_out(state, name, kind.socket if isinstance(kind, SocketType) else None)


def not_given_out(state: Path, name: str, socket: Path | None = None) -> None:
    """The same, of a type of which its name is known, and for one behind a socket where that is."""
    for each, names in _daemons(state, name, socket):
        try:
            folder = HandFiles(each).folder
            if not answers(folder):
                continue
            told = ask(folder, "/units")
        except CarpalError as error:
            raise _refused(each, name, f"which it has is not known: {error.message}") from error
        if any(row["type"] in names for row in (*told["units"], *told["unknown"])):
            raise _refused(each, name, "a session may have the one that this would reset")


def _daemons(state: Path, name: str, socket: Path | None) -> Iterator[tuple[Path, set[str]]]:
    """The state folder of each, and by which names it may have the type."""
    noted = {each.state.resolve(): each.sockets for each in notes.daemons()}
    for folder in dict.fromkeys((state.resolve(), *noted)):
        there = noted.get(folder, {})
        same = (other for other, at in there.items() if socket and at.resolve() == socket.resolve())
        yield folder, {name, *same}


def _refused(state: Path, name: str, why: str) -> CarpalError:
    return refuse(
        Reason.UNAVAILABLE,
        f"the daemon of {state} gives units of type {name!r} to hands: {why}",
        action="end that daemon first (`carpal hand drain --wait` with its --state-dir, then its "
        "service or Ctrl-C; of `carpal dev`, Ctrl-C), or try the type on another machine",
    )
