"""Units of a hand type: one hand a unit, reset before and after it, whoever is killed meanwhile."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.life import units
from tests.faults import Points
from tests.hands.bench_type import UNITS, BenchType
from tests.hands.fake_brain import FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.test_cli import carpal
from tests.hands.test_restart import DRIVER, child
from tests.hands.test_service import provision, refused


@pytest.fixture
def bench(tmp_path: Path) -> BenchType:
    return BenchType(tmp_path / "bench")


@contextlib.asynccontextmanager
async def opened(state: Path, bench: BenchType) -> AsyncIterator[Place]:
    async with open_place(state, more={"bench": bench}) as place:
        yield place


@pytest.fixture
async def two(tmp_path: Path, bench: BenchType) -> AsyncIterator[Place]:
    """A daemon with the bench's two units."""
    async with opened(tmp_path / "state", bench) as place:
        yield place


async def take(place: Place, hand_id: str, **config: Any) -> None:
    request = provision(place, hand_id, type="bench", config=json.dumps(config).encode())
    await place.provision(request)


async def not_taken(place: Place, hand_id: str, **config: Any) -> CarpalError:
    request = provision(place, hand_id, type="bench", config=json.dumps(config).encode())
    return await refused(place.service.provision(request))


async def shown(place: Place) -> dict[str, pb.UnitInfo]:
    types = (await place.service.describe(pb.DescribeRequest())).types
    return {each.unit_id: each for kind in types if kind.type == "bench" for each in kind.units}


async def holders(place: Place) -> dict[str, str]:
    return {unit_id: info.holder for unit_id, info in (await shown(place)).items()}


async def settled(place: Place) -> None:
    """Returns once no unit is being reset."""
    await until(
        lambda: not any(row["resetting"] for row in place.inventory.units.rows()), "still resets"
    )


def check_log(lines: list[str]) -> None:
    """Each hand got a unit that was reset for it, and had it alone until it was over."""
    state: dict[str, str] = {}
    for line in lines:
        what, *hand, unit = line.split()
        if what == "reset":
            assert state.get(unit, "reset") in ("reset", "over"), lines
        elif what == "made":
            assert state.get(unit) == "reset", lines
        else:
            assert state.get(unit) == f"made {hand[0]}", lines
        state[unit] = f"made {hand[0]}" if what == "made" else what


async def test_a_unit_has_one_hand_and_who_comes_when_none_is_free_hears_how_many_are_held(
    two: Place,
) -> None:
    await take(two, "h1")
    await take(two, "h2")
    assert await holders(two) == {"left": "h1", "right": "h2"}
    error = await not_taken(two, "h3")
    assert error.reason == Reason.AT_CAPACITY
    assert "2 held, 0 quarantined" in error.message
    assert "`carpal hand units`" in error.action
    await two.release("h1")
    await take(two, "h3")
    assert await holders(two) == {"left": "h3", "right": "h2"}


async def test_of_many_that_come_at_once_only_as_many_get_one_as_there_are(two: Place) -> None:
    came = await asyncio.gather(*(take(two, f"h{n}") for n in range(6)), return_exceptions=True)
    assert sum(each is None for each in came) == 2
    assert len(set((await holders(two)).values())) == 2


async def test_a_hand_gets_a_unit_with_the_labels_that_its_config_asks_for(
    two: Place, bench: BenchType
) -> None:
    await take(two, "h", unit={"side": "right", "kind": "bench"}, speed=3)
    assert await holders(two) == {"left": "", "right": "h"}
    assert bench.configs == [{"speed": 3}]
    error = await not_taken(two, "h2", unit={"side": "right"})
    assert error.reason == Reason.AT_CAPACITY
    assert "of 1 there are 1 held" in error.message
    assert dict((await shown(two))["left"].labels) == {"kind": "bench", "side": "left"}


@pytest.mark.parametrize("wanted", [{"side": "top"}, {"colour": "red"}, "left", {"side": 1}, None])
async def test_labels_that_no_unit_has_or_that_are_none_are_refused_by_the_field(
    two: Place, wanted: object
) -> None:
    error = await not_taken(two, "h", unit=wanted)
    assert error.reason == Reason.INVALID_FIELD
    assert error.fields["field"] == "config.unit"
    assert two.journal.hand("h") is None


async def test_describe_says_that_a_config_may_have_labels_and_a_type_without_units_has_no_such(
    two: Place,
) -> None:
    types = (await two.service.describe(pb.DescribeRequest())).types
    schemas = {each.type: json.loads(each.config_schema)["properties"] for each in types}
    assert set(schemas["bench"]) == {"speed", "unit"}
    assert "unit" not in schemas["process"]


async def test_a_unit_is_reset_before_its_hand_is_made_and_after_it_was_released(
    two: Place, bench: BenchType
) -> None:
    await take(two, "h")
    await two.release("h")
    assert bench.log == ["reset left", "made h left", "over h left", "reset left"]
    assert await holders(two) == {"left": "", "right": ""}


async def test_a_unit_is_reset_after_its_hand_was_lost(two: Place, bench: BenchType) -> None:
    await take(two, "h")
    bench.hands["h"].died.set()
    await until(lambda: len(bench.log) == 4, "not reset")
    await settled(two)
    assert bench.log[2:] == ["over h left", "reset left"]
    assert await holders(two) == {"left": "", "right": ""}


async def test_a_lost_hand_that_resists_keeps_its_unit_until_it_is_released(
    two: Place, bench: BenchType
) -> None:
    await take(two, "h")
    (bench.folder / "resists").touch()
    bench.hands["h"].died.set()
    await until(lambda: "h" not in two.inventory.keepers, "not lost")
    await settled(two)
    assert (await holders(two))["left"] == "h"
    (bench.folder / "resists").unlink()
    await two.release("h")
    assert await holders(two) == {"left": "", "right": ""}
    check_log(bench.log)


async def test_a_lost_hand_that_resisted_gives_its_unit_back_at_the_daemons_next_start(
    tmp_path: Path, bench: BenchType
) -> None:
    (bench.folder / "resists").touch()
    async with opened(tmp_path / "state", bench) as place:
        await take(place, "h")
        bench.hands["h"].died.set()
        await until(lambda: "h" not in place.inventory.keepers, "not lost")
        await settled(place)
        assert (await holders(place))["left"] == "h"
    (bench.folder / "resists").unlink()
    async with opened(tmp_path / "state", bench) as place:
        await settled(place)
        assert await holders(place) == {"left": "", "right": ""}


async def test_a_hand_that_is_not_made_gives_its_unit_back(two: Place, bench: BenchType) -> None:
    (bench.folder / "breaks").touch()
    for _ in range(3):
        error = await not_taken(two, "h")
        assert error.reason == Reason.PROVISION_FAILED
    assert await holders(two) == {"left": "", "right": ""}
    assert not any(row["resetting"] for row in two.inventory.units.rows())


async def test_a_restart_keeps_the_holder(tmp_path: Path, bench: BenchType) -> None:
    async with open_place(tmp_path / "state", more={"bench": bench}, end=False) as place:
        await take(place, "h")
    again = BenchType(bench.folder)
    async with opened(tmp_path / "state", again) as place:
        await settled(place)
        assert await holders(place) == {"left": "h", "right": ""}
        await take(place, "h2")
        assert (await not_taken(place, "h3")).reason == Reason.AT_CAPACITY
        await place.release("h")
        await settled(place)
    check_log(again.log)


async def test_a_unit_whose_reset_fails_is_quarantined_also_after_a_restart_until_it_is_cleared(
    tmp_path: Path, bench: BenchType
) -> None:
    state, fails = tmp_path / "state", bench.folder / "fails-left"
    fails.write_text("no power", encoding="utf-8")
    async with opened(state, bench) as place:
        error = await not_taken(place, "h")
        assert error.reason == Reason.PROVISION_FAILED
        assert "unit 'left'" in error.message
        assert "no power" in error.message
        await take(place, "h")  # the same hand, of the other unit
    async with opened(state, BenchType(bench.folder)) as place:
        info = (await shown(place))["left"]
        assert (info.healthy, info.holder) == (False, "")
        assert "no power" in info.reason
        assert "1 held, 1 quarantined" in (await not_taken(place, "h2")).message
        await place.inventory.units.clear("left")  # fails again, and stays there
        assert not (await shown(place))["left"].healthy
        fails.unlink()
        await place.inventory.units.clear("left")
        assert (await shown(place))["left"].healthy
        await take(place, "h2")
    check_log(bench.log)


async def test_a_unit_whose_reset_fails_after_a_hand_is_quarantined_and_the_hand_released(
    two: Place, bench: BenchType
) -> None:
    await take(two, "h")
    (bench.folder / "fails-left").write_text("dirty", encoding="utf-8")
    assert await two.release("h")
    assert "dirty" in (await shown(two))["left"].reason
    await take(two, "h2")
    assert await holders(two) == {"left": "", "right": "h2"}


async def test_a_unit_that_is_away_when_its_hand_ends_is_quarantined_until_it_is_back_and_cleared(
    two: Place, bench: BenchType
) -> None:
    await take(two, "h")
    bench.there = UNITS[1:]
    info = (await shown(two))["left"]
    assert (info.holder, info.healthy, info.reason) == ("h", False, "its type no longer names it")
    await two.release("h")
    assert not (await shown(two))["left"].healthy
    bench.there = UNITS
    assert not (await shown(two))["left"].healthy
    await two.inventory.units.clear("left")
    assert (await shown(two))["left"].healthy


async def test_a_late_reset_quarantines_its_unit(
    two: Place, bench: BenchType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "RESET_LIMIT", 0.1)
    (bench.folder / "hangs-left").touch()
    error = await not_taken(two, "h")
    assert "longer than 0.1 s" in error.message
    assert "longer than 0.1 s" in (await shown(two))["left"].reason


async def test_a_daemon_that_ends_during_a_reset_leaves_it_to_the_next(
    tmp_path: Path, bench: BenchType
) -> None:
    hangs = bench.folder / "hangs-left"
    async with opened(tmp_path / "state", bench) as place:
        await take(place, "h")
        hangs.touch()
        releasing = asyncio.create_task(place.release("h"))
        await until(lambda: place.inventory.units.rows()[0]["resetting"], "no reset begins")
    await asyncio.wait({releasing})
    hangs.unlink()
    async with opened(tmp_path / "state", BenchType(bench.folder)) as place:
        await settled(place)
        assert await holders(place) == {"left": "", "right": ""}
    check_log(bench.log)
    assert bench.log[-1] == "reset left"


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    [
        "hand.before_provisioning",
        "hand.provisioning",
        "unit.reset",
        "hand.before_provisioned",
        "hand.provisioned",
    ],
)
async def test_a_daemon_killed_as_it_makes_a_hand_gives_its_unit_to_nobody_else(
    tmp_path: Path, bench: BenchType, step: str
) -> None:
    await _killed(tmp_path, bench, f"daemon.{step}", then_release=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step",
    ["hand.before_released", "hand.released", "unit.reset", "unit.before_freed", "unit.freed"],
)
async def test_a_daemon_killed_as_it_ends_a_hand_gives_its_unit_to_others_only_once_it_is_reset(
    tmp_path: Path, bench: BenchType, step: str
) -> None:
    await _killed(tmp_path, bench, f"daemon.{step}", then_release=True)


async def _killed(tmp_path: Path, bench: BenchType, point: str, *, then_release: bool) -> None:
    state, points = tmp_path / "state", Points(tmp_path / "points")
    environ = {**points.environ, "CARPAL_TEST_BENCH": str(bench.folder)}
    wanted = pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="bench", config=b"{}")
    async with child(state, environ) as daemon:
        if then_release:
            daemon.ask(provision=wanted)
            while not (await daemon.reply()).last:
                pass
        points.arm(point, "kill")
        if then_release:
            daemon.ask(release=pb.ReleaseRequest(driver=DRIVER, hand_id="h"))
        else:
            daemon.ask(provision=wanted)
        await points.reached(point, PATIENCE)
    async with opened(state, bench) as place:
        # At once: what is not free yet is refused, and nothing is given twice.
        early = [await _try(place, f"early{n}") for n in range(3)]
        assert sum(early) <= 2
        await settled(place)
        if then_release:
            await place.release("h")
        else:
            await _try(place, "h")
        taken = [hand_id for hand_id in (await holders(place)).values() if hand_id]
        assert len(set(taken)) == len(taken) >= 1
        while len(taken) < 2:
            taken.append(f"late{len(taken)}")
            await take(place, taken[-1])
        assert (await not_taken(place, "none")).reason == Reason.AT_CAPACITY
        assert sorted((await holders(place)).values()) == sorted(taken)
    check_log(bench.log)


async def _try(place: Place, hand_id: str) -> bool:
    try:
        await take(place, hand_id)
    except CarpalError as error:
        if error.reason != Reason.AT_CAPACITY:
            raise
        return False
    return True


@pytest.mark.slow
async def test_units_are_shown_on_the_machine_and_cleared_there(
    machine: Machine, one: FakeBrain, bench: BenchType
) -> None:
    async def units_(*what: str) -> tuple[int, str]:
        given = ("units", *what, "--state-dir", str(machine.state))
        ran = await asyncio.to_thread(carpal, *given)
        return ran.returncode, ran.stdout + ran.stderr

    fails = bench.folder / "fails-left"
    fails.write_text("no power", encoding="utf-8")
    async with machine.daemon(hand_type=bench):
        asked = await one.link()
        with pytest.raises(CarpalError):
            await asked.provision("h")
        await asked.provision("h")
        code, text = await units_()
        assert code == 0
        assert "left  kind=bench side=left  QUARANTINE: its reset failed: no power" in text
        assert "right  kind=bench side=right  held by h" in text
        _, told = await units_("--json")
        left, right = json.loads(told)["units"]
        assert (left["healthy"], right["healthy"], right["holder"]) == (False, True, "h")
        code, text = await units_("--clear", "left")
        assert (code, "QUARANTINE" in text) == (1, True)
        fails.unlink()
        code, text = await units_("--clear", "left")
        assert (code, "left  kind=bench side=left  free" in text) == (0, True)
        code, text = await units_("--clear", "left")
        assert code != 0
        assert "not in quarantine" in text
        code, text = await units_("--clear", "middle")
        assert code != 0
        assert "no unit 'middle'" in text
