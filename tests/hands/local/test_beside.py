"""A type with units is not tried beside the daemons that give them out, wherever their state is."""

import asyncio
import os
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.process import only_error
from carpal.status import Reason
from hands import calling
from hands.builtin.process import ProcessType
from hands.builtin.socket import SocketType
from hands.contract import HandType
from hands.files import HandFiles
from hands.local import beside, notes
from hands.local.routes import routes
from hands.local.server import answering
from hands.local.status import Standing
from tests.command import Command
from tests.hands.bench_type import BenchType
from tests.hands.fake_brain import FakeBrain
from tests.hands.hand_server import serving
from tests.hands.machine import Machine
from tests.hands.place import Place, open_place
from tests.hands.test_socket_units import Phones


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No daemon of another test is on this machine."""
    (tmp_path / "shm").mkdir()
    monkeypatch.setenv(notes.PLACE, str(tmp_path / "shm"))


async def call(kind: HandType, state: Path) -> None:
    """What `carpal hand call` does, with this machine's daemon at `state`."""
    asked = calling.Asked(type="bench", tool="any", given=b"{}", daemon=state)
    try:
        await calling.call({"bench": kind}, asked, note=lambda _: None, output=lambda _: None)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def folder_of(state: Path) -> Path:
    """Where that daemon has its socket."""
    folder = HandFiles(state).folder
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def standing_of(place: Place) -> Standing:
    """The daemon, with its hands."""
    standing = Standing(4)
    standing.inventory = place.inventory
    return standing


async def test_a_phone_that_the_daemon_has_is_neither_reset_nor_taken_by_a_call(
    tmp_path: Path,
) -> None:
    state, bench = tmp_path / "state", BenchType(tmp_path / "bench")
    async with (
        open_place(state, more={"bench": bench}) as place,
        answering(folder_of(state), routes(standing_of(place))),
    ):
        with pytest.raises(CarpalError, match="gives units of type 'bench' to hands") as refused:
            await call(bench, state)
        assert refused.value.reason is Reason.UNAVAILABLE
        assert bench.log == []
        await asyncio.to_thread(beside.check, state, "process", ProcessType())


async def test_a_daemon_that_does_not_say_what_it_has_is_taken_to_have_it(tmp_path: Path) -> None:
    state, bench = tmp_path / "state", BenchType(tmp_path / "bench")
    async with answering(folder_of(state), routes(Standing(4))):
        with pytest.raises(CarpalError, match="is not known: the daemon starts"):
            await call(bench, state)


async def test_without_a_daemon_a_call_has_the_units_to_itself(tmp_path: Path) -> None:
    bench = BenchType(tmp_path / "bench")
    await asyncio.to_thread(beside.check, tmp_path / "none", "bench", bench)


async def test_a_daemon_with_another_state_folder_keeps_its_units_from_a_call_too(
    machine: Machine, one: FakeBrain, tmp_path: Path
) -> None:
    bench = BenchType(tmp_path / "bench")
    async with machine.daemon(hand_type=bench):
        await one.link()
        (noted,) = notes.daemons()
        assert noted.state == machine.state
        with pytest.raises(CarpalError, match="gives units of type 'process'") as refused:
            await asyncio.to_thread(beside.check, tmp_path / "another", "process", bench)
        assert str(machine.state) in refused.value.message
        await asyncio.to_thread(beside.check, tmp_path / "another", "bench", bench)
    assert notes.daemons() == []
    await asyncio.to_thread(beside.check, tmp_path / "another", "process", bench)


async def test_tests_beside_each_other_are_as_if_on_machines_of_their_own(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with notes.noted(tmp_path / "state", {}):
        assert notes.daemons()
        monkeypatch.undo()  # the place of this worker's tests
        assert Path(os.environ[notes.PLACE]).is_relative_to(tmp_path_factory.getbasetemp())
        assert tmp_path / "state" not in [each.state for each in notes.daemons()]
        assert Command(tmp_path).environ[notes.PLACE] == os.environ[notes.PLACE]


async def test_a_server_that_a_daemon_has_by_another_name_is_not_tried_by_its_own(
    tmp_path: Path,
) -> None:
    state, at = tmp_path / "state", tmp_path / "hand.sock"
    theirs, tried = SocketType("rack", at), SocketType("echo", at, daemon=False)
    async with (
        serving(at, Phones()),
        open_place(state, more={"rack": theirs}) as place,
        answering(folder_of(state), routes(standing_of(place))),
    ):
        await tried.prepare()
        try:
            with (
                notes.noted(state, {"rack": at}),
                pytest.raises(CarpalError, match="gives units of type 'echo' to hands"),
            ):
                await asyncio.to_thread(beside.check, tmp_path / "none", "echo", tried)
        finally:
            await tried.close()


async def test_what_a_killed_daemon_noted_and_what_is_no_note_keeps_nobody_from_a_call(
    tmp_path: Path,
) -> None:
    bench = BenchType(tmp_path / "bench")
    with notes.noted(tmp_path / "killed", {}):
        (note,) = next((tmp_path / "shm").iterdir()).iterdir()
        for name, text in (("a", "{"), ("b", "[]"), ("c", '{"state": 1, "sockets": 2}')):
            (note.parent / name).write_text(text)
        assert [each.state for each in notes.daemons()] == [tmp_path / "killed"]
        await asyncio.to_thread(beside.check, tmp_path / "none", "bench", bench)


def test_notes_in_a_folder_that_others_may_write_in_are_neither_made_nor_read(
    tmp_path: Path,
) -> None:
    with notes.noted(tmp_path / "state", {}):
        (folder,) = (tmp_path / "shm").iterdir()
        folder.chmod(0o777)
        assert notes.daemons() == []
        with notes.noted(tmp_path / "other", {}):
            assert len(list(folder.iterdir())) == 1
