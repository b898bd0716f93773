"""Trying a hand type beside the daemon of the machine: its units are that one's to give out."""

from pathlib import Path

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.contract import HandType, having_units
from hands.files import HandFiles
from hands.local.asking import answers, ask


def check(state: Path, name: str, kind: HandType) -> None:
    """Refuse a hand of a type with units that the daemon of `state` gives to hands of its own.

    Two that choose for themselves would give one phone to two, and reset it under a session.
    UNAVAILABLE; also when that daemon does not say which units it has.
    """
    if having_units(kind) is not None:
        not_given_out(state, name)


def not_given_out(state: Path, name: str) -> None:
    """The same, of a type of which only its name is known."""
    folder = HandFiles(state).folder
    try:
        if not answers(folder):
            return
        told = ask(folder, "/units")
    except CarpalError as error:
        raise _refused(name, f"which units it has is not known: {error.message}") from error
    if any(row["type"] == name for row in (*told["units"], *told["unknown"])):
        raise _refused(name, "it would be reset under the session that has it")


def _refused(name: str, why: str) -> CarpalError:
    return refuse(
        Reason.UNAVAILABLE,
        f"the daemon of this machine gives units of type {name!r} to hands: {why}",
        action="end that daemon first (`carpal hand drain --wait`, then its service or Ctrl-C; of "
        "`carpal dev`, Ctrl-C), or try the type on another machine",
    )
