"""The link's table: it is whole, both ends fit together, and the page shows what it says."""

import re
from pathlib import Path

import pytest

from carpal.link import Side, State
from carpal.link_table import MOVES, RECEIVES, SENDS, URGENT, Table
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb
from tests.link_ends import KINDS, at, fault, message

PAGE = Path(__file__).parent.parent / "docs" / "link-states.md"
NEVER = {(Side.DAEMON, State.GREETED)}
"""Where no link ever is."""
PAIRS = [(side, state) for side in Side for state in State if (side, state) not in NEVER]
OTHER = {Side.BRAIN: Side.DAEMON, Side.DAEMON: Side.BRAIN}


@pytest.mark.parametrize(
    ("side", "state", "kind"), [(*pair, kind) for pair in PAIRS for kind in KINDS[pair[0]]]
)
def test_every_message_in_every_state_goes_where_the_table_says_or_closes_the_link(
    side: Side, state: State, kind: str
) -> None:
    link = at(side, state)
    link.receive([message(side, kind)], 1.0)
    expected = RECEIVES.get((side, state), {}).get(kind)
    if expected is not None:
        assert link.state is expected
    elif state is State.CLOSED:
        assert not link.events(), "after the end nothing is read"
    else:
        assert link.state is State.CLOSED
        assert fault(link).reason is Reason.LINK_VIOLATION


def test_every_state_but_the_last_has_its_row() -> None:
    rows = {pair for pair in PAIRS if pair[1] is not State.CLOSED}
    assert set(RECEIVES) == set(SENDS) == rows


@pytest.mark.parametrize("side", Side)
def test_every_message_kind_of_the_contract_may_come_and_go_in_some_state(side: Side) -> None:
    comes = {kind for (end, _), row in RECEIVES.items() if end is side for kind in row}
    goes = {kind for (end, _), row in SENDS.items() if end is OTHER[side] for kind in row}
    assert comes == goes == set(KINDS[side])


Flight = tuple[str, ...]
Joint = tuple[State, State, Flight, Flight]
"""The brain's state and the daemon's, and what is on its way down and up."""


def test_what_an_honest_end_sends_never_closes_the_link_whatever_crossed_it_on_the_way() -> None:
    start: Joint = (State.GREETING, State.GREETING, (), ("hello",))
    seen, ahead = {start}, [start]
    while ahead:
        for joint in set(sent(ahead[-1]) + came(ahead.pop())) - seen:
            seen.add(joint)
            ahead.append(joint)
    assert {brain for brain, *_ in seen} == set(State), "the walk came everywhere"


def sent(joint: Joint) -> list[Joint]:
    """Where one more message leads; two on their way are enough to cross."""
    brain, daemon, down, up = joint
    return [
        (after, daemon, (*down, kind), up)
        for kind, after in SENDS.get((Side.BRAIN, brain), {}).items()
        if len(down) < 2
    ] + [
        (brain, after, down, (*up, kind))
        for kind, after in SENDS.get((Side.DAEMON, daemon), {}).items()
        if len(up) < 2 and kind != "hello"  # it is said once, first
    ]


def came(joint: Joint) -> list[Joint]:
    """Where an arrival leads."""
    brain, daemon, down, up = joint
    arrivals: list[Joint] = []
    if up:
        arrivals.append((taken(Side.BRAIN, brain, up[0]), daemon, down, up[1:]))
    if down:
        arrivals.append((brain, taken(Side.DAEMON, daemon, down[0]), down[1:], up))
    return arrivals


def taken(side: Side, state: State, kind: str) -> State:
    """The state after it came, which must not be a violation."""
    if state is State.CLOSED:
        return state
    assert kind in RECEIVES[side, state], f"{kind} came to the {side.name} while {state.name}"
    return RECEIVES[side, state][kind]


def test_only_kinds_of_the_contract_are_urgent_or_move() -> None:
    assert set(KINDS[Side.BRAIN]) | set(KINDS[Side.DAEMON]) >= URGENT
    arms = {field.name for field in pb.Request.DESCRIPTOR.oneofs_by_name["call"].fields}
    assert arms >= MOVES


def test_the_page_shows_the_table_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for title, table in (("What may come", RECEIVES), ("What may go", SENDS)):
        part = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
        shown = re.findall(r"^\| .*$", part, re.MULTILINE)[1:]
        assert shown == rows(table), f"docs/link-states.md, {title}: it should be\n" + "\n".join(
            rows(table)
        )


def rows(table: Table) -> list[str]:
    """The table as the page shows it: one line a state."""
    lines = []
    for (side, state), row in table.items():
        stays = [f"`{kind}`" for kind, after in row.items() if after is state]
        moves = [f"`{kind}` → {after.name}" for kind, after in row.items() if after is not state]
        lines.append(f"| {side.name.lower()} | {state.name} | {', '.join(moves + stays)} |")
    return lines
