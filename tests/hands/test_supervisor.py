"""The supervisor by itself: what it needs, and whom it listens to."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hands.builtin.process import ProcessType
from hands.builtin.supervised import SupervisedHand
from hands.contract import Call, HandLost, Order, Result
from hands.inside import schema, tree
from tests.hands.place import PATIENCE, Place, until

ROOT = Path(__file__).parents[2]


def test_it_needs_nothing_but_the_standard_library() -> None:
    inside = [f"hands.inside.{file.stem}" for file in ROOT.glob("hands/inside/[a-z]*.py")]
    program = (
        f"import sys, json; sys.path.append({str(ROOT)!r});"
        f"import hands.supervisor, {', '.join(inside)};"
        "print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], capture_output=True, check=True, timeout=20
    )
    beyond = set(json.loads(ran.stdout)) - set(sys.stdlib_module_names) - {"hands", "__main__"}
    assert not beyond


def _order(folder: Path, hand_id: str = "h") -> Order:
    folder.mkdir(mode=0o700)
    return Order(hand_id, folder, {}, {}, 60.0)


async def test_a_call_id_runs_once_even_when_it_is_asked_twice_h43(tmp_path: Path) -> None:
    made = await ProcessType(sandbox="off").provision(_order(tmp_path / "f"), lambda _: None)
    hand = made.hand
    call = Call("c", "bash", {"command": "echo ran >> log; cat log"})
    results = []
    for _ in range(3):  # asked again while held, and once forgotten
        async with asyncio.timeout(PATIENCE):
            results += [step async for step in hand.execute(call) if isinstance(step, Result)]
        if len(results) == 2:
            await hand.acknowledge("c")
    assert [one.content for one in results[:2]] == ["ran\n", "ran\n"]
    assert results[2].outcome == "interrupted"
    assert "came before" in results[2].content
    assert (tmp_path / "f/workspace/log").read_text() == "ran\n"
    await hand.release()


async def test_a_newer_daemon_takes_over_and_is_told_everything_h44(tmp_path: Path) -> None:
    order = _order(tmp_path / "f")
    made = await ProcessType(sandbox="off").provision(order, lambda _: None)
    first = made.hand
    steps = first.execute(Call("c", "bash", {"command": "echo up; sleep 0.3; echo done"}))
    async with asyncio.timeout(PATIENCE):
        await anext(steps)
        second = await ProcessType(sandbox="off").adopt("h", order.folder, made.state)
        assert second.held == {"c"}
        results = [s async for s in second.attach("c") if isinstance(s, Result)]
        assert results[0].content == "up\ndone\n"
        with pytest.raises(HandLost):
            async for _ in steps:
                pass
    await second.release()
    await first.detach()
    pid, start = made.state["pid"], made.state["start"]
    await until(lambda: not tree.alive(pid, start), "the supervisor lives on")


async def test_what_a_daemon_asked_for_itself_is_forgotten_with_its_connection(
    tmp_path: Path,
) -> None:
    kind, order = ProcessType(sandbox="off"), _order(tmp_path / "f")
    made = await kind.provision(order, lambda _: None)
    async with asyncio.timeout(PATIENCE):
        steps = made.hand.execute(Call(".save-1", ".save", {"socket": "not-there"}, 60.0))
        assert [True async for step in steps if isinstance(step, Result)]
        await made.hand.detach()
        second = await kind.adopt("h", order.folder, made.state)
        assert not second.held
        await second.release()


async def test_only_the_very_supervisor_is_adopted(tmp_path: Path) -> None:
    order = _order(tmp_path / "f")
    made = await ProcessType(sandbox="off").provision(order, lambda _: None)
    wrong = {**made.state, "start": made.state["start"] + 1}
    with pytest.raises(HandLost, match="gone"):
        await ProcessType(sandbox="off").adopt("h", order.folder, wrong)
    await made.hand.release()
    with pytest.raises(HandLost):
        await SupervisedHand.connect(order.folder)


async def test_a_hand_that_is_reaped_takes_no_other_daemons_hand_of_that_id_along(
    tmp_path: Path,
) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    made = await ProcessType(sandbox="off").provision(_order(mine), lambda _: None)
    kept = await ProcessType(sandbox="off").provision(_order(other), lambda _: None)
    assert await ProcessType(sandbox="off").reap("h", tmp_path / "x" / ".." / "mine") == 1
    async with asyncio.timeout(PATIENCE):
        await made.hand.wait_lost()
    assert tree.alive(kept.state["pid"], kept.state["start"])
    await made.hand.detach()
    await kept.hand.release()


async def test_a_reaped_hands_processes_end_also_where_they_cleared_their_environment(
    tmp_path: Path,
) -> None:
    order = _order(tmp_path / "f")
    made = await ProcessType(sandbox="off").provision(order, lambda _: None)
    steps = made.hand.execute(Call("c", "bash", {"command": "env -i sleep 60; true"}))
    async with asyncio.timeout(PATIENCE):
        await anext(steps)

    def cleared() -> list[tree.Process]:
        below = tree.descendants(made.state["pid"])
        return [p for p in below if Path(f"/proc/{p.pid}/cmdline").read_bytes()[:5] == b"sleep"]

    await until(cleared, "the command did not start")
    (sleep,) = cleared()
    await ProcessType(sandbox="off").reap("h", order.folder)
    assert not tree.alive(sleep.pid, sleep.start)
    await made.hand.detach()


async def test_a_supervisor_that_does_not_read_holds_up_no_daemon_that_ends(tmp_path: Path) -> None:
    ends: list[asyncio.StreamWriter] = []

    async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends.append(writer)
        hello = json.dumps({"event": "hello", "pid": 1, "start": 1, "calls": []}).encode()
        writer.write(len(hello).to_bytes(4, "big") + hello)

    server = await asyncio.start_unix_server(deaf, tmp_path / "socket")
    hand = await SupervisedHand.connect(tmp_path)
    steps = hand.execute(Call("c", "bash", {"command": "x" * 8 * 1024 * 1024}))
    asking = asyncio.ensure_future(anext(steps))
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        await hand.detach()
    asking.cancel()
    await asyncio.wait({asking})
    ends[0].transport.abort()
    server.close()
    await server.wait_closed()


async def test_a_supervisor_that_accepts_no_more_is_lost_at_once(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(tmp_path / "socket"))
        listener.listen(0)
        full = False
        while not full:
            waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            full = waiting.connect_ex(str(tmp_path / "socket")) != 0
        with pytest.raises(HandLost):
            await SupervisedHand.connect(tmp_path)


async def test_a_state_folder_of_any_depth_will_do(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    made = await ProcessType(sandbox="off").provision(_order(deep / ("f" * 100)), lambda _: None)
    await made.hand.release()


async def test_a_supervisor_told_to_end_by_a_signal_takes_everything_along_h46(
    place: Place, hand: str
) -> None:
    call = place.begin(place.request(hand, command="setsid sleep 60 & echo up; sleep 61"))
    await call.output()
    supervisor = tree.find(place.supervisor(hand))
    assert supervisor is not None
    below = tree.descendants(supervisor.pid)
    tree.send(supervisor, 15)
    assert "SIGTERM" in (await call.result()).content
    assert not [p for p in below if tree.alive(p.pid, p.start)]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"a": 1, "b": ["x"]}, None),
        ([], "input"),
        ({"b": []}, "a"),
        ({"a": 1.5}, "a"),
        ({"a": 11}, "a"),
        ({"a": 1, "b": []}, "b"),
        ({"a": 1, "b": ["x", 2]}, "b[1]"),
        ({"a": 1, "c": {"d": 1}}, "c.d"),
        ({"a": 1, "z": 1}, "z"),
    ],
)
def test_the_first_thing_that_does_not_fit_a_schema_is_named(
    value: object, field: str | None
) -> None:
    shape: schema.Schema = {
        "type": "object",
        "required": ["a"],
        "additionalProperties": False,
        "properties": {
            "a": {"type": "integer", "minimum": 0, "maximum": 10},
            "b": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
            "c": {"type": "object", "properties": {"d": {"type": "boolean"}}},
        },
    }
    problem = schema.check(shape, value)
    assert (problem.field if problem else None) == field
