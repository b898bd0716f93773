"""Stopping hands from the machine itself, with a daemon that answers, that hangs, or with none.

A daemon that answers is asked. Where none runs, the hands it left are taken up and stopped here,
by its journal. Around one that hangs all that they started is killed: it learns of that itself.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

from carpal.errors import CarpalError, Unreachable, refuse
from carpal.hand_mark import mark
from carpal.status import Reason
from hands import types
from hands.contract import Closing, HandLost, HandType
from hands.files import HandFiles, boot_id
from hands.inside import tree
from hands.inventory import open_inventory
from hands.isolation import uids
from hands.journal import Journal
from hands.journal_file import journal_errors
from hands.local import asking
from hands.local.routes import hand_rows
from hands.owner.audit import Audit
from hands.owner.gate import Gate

log = logging.getLogger(__name__)

_LIMIT = 60.0
"""Seconds for hands to end."""
_AGAIN = 0.2
Kinds = Mapping[str, HandType]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What became of it."""

    hands: Sequence[str]
    resist: Sequence[str] = ()
    """Of those what may still run."""
    how: str = "asked"
    """`asked` the daemon, `without` one, or `around` one that hangs."""


def stop(
    state: Path,
    hand_id: str,
    sandbox: types.Sandbox = "auto",
    sockets: Mapping[str, Path] = MappingProxyType({}),
) -> Stopped:
    """Stop a hand, or all with an empty `hand_id`. HAND_NOT_FOUND, UNREACHABLE.

    `sandbox` and `sockets` are the daemon's settings: by them its types are known.
    """
    kinds = partial(types.installed, sandbox, sockets)
    files = HandFiles(state)
    if not files.folder.exists():
        raise refuse(
            Reason.UNREACHABLE, f"there is no daemon in {state}", action="give its --state-dir"
        )
    try:
        with files.only_process():
            return asyncio.run(_without(files, hand_id, kinds()))
    except CarpalError as error:
        if error.fields.get("held") != str(files.folder):
            raise
    try:
        return _ask(files.folder, hand_id)
    except Unreachable as error:
        log.warning("the daemon does not answer", extra={"why": str(error)})
        return asyncio.run(_around(files, hand_id, kinds()))


def _ask(folder: Path, hand_id: str) -> Stopped:
    row = {"hand_id": hand_id} if hand_id else {"all": True}
    told = asking.ask(folder, "/stop", row)
    hands, until = list(told["hands"]), time.monotonic() + _LIMIT
    while not told["done"]:
        if time.monotonic() > until:
            return Stopped(hands, hands)
        time.sleep(_AGAIN)
        try:
            told = asking.ask(folder, "/stop", row)
        except CarpalError as error:
            if error.reason is not Reason.HAND_NOT_FOUND:
                raise
            break  # it is over
    return Stopped(hands, told["resist"])


async def _without(files: HandFiles, hand_id: str, kinds: Kinds) -> Stopped:
    gate = Gate(audit=Audit(files.folder))  # a policy that is wrong stops no stop
    with (
        closing(gate),
        journal_errors(files.journal),
        closing(Journal(files.journal)) as journal,
    ):
        async with open_inventory(
            journal=journal,
            types=kinds,
            folder=files.hands,
            boot_id=boot_id(),
            hands_max=0,
            gate=gate,
        ) as inventory:
            there = [row["hand_id"] for row in hand_rows(inventory)]
            chosen = _chosen(there, hand_id)
            return Stopped(chosen, await inventory.stop(chosen), "without")


async def _around(files: HandFiles, hand_id: str, kinds: Kinds) -> Stopped:
    there = sorted(each.name for each in files.hands.iterdir()) if files.hands.exists() else []
    chosen, resist = _chosen(there, hand_id), []
    known = _types_of(files.journal)
    for each in chosen:
        kind = kinds.get(known.get(each, ""))
        asked = [kind] if kind else kinds.values()
        reaped = [await _reap(one, each, files.hands / each) for one in asked]
        killed = await _kill(each, files.hands / each)
        if not killed or (kind and not all(reaped)):
            resist.append(each)
    for kind in kinds.values():
        if isinstance(kind, Closing):
            await kind.close()
    return Stopped(chosen, resist, "around")


async def _reap(kind: HandType, hand_id: str, folder: Path) -> bool:
    """Have a hand's type end it; whether it says that it did."""
    try:
        async with asyncio.timeout(_LIMIT):
            await kind.reap(hand_id, folder)
    except HandLost as error:
        log.warning("it resists", extra={"hand_id": hand_id, "why": str(error)})
        return False
    except Exception:  # a hand type's own bug: the others are asked too
        log.exception("hand type failed", extra={"hand_id": hand_id})
        return False
    return True


async def _kill(hand_id: str, folder: Path) -> bool:
    """Kill all that it started; whether it is dead."""
    try:
        await asyncio.to_thread(tree.kill_marked, mark(folder), uids.anothers(folder))
    except OSError as error:
        log.warning("it resists", extra={"hand_id": hand_id, "why": str(error)})
        return False
    return True


def _types_of(journal: Path) -> Mapping[str, str]:
    """Hand → type, as far as the journal can be read beside a daemon that hangs."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(journal))}?mode=ro", uri=True)) as reading:
            return dict(reading.execute("SELECT hand_id, type FROM hands"))
    except sqlite3.Error as error:
        log.info("types not known", extra={"why": str(error)})
        return {}


def _chosen(there: Sequence[str], hand_id: str) -> list[str]:
    if hand_id and hand_id not in there:
        raise refuse(
            Reason.HAND_NOT_FOUND,
            f"no hand {hand_id!r} runs here",
            action="see which do: `carpal hand status`",
        )
    return [hand_id] if hand_id else list(there)
