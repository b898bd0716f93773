"""What a supervisor says is believed as far as it fits: others may speak in its place."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands import results
from hands.builtin import said, supervised
from hands.builtin.supervised import SupervisedHand
from hands.builtin.supervisor_socket import results_left
from hands.contract import Call, HandLost, Outcome, Output, Result, Spooled, Started
from hands.inside import spool as pieces
from hands.inside.output import KEEP
from hands.inside.tree import start_time
from hands.life import folders, spool
from tests.hands.place import PATIENCE

_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
_EVENTS = st.fixed_dictionaries(
    {"event": st.sampled_from(["started", "output", "spooled", "result", "other"]) | _ANY},
    optional=dict.fromkeys(
        (
            *("pid", "start", "offset", "data", "end", "outcome", "content", "exit_code", "files"),
            *("output_bytes", "omitted_bytes", "background", "started", "elapsed", "files_omitted"),
            "attachments",
        ),
        _ANY,
    ),
)


@given(_EVENTS)
def test_whatever_is_said_is_a_step_that_fits_or_a_value_error(event: dict[str, object]) -> None:
    try:
        step = said.step(event)
    except ValueError:
        return
    if isinstance(step, Result):
        assert results.to_message(step, 1).content


@pytest.mark.parametrize(
    "event",
    [
        {"event": "started", "pid": -1, "start": 0},
        {"event": "started", "pid": True, "start": 0},
        {"event": "output", "offset": KEEP, "data": "eA=="},
        {"event": "output", "offset": 2**70, "data": ""},
        {"event": "spooled", "end": 2**63},
        {"event": "result", "outcome": "splendid", "content": "x"},
        {"event": "result", "outcome": "ok", "content": 7},
        {"event": "result", "outcome": "ok", "content": "x", "exit_code": 2**40},
        {"event": "result", "outcome": "ok", "content": "x", "started": float("nan")},
        {"event": "result", "outcome": "ok", "content": "x", "files": {"a": 1}},
        {"event": "result", "outcome": "ok", "content": "x", "files": [{"path": 1}]},
        {"event": "result", "outcome": "ok", "content": "x", "files": [{"digest": 5}]},
        {"event": "result", "outcome": "ok", "content": "x", "attachments": {"a": 1}},
        {"event": "result", "outcome": "ok", "content": "x", "attachments": ["a"]},
        {"event": "result", "outcome": "ok", "content": "x", "attachments": [{"digest": "00"}]},
    ],
)
def test_what_does_not_fit_is_refused(event: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - its kind is all that counts
        said.step(event)


def test_steps_nobody_takes_are_bounded_and_the_last_of_a_spool_counts() -> None:
    waiting = said.Waiting()
    for end in range(100_000):
        waiting.put(Spooled(end))
    assert waiting.take() == Spooled(99_999)
    assert waiting.take() is None
    for step in (Started(1, 1), Output(0, b"x" * KEEP)):
        waiting = said.Waiting()
        with pytest.raises(ValueError, match="more of a call"):
            _put(waiting, step)


def _put(waiting: said.Waiting, step: Started | Output) -> None:
    for _ in range(100_000):
        waiting.put(step)


def _framed(event: object) -> bytes:
    data = json.dumps(event).encode()
    return len(data).to_bytes(4, "big") + data


HELLO = _framed({"event": "hello", "pid": 1, "start": 1, "calls": []})


@asynccontextmanager
async def liar(folder: Path, first: bytes, then: Callable[[], bytes]) -> AsyncIterator[None]:
    """What listens in a supervisor's place, and says this."""

    gone = asyncio.Event()

    async def lie(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        with contextlib.suppress(ConnectionError):
            if await reader.read(1):
                writer.write(then())
            await reader.read()
        writer.transport.abort()
        gone.set()

    server = await asyncio.start_unix_server(lie, folder / "socket")
    async with server:
        yield
        async with asyncio.timeout(PATIENCE):
            await gone.wait()


@pytest.mark.parametrize(
    "first",
    [
        _framed({"event": "hello", "calls": 7}),
        _framed({"event": "hello", "calls": ["x" * 1000]}),
        _framed(["hello"]),
        b"\0\0\0\1\xff",
        b"\xff\xff\xff\xff{}",
        (200_000).to_bytes(4, "big") + b"[" * 200_000,
        _framed({"event": "hello", "calls": [], "more": "x" * 2**20}),
        _framed({"event": "hello", "calls": [], "more": [[]] * 150_000}),
    ],
)
async def test_a_hello_that_makes_no_sense_is_a_lost_hand(tmp_path: Path, first: bytes) -> None:
    async with liar(tmp_path, first, lambda: b""):
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(HandLost):
                await SupervisedHand.connect(tmp_path)


@pytest.mark.parametrize(
    "lie",
    [
        b"\xff\xff\xff\xff",
        _framed({"event": "result", "call_id": "c", "outcome": "ok", "content": []}),
        _framed({"event": "result", "call_id": "c", "outcome": "lots"}),
        _framed({"event": "spooled", "call_id": "c", "end": -1}),
        (200_000).to_bytes(4, "big") + b"[" * 200_000,
    ],
)
async def test_a_frame_that_makes_no_sense_is_a_lost_hand_and_no_more(
    tmp_path: Path, lie: bytes
) -> None:
    async with liar(tmp_path, HELLO, lambda: lie):
        hand = await SupervisedHand.connect(tmp_path)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(HandLost):
                async for _ in hand.execute(Call("c", "bash", {"command": "true"})):
                    pass
        await hand.detach()


async def test_a_frame_that_even_the_checks_did_not_foresee_is_a_lost_hand_and_a_release_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confused(_: object) -> None:
        raise TypeError("this is not so")

    lie = _framed({"event": "spooled", "call_id": "c", "end": 1})
    async with liar(tmp_path, HELLO, lambda: lie):
        hand = await SupervisedHand.connect(tmp_path)
        monkeypatch.setattr(said, "step", confused)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(HandLost):
                async for _ in hand.execute(Call("c", "bash", {"command": "true"})):
                    pass
            assert "TypeError" in await hand.wait_lost()
            await hand.release()


async def test_who_waits_for_a_call_of_a_hand_that_is_released_learns_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "_END_LIMIT", 0.1)

    async def first_steps() -> None:
        async for _ in hand.execute(Call("c", "bash", {"command": "true"})):
            pass

    async with liar(tmp_path, HELLO, lambda: b""):
        hand = await SupervisedHand.connect(tmp_path)
        waiting = asyncio.create_task(first_steps())
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(HandLost, match="does not end"):
                await hand.release()
            with pytest.raises(HandLost, match="released"):
                await waiting


async def test_a_call_of_another_hand_is_not_answered_by_this_one(tmp_path: Path) -> None:
    said_of = [
        {"event": "result", "call_id": call_id, "outcome": "ok", "content": call_id}
        for call_id in ("other", "c")
    ]
    async with liar(tmp_path, HELLO, lambda: b"".join(map(_framed, said_of))):
        hand = await SupervisedHand.connect(tmp_path)
        async with asyncio.timeout(PATIENCE):
            steps = [one async for one in hand.execute(Call("c", "bash", {"command": "true"}))]
        assert [one.content for one in steps if isinstance(one, Result)] == ["c"]
        await hand.detach()


async def test_its_pid_is_the_kernels_word_not_its_own(tmp_path: Path) -> None:
    async with liar(tmp_path, HELLO, lambda: b""):
        hand = await SupervisedHand.connect(tmp_path)
        assert hand.pid == os.getpid()
        await hand.detach()


async def test_who_is_not_the_supervisor_that_is_known_is_not_listened_to(tmp_path: Path) -> None:
    async with liar(tmp_path, b"\xff\xff\xff\xff{}", lambda: b""):
        for known in ((os.getpid(), 1), (1, start_time(1))):
            with pytest.raises(HandLost, match="another supervisor"):
                await SupervisedHand.connect(tmp_path, known=known)
    async with liar(tmp_path, HELLO, lambda: b""):
        me = (os.getpid(), start_time(os.getpid()))
        hand = await SupervisedHand.connect(tmp_path, known=me)
        await hand.detach()


@given(_ANY)
def test_what_has_few_parts_is_parsed_as_json_is(value: object) -> None:
    text = json.dumps(value)
    assert repr(said.parsed(text.encode())) == repr(json.loads(text))


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b"[]," * 200_000 + b"[]]",
        b'["\\\\",' + b"[]," * 200_000 + b"[]]",
        b'["\\\\\\"",' + b"[]," * 200_000 + b"[]]",
        b"[" + b'"",' * 300_000 + b'""]',
        b"[" + b"1," * 200_000 + b"1]",
    ],
)
def test_what_has_far_more_parts_than_ours_is_not_parsed(data: bytes) -> None:
    """A list costs twenty times the two bytes that it is."""
    with pytest.raises(ValueError, match="too many"):
        said.parsed(data)


def test_text_of_nothing_but_marks_is_text() -> None:
    text = '[{,"\\' * 50_000
    assert said.parsed(json.dumps([text]).encode()) == [text]


def test_results_left_behind_that_are_larger_than_any_of_ours_are_none(tmp_path: Path) -> None:
    one = {"event": "result", "call_id": "c", "outcome": "ok", "content": "x" * 2**20}
    (tmp_path / "results").write_text(json.dumps([one]))
    assert results_left(tmp_path)["c"].content == one["content"]
    (tmp_path / "results").write_text(json.dumps([one] * 9))
    assert results_left(tmp_path) == {}


@pytest.mark.parametrize("text", ["[" * 100_000, "{}", "[7]", '[{"call_id": 1}]', "\udcff"])
def test_results_left_behind_that_make_no_sense_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "results").write_bytes(os.fsencode(text))
    assert results_left(tmp_path) == {}


@pytest.mark.parametrize("planted", ["spool", "spool/c"])
def test_a_symlink_in_a_spools_place_leads_nowhere(tmp_path: Path, planted: str) -> None:
    hand, target = tmp_path / "hand", tmp_path / "target"
    (target / "c").mkdir(parents=True)
    for folder in (target, target / "c"):
        (folder / str(KEEP)).write_text("secret")
    (hand / planted).parent.mkdir(parents=True)
    (hand / planted).symlink_to(target)
    own = spool.Spool(hand, "c")
    own.take(Output(KEEP, b"x"))
    assert own.read(KEEP, 100) == (KEEP + 1, b"")
    own.free(10 * pieces.LIMIT)
    own.remove()
    spool.sweep(hand, frozenset())
    assert (target / str(KEEP)).read_text() == "secret"
    assert (target / "c" / str(KEEP)).read_text() == "secret"


def test_a_folder_deeper_than_any_path_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "hand"
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    folders.remove(folder)
    assert not folder.exists()
    folders.remove(folder)


def test_every_outcome_may_be_said() -> None:
    for outcome in Outcome:
        assert said.step({"event": "result", "outcome": outcome.value, "content": "x"})
