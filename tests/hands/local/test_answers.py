"""What the local socket answers about units, hands and stops has the fields that the page says."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import BadInput, CarpalError
from carpal.status import Reason
from hands.contract import UnitsUnknown
from hands.life import units
from hands.local import asking
from hands.local import routes as routes_of
from hands.local.server import answering
from tests.hands.bench_type import BenchType
from tests.hands.fake_brain import FakeBrain
from tests.hands.life.test_remains import Resisting
from tests.hands.life.test_units import not_taken
from tests.hands.local.test_beside import folder_of, standing_of
from tests.hands.local.test_server import PAGE
from tests.hands.local.test_status import until as stands
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, Place, open_place
from tests.hands.test_cli import carpal

TEXT = PAGE.read_text()


def fields(ask: str, number: int = 0) -> set[str]:
    """The names that the row of `ask` lists, in its `number`th list of several."""
    (row,) = re.findall(rf"^\| `{re.escape(ask)}` \| (.*) \|$", TEXT, re.MULTILINE)
    lists = [each for each in re.findall(r"`([^`]+)`", row) if re.fullmatch(r"\w+(, \w+)+", each)]
    return set(lists[number].split(", "))


class Served:
    """A daemon's service, and the state folder whose socket answers for it."""

    def __init__(self, place: Place, state: Path) -> None:
        self.place = place
        self.state = state

    async def ask(self, path: str, row: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What it answers."""
        return await asyncio.to_thread(asking.ask, folder_of(self.state), path, row)

    async def command(self, *words: str) -> tuple[int, list[str]]:
        """Exit code and lines of a command of `carpal hand`, as a person gives it."""
        ran = await asyncio.to_thread(carpal, *words, "--state-dir", str(self.state))
        return ran.returncode, (ran.stdout + ran.stderr).splitlines()


@asynccontextmanager
async def served(state: Path, **types: Any) -> AsyncIterator[Served]:
    async with (
        open_place(state, more=types) as place,
        answering(folder_of(state), routes_of.routes(standing_of(place))),
    ):
        yield Served(place, state)


def keys(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Those of all rows, which are the same in each."""
    (found,) = {tuple(sorted(row)) for row in rows}
    return set(found)


class Silent(BenchType):
    """A type that does not say which units it has."""

    def units(self) -> Any:
        raise UnitsUnknown("the rack is off")


async def test_units_have_the_fields_of_the_page_and_a_type_that_names_none_says_why(
    tmp_path: Path,
) -> None:
    bench, silent = BenchType(tmp_path / "bench"), Silent(tmp_path / "silent")
    async with served(tmp_path / "state", bench=bench, silent=silent) as it:
        told = await it.ask("/units")
        assert keys(told["units"]) == fields("GET /units")
        assert keys(told["unknown"]) == fields("GET /units", 1)
        code, lines = await it.command("units")
    assert code == 0
    assert lines[-1] == "silent  which units it has is not known: the rack is off"


async def test_of_two_types_with_a_unit_of_one_name_it_is_said_which_is_cleared(
    tmp_path: Path,
) -> None:
    one, two = BenchType(tmp_path / "one"), BenchType(tmp_path / "two")
    fails = two.folder / "fails-left"
    fails.write_text("no power")
    async with served(tmp_path / "state", bench=two, other=one) as it:
        await not_taken(it.place, "h")
        fails.unlink()
        with pytest.raises(BadInput, match="say of which type unit 'left' is: bench, other"):
            await it.ask("/units/clear", {"unit_id": "left"})
        code, lines = await it.command("units", "--clear", "left")
        assert (code, "say of which type" in lines[-1]) == (2, True)
        code, lines = await it.command("units", "--clear", "left", "--type", "bench")
        assert (code, lines) == (0, ["bench  left  kind=bench side=left  free"])
    assert one.log == []


async def test_what_clears_a_unit_goes_on_when_it_takes_long_and_units_tell_when_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = BenchType(tmp_path / "bench")
    fails, hangs = (bench.folder / f"{does}-left" for does in ("fails", "hangs"))
    fails.write_text("no power")
    monkeypatch.setattr(routes_of, "_STOP_WAIT", 0.1)
    async with served(tmp_path / "state", bench=bench) as it:
        await not_taken(it.place, "h")
        hangs.touch()
        monkeypatch.setattr(units, "RESET_LIMIT", 1.0)
        told = await it.ask("/units/clear", {"unit_id": "left"})
        assert told["done"] is False
        assert (await it.ask("/units"))["units"][0]["resetting"] is True
        async with asyncio.timeout(PATIENCE):
            while (row := (await it.ask("/units"))["units"][0])["resetting"]:
                pass
        assert "took longer than 1 s" in row["reason"]
        for each in (fails, hangs):
            each.unlink()
        assert (await it.ask("/units/clear", {"unit_id": "left"}))["done"] is True
        assert (await it.ask("/units"))["units"][0]["healthy"] is True


class Deaf(BenchType):
    """A type whose reset does not leave off when it is told to."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.over = asyncio.Event()

    async def reset(self, unit_id: str) -> None:
        while not self.over.is_set():
            try:
                await self.over.wait()
            except asyncio.CancelledError:
                continue


async def test_a_unit_whose_late_reset_does_not_leave_off_is_not_cleared_before_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "RESET_LIMIT", 0.1)
    deaf = Deaf(tmp_path / "bench")
    async with served(tmp_path / "state", bench=deaf) as it:
        assert "longer than 0.1 s" in (await not_taken(it.place, "h")).message
        code, lines = await it.command("units", "--clear", "left")
        assert (code, "a reset of it that was late still runs" in lines[-1]) == (1, True)
        deaf.over.set()
    async with served(tmp_path / "state", bench=BenchType(tmp_path / "bench")) as it:
        assert (await it.ask("/units"))["units"][0]["healthy"] is False, "it stays there"
        assert (await it.command("units", "--clear", "left"))[0] == 0


async def test_hands_drains_and_stops_have_the_fields_of_the_page_and_what_resists_is_an_exit_code(
    machine: Machine, one: FakeBrain
) -> None:
    kind = Resisting()
    async with machine.daemon(hand_type=kind):
        await (await one.link()).provision("h")
        await stands(machine, hands=1)
        folder = machine.files.folder

        async def ask(path: str, row: Mapping[str, Any] | None = None) -> dict[str, Any]:
            return await asyncio.to_thread(asking.ask, folder, path, row)

        assert keys((await ask("/hands"))["hands"]) == fields("GET /hands")
        assert set(await ask("/drain", {"reason": "new disk"})) == fields("POST /drain")
        ran = await asyncio.to_thread(carpal, "stop", "h", "--state-dir", str(machine.state))
        assert ran.returncode == 1
        assert "h: resists, and may still run\n0 stopped" in ran.stdout
        told = await ask("/stop", {"all": True})
        assert set(told) == fields("POST /stop")
        kind.resists = False


async def test_a_stop_that_takes_long_goes_on_and_may_be_asked_again(
    machine: Machine, one: FakeBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Late(Resisting):
        go = asyncio.Event()

        async def reap(self, hand_id: str, folder: Path) -> int:
            await self.go.wait()
            return 0

    monkeypatch.setattr(routes_of, "_STOP_WAIT", 0.1)
    late = Late()
    async with machine.daemon(hand_type=late):
        await (await one.link()).provision("h")
        folder, row = machine.files.folder, {"hand_id": "h"}
        first = await asyncio.to_thread(asking.ask, folder, "/stop", row)
        assert first == {"hands": ["h"], "done": False, "resist": []}
        late.go.set()
        await stands(machine, hands=0)
        with pytest.raises(CarpalError) as over:
            await asyncio.to_thread(asking.ask, folder, "/stop", row)
        assert over.value.reason is Reason.HAND_NOT_FOUND
