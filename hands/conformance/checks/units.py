"""Units: things of which one hand has one, as a daemon gives them or a server behind it resets."""

import asyncio
import json
import re

import grpc

from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Failed, Skipped, equal, must, refused
from hands.conformance.bench import Bench, number
from hands.conformance.group import Group
from hands.conformance.hand import HandAt
from hands.conformance.held import RESET

units = Group("units")

_ID = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_UNITS_MAX = 256
_LABELS_MAX = 64 * 1024
_MANY = 8
"""Hands at most that a check makes at once."""
_FREE = (
    "Reset a unit once its hand is released, with no word from anyone, and show it in Describe "
    "without holder, healthy."
)
_HELD = "Set `holder` of the hand's unit in Describe to its hand_id, from Provision to Release."
_NONE = "Name in Describe each unit there is now: without one no hand can be made."


@units()
async def units_named(bench: Bench) -> None:
    """Describe names units, each once, by an id and labels that a daemon takes."""
    named = bench.subject.type.units
    must(bool(named), "Describe names no unit", _NONE)
    must(len(named) <= _UNITS_MAX, f"there are {len(named)} units, more than {_UNITS_MAX}")
    ids = [each.unit_id for each in named]
    for unit_id in ids:
        must(_ID.fullmatch(unit_id) is not None, f"the id {unit_id!r} is not 1 to 128 of a-z, …")
    twice = sorted({each for each in ids if ids.count(each) > 1})
    must(not twice, f"two units are named {', '.join(twice)}")
    labels = {each.unit_id: dict(each.labels) for each in named}
    size = len(json.dumps(labels, ensure_ascii=False).encode())
    must(size <= _LABELS_MAX, f"their labels have {size} bytes, more than {_LABELS_MAX}")


@units(daemons=True, alone=True)
async def unit_alone(bench: Bench) -> None:
    """A unit is said to be its hand's, and no other's: who comes when none is free is refused."""
    labels, fits = await _fewest(bench)
    made: dict[str, HandAt] = {}
    for _ in fits:
        hand = await bench.hand(unit=labels)
        made[hand.hand_id] = hand
    shown = await bench.units()
    holders = sorted(shown[each].holder for each in fits)
    equal("the hands that hold them", holders, sorted(made))
    late = bench.order(unit=labels)
    with refused(Reason.AT_CAPACITY):
        await bench.provision(late, beyond=True)
    equal("the holders after that", sorted(each.holder for each in await _of(bench, fits)), holders)


@units(daemons=True, alone=True)
async def unit_freed(bench: Bench) -> None:
    """The unit of a hand that was released is free again, and healthy, and another hand's."""
    labels, fits = await _fewest(bench)
    for _ in fits:
        hand = await bench.hand(unit=labels)
    unit_id = await _unit_of(bench, hand)
    await hand.release()
    await _until_free(bench, unit_id)
    after = await bench.hand(unit=labels)
    equal("who has it then", (await bench.units())[unit_id].holder, after.hand_id)


@units(daemons=True)
async def labels_refused(bench: Bench) -> None:
    """Labels that no unit has are refused by the field that they came in."""
    with refused(Reason.INVALID_FIELD, field="config.unit"):
        await bench.provision(bench.order(unit={f"none-{number()}": "x"}))


@units(daemons=True, alone=True)
async def unit_kept(bench: Bench) -> None:
    """A server that is killed gives the unit of a hand that outlives it to no other."""
    own, hand = bench.own, await bench.hand()
    unit_id = await _unit_of(bench, hand)
    await own.kill()
    await own.start()
    await bench.dial()
    if "adopt" in bench.subject.capabilities:
        equal("its holder", (await bench.units())[unit_id].holder, hand.hand_id)
    else:
        await _until_free(bench, unit_id)


@units(alone=True)
async def unit_reset(bench: Bench) -> None:
    """A unit is reset whenever that is asked: again, before a hand and after one."""
    _check_asked(bench)
    for _ in range(2):
        hand = await bench.hand()
        unit_id = bench.held.unit_of(hand.hand_id)
        await hand.run(*bench.plain_call())
        await hand.release()
        await bench.reset(unit_id)


@units()
async def unknown_unit(bench: Bench) -> None:
    """A reset that cannot be is said: one of a unit that is not there is INVALID_ARGUMENT."""
    _check_asked(bench)
    unknown = f"none-{number()}"
    request = pb.ResetUnitRequest(type=bench.subject.type.type, unit_id=unknown)
    try:
        async with bench.waits.answer("ResetUnit"):
            await bench.stub.ResetUnit(request)
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise
        equal("the status", error.code().name, grpc.StatusCode.INVALID_ARGUMENT.name)
        must(bool(error.details()), "the status says nothing: it is shown with the unit")
    else:
        raise Failed("it was answered as if the unit had been reset")


def _check_asked(bench: Bench) -> None:
    if not bench.held.ours:
        raise Skipped("a daemon resets units by itself, and answers no ResetUnit")


async def _fewest(bench: Bench) -> tuple[dict[str, str], list[str]]:
    """The labels of a unit that fit as few as any, and the ids of all that they fit."""
    there = await bench.units()
    found: list[tuple[dict[str, str], list[str]]] = []
    for unit in there.values():
        wanted = dict(unit.labels).items()
        fits = [key for key, each in there.items() if wanted <= dict(each.labels).items()]
        if all(there[key].healthy and not there[key].holder for key in fits):
            found.append((dict(unit.labels), fits))
    if not found:
        raise Skipped("needs a unit that is healthy and free, with all others of its labels")
    labels, fits = min(found, key=lambda each: len(each[1]))
    if len(fits) > _MANY:
        raise Skipped(f"needs labels that at most {_MANY} units have; each has those of more")
    return labels, fits


async def _unit_of(bench: Bench, hand: HandAt) -> str:
    for unit_id, unit in (await bench.units()).items():
        if unit.holder == hand.hand_id:
            return unit_id
    raise Failed("Describe shows no unit whose holder is the hand", _HELD)


async def _of(bench: Bench, ids: list[str]) -> list[pb.UnitInfo]:
    shown = await bench.units()
    return [shown[each] for each in ids]


async def _until_free(bench: Bench, unit_id: str) -> None:
    async with bench.waits.within(RESET, f"unit {unit_id} was not free and healthy", _FREE):
        while (unit := (await bench.units())[unit_id]).holder or not unit.healthy:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.05)
