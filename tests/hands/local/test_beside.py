"""A type with units is not tried beside the daemon that gives them out."""

import asyncio
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.process import only_error
from carpal.status import Reason
from hands import calling
from hands.builtin.process import ProcessType
from hands.contract import HandType
from hands.files import HandFiles
from hands.local import beside
from hands.local.routes import routes
from hands.local.server import answering
from hands.local.status import Standing
from tests.hands.bench_type import BenchType
from tests.hands.place import Place, open_place


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
