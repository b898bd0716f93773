"""What the local socket is asked: how the daemon stands, to drain it, and to stop hands."""

import asyncio
from collections.abc import Mapping
from typing import Any

from carpal.errors import invalid, refuse
from carpal.status import Reason
from hands.inventory import Inventory
from hands.local import metrics
from hands.local.http import Answer, Handler, Request
from hands.local.status import Standing

_STOP_WAIT = 3.0
"""Seconds to wait for hands to end, or a unit to be reset; whoever asked may ask again."""
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def routes(standing: Standing) -> dict[str, Handler]:
    """Those of every daemon; what else it can be asked is added."""
    return {
        "GET /livez": lambda _: Answer.text("ok"),
        "GET /readyz": lambda _: _ready(standing),
        "GET /metrics": lambda _: Answer(metrics.text(standing).encode(), kind=_PROMETHEUS),
        "GET /status": lambda _: Answer.json(standing.row()),
        "GET /hands": lambda _: Answer.json({"hands": hand_rows(inventory_of(standing))}),
        "GET /units": lambda _: _units(inventory_of(standing)),
        "POST /units/clear": lambda request: _clear(request, inventory_of(standing)),
        "POST /stop": lambda request: _stop(request, inventory_of(standing)),
        "POST /drain": lambda request: _drain(request, inventory_of(standing)),
    }


async def _stop(request: Request, inventory: Inventory) -> Answer:
    asked: Mapping[str, Any] = request.fields(hand_id=str, all=bool)
    there = [row["hand_id"] for row in hand_rows(inventory)]
    named = asked.get("hand_id")
    if bool(asked.get("all")) == bool(named):
        raise refuse(Reason.INVALID_FIELD, "give `hand_id`, or `all`: true", field="hand_id")
    if named and named not in there:
        raise refuse(
            Reason.HAND_NOT_FOUND, f"no hand {named!r} runs here", action="see `carpal hand status`"
        )
    chosen = [named] if named else there
    stopping = asyncio.create_task(inventory.stop(chosen))
    done, _ = await asyncio.wait({stopping}, timeout=_STOP_WAIT)  # what takes longer goes on
    resist = stopping.result() if done else []
    return Answer.json({"hands": chosen, "done": bool(done), "resist": resist})


def _units(inventory: Inventory) -> Answer:
    units = inventory.units
    return Answer.json({"units": units.rows(), "unknown": units.unknown()})


async def _clear(request: Request, inventory: Inventory) -> Answer:
    asked: Mapping[str, Any] = request.fields(unit_id=str, type=str)
    unit_id = asked.get("unit_id")
    if not unit_id:
        raise invalid("unit_id", "say which unit; `carpal hand units` lists them")
    clearing = inventory.units.clear(unit_id, asked.get("type", ""))
    done, _ = await asyncio.wait({clearing}, timeout=_STOP_WAIT)  # what takes longer goes on
    return Answer.json({"unit_id": unit_id, "done": bool(done)})


def inventory_of(standing: Standing) -> Inventory:
    """Its hands. UNAVAILABLE before it has them."""
    if standing.inventory is None:
        raise refuse(
            Reason.UNAVAILABLE, f"the daemon starts: {standing.link.why.message}", action="ask soon"
        )
    return standing.inventory


def hand_rows(inventory: Inventory) -> list[dict[str, Any]]:
    """Each hand there is, and what it is at."""
    journal = inventory.journal
    rows = []
    for row in journal.hands():
        keeper = inventory.keepers.get(row.hand_id)
        if keeper is None and row.hand_id not in inventory.making:
            continue  # lost: nothing of it runs
        rows.append(
            {
                "hand_id": row.hand_id,
                "type": row.type,
                "state": "live" if keeper else "making",
                "sessions": journal.sessions_of(row.hand_id),
                "calls": list(keeper.open) if keeper else [],
            }
        )
    return rows


def _ready(standing: Standing) -> Answer:
    if not standing.link.is_linked:
        return Answer.text(f"not linked: {standing.link.why}", 503)
    if standing.inventory is not None and standing.inventory.draining:
        return Answer.text("draining: it takes no new hands", 503)
    if standing.inventory is not None and (why := standing.inventory.gate.problem):
        return Answer.text(f"the audit cannot be written: {why}", 503)
    return Answer.text("ok")


def _drain(request: Request, inventory: Inventory) -> Answer:
    asked: Mapping[str, Any] = request.fields(reason=str, lift=bool)
    if asked.get("lift"):
        inventory.lift()
    else:
        inventory.drain(asked.get("reason") or "said on this machine")
    return Answer.json({"draining": inventory.draining, "hands": inventory.count})
