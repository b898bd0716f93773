"""`carpal session files`: what a session's calls made of the files in its hands, at any position.

Folded from the log: each result says which files its call created, changed and removed.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from carpal.errors import invalid, refuse
from carpal.operator.asking import POSITION_MAX, get_session, run
from carpal.operator.connection import Found, Operator, operator_options
from carpal.operator.events import printable
from carpal.operator.exporting import events_up_to
from carpal.operator.files_out import File, write_files
from carpal.operator.outcome import DONE
from carpal.operator.screen import notice
from carpal.status import Reason

_RESULTS = ("agent.tool_result", "hand.late_result")


@dataclass
class Files:
    """The files of every hand, as the log has them up to some position."""

    names: dict[str, str] = field(default_factory=dict)
    """Hand id → the hand's name in the session."""
    files: dict[tuple[str, str], File] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)
    """Hand id → the first position whose changes are not all in the log."""

    def take(self, kind: str, position: int, data: Mapping[str, Any]) -> None:
        """Fold one event in; whatever its data is."""
        hand_id = str(data.get("hand_id", ""))
        if kind == "hand.provisioned":
            self.names[hand_id] = str(data.get("name", ""))
        elif kind in _RESULTS and hand_id:
            if data.get("files_unknown") or data.get("files_omitted"):
                self.gaps.setdefault(hand_id, position)
            for change in _changes(data):
                self._change(hand_id, position, change)

    def _change(self, hand_id: str, position: int, change: Mapping[str, Any]) -> None:
        path = str(change.get("path", ""))
        if change.get("kind") == "removed":
            self.files.pop((hand_id, path), None)
            return
        size = change.get("size")
        self.files[hand_id, path] = File(
            hand_id=hand_id,
            hand=self.names.get(hand_id, ""),
            path=path,
            size=size if isinstance(size, int) else 0,
            sha256=str(change.get("sha256", "")),
            position=position,
            kept="blob" in change,
        )

    def __iter__(self) -> Iterator[File]:
        return iter(sorted(self.files.values(), key=lambda file: (file.hand_id, file.path)))


def _changes(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    changes = data.get("files")
    return [c for c in changes if isinstance(c, dict)] if isinstance(changes, list) else []


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option(
    "--at", type=click.IntRange(0, POSITION_MAX), help="At this position.  [the log's end]"
)
@click.option("--hand", default="", help="Of the hands of this name alone.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write their contents to this new folder."
)
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@operator_options
def files(
    *,
    found: Found,
    session_id: str,
    at: int | None,
    hand: str,
    out: Path | None,
    as_json: bool,
) -> int:
    """List the files that a session's calls made, as they were at a position."""

    async def main(operator: Operator) -> int:
        info = await get_session(operator, session_id)
        head = info.head.position
        if at is not None and at > head:
            raise refuse(
                Reason.POSITION_BEYOND_HEAD,
                f"--at {at} is beyond the log of {session_id}",
                action=f"it ends at position {head}",
            )
        known = await _fold(operator, session_id, head if at is None else at)
        if hand and hand not in known.names.values():
            there = ", ".join(sorted(set(known.names.values()))) or "none"
            raise invalid("--hand", f"the session had no hand {hand!r} by then; it had {there}")
        listed = [file for file in known if not hand or file.hand == hand]
        for file in listed:
            click.echo(_line(file, as_json=as_json))
        if out is not None:
            await write_files(operator, listed, out)
        for hand_id, position in known.gaps.items():
            name = known.names.get(hand_id) or hand_id
            if not hand or name == hand:
                notice(
                    f"{name}: not every change is in the log from position {position} on: "
                    "too many files"
                )
        return DONE

    return run(found, main)


async def _fold(operator: Operator, session_id: str, head: int) -> Files:
    known = Files()
    async with aclosing(events_up_to(operator, session_id, head)) as events:
        async for event in events:
            if event.type in _RESULTS or event.type == "hand.provisioned":
                data = _object(event.data)
                known.take(event.type, event.position, data)
    return known


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}  # redacted, or another's
    return value if isinstance(value, dict) else {}


def _line(file: File, *, as_json: bool) -> str:
    if as_json:
        return json.dumps(
            {
                "hand_id": file.hand_id,
                "hand": file.hand,
                "path": file.path,
                "size": file.size,
                "sha256": file.sha256,
                "position": file.position,
                "kept": file.kept,
            }
        )
    named = printable(f"{file.hand}:{file.path}").replace("\n", "\\x0a")
    named = named.encode(errors="backslashreplace").decode()  # no terminal takes a lone surrogate
    return f"{printable(file.sha256[:12]) or '-':12}  {file.size:>10}  {named}"
