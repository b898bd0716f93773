"""Hands that no daemon has yet: which daemons would fit, and what keeps each from it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from carpal.operator.events import object_in
from carpal.operator.story import Story
from carpal.operator.why_words import Finding, plain, when
from carpal.status import Reason
from carpal.v1 import orchestrator_pb2 as pb

_NAMES_MAX = 5
"""Daemons, and hands, that are named in a sentence."""

Plan = dict[str, Any]
"""A hand as its session names it: type, placement."""


def of_placement(told: Story, status: str, fleet: Sequence[pb.DaemonInfo]) -> Iterator[Finding]:
    """Findings for hands that wait for a daemon, and for those that got none; one a kind of hand.

    Nothing of hands that a connected daemon fits.
    """
    wanted = _waited_for(told) if status == "running" else {}
    for plan, names, since in _alike(told, wanted):
        if (kept := _kept(plan, fleet)) is not None:
            text = f"It waits for a daemon that fits {names}, since {when(since)}: {kept[0]}."
            yield Finding("no_daemon_yet", text, "daemon", since, next=kept[1], wrong=True)
    for plan, names, since in _alike(told, _refused(told)):
        if (kept := _kept(plan, fleet)) is not None:
            text = f"No daemon that is connected fits {names}, now either: {kept[0]}."
            yield Finding("no_daemon", text, "daemon", since, next=kept[1], wrong=True)


def _waited_for(told: Story) -> dict[str, datetime]:
    """Hands that a driven session can only be waiting for: name → since when.

    Before the model is first asked, the tools of each hand are learned, from a daemon that fits;
    after that, a call waits for its own hand.
    """
    found: dict[str, datetime] = {}
    unasked = told.asked is None and not (told.answered or told.model_failures or told.calls)
    if unasked and told.begun is not None and told.idle is None:
        missed = set(_refused(told))
        unknown = told.plans.keys() - told.offering - told.hands.keys() - missed
        found = dict.fromkeys(unknown, told.begun)
    for call in told.open_calls.values():
        name = str(call.data.get("hand"))
        asks = call.data.get("evaluated_permission") == "ask" and call.id not in told.decided
        if name in told.plans and name not in told.hands and not asks:
            found.setdefault(name, call.time)
    return found


def _refused(told: Story) -> dict[str, datetime]:
    """Hands for which no daemon was found in this turn: name → when that was said."""
    found = {}
    for fact in told.errors:
        if object_in(fact.data, "error").get("cause") == Reason.DAEMON_NOT_FOUND:
            found[str(fact.data.get("hand"))] = fact.time
    for fact in told.not_made:
        if fact.data.get("reason") == Reason.DAEMON_NOT_FOUND:
            found[str(fact.data.get("name"))] = fact.time
    return {name: since for name, since in found.items() if name not in told.hands}


def _alike(told: Story, hands: Mapping[str, datetime]) -> Iterator[tuple[Plan, str, datetime]]:
    """Hands of one type and placement together, in the order of the session: their names' words."""
    groups: dict[str, list[str]] = {}
    for name, plan in told.plans.items():
        if name in hands:
            what = repr((plan.get("type"), plan.get("placement")))
            groups.setdefault(what, []).append(name)
    for names in groups.values():
        plan = told.plans[names[0]]
        listed = ", ".join(map(plain, names[:_NAMES_MAX]))
        more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
        yield plan, f"hand {listed}{more} ({plain(plan.get('type'))})", hands[names[0]]


def _kept(plan: Plan, fleet: Sequence[pb.DaemonInfo]) -> tuple[str, str] | None:
    """What keeps the daemons that would fit, and what to do; None when one is connected."""
    fitting = [each for each in fleet if _fits(plan, each)]
    if any(each.state == "connected" for each in fitting):
        return None
    if not fitting:
        return (
            "of the daemons that are known, none would fit",
            "correct the hand's type or placement in the agent, or connect a daemon that fits: "
            "`carpal fleet token` lets one in",
        )
    rows = [_one(each) for each in fitting[:_NAMES_MAX]]
    words = "; ".join(row[0] for row in rows)
    if len(fitting) > _NAMES_MAX:
        words += f"; {len(fitting) - _NAMES_MAX} more would fit, and are not connected"
    return words, "; or ".join(row[1] for row in rows)


def _one(info: pb.DaemonInfo) -> tuple[str, str]:
    daemon = plain(info.daemon_id)
    would = f"daemon {daemon} would, and is"
    if info.revoked:
        step = f"enrol {daemon} anew with a token of `carpal fleet token --name {daemon}`"
        return f"{would} revoked", f"{step}, if that was not meant"
    if info.state == "quarantined":
        step = f"`carpal fleet quarantine {daemon} --lift` lets {daemon} link again (`carpal fleet "
        return f"{would} in quarantine", f"{step}show {daemon}` says why it may not)"
    if info.state == "draining":
        step = f"`carpal fleet drain {daemon} --lift` has {daemon} take new hands again"
        return f"{would} drained", step
    step = f"bring {daemon} back: look on its machine with `carpal hand doctor`"
    return f"{would} not linked", step


def _fits(plan: Plan, daemon: pb.DaemonInfo) -> bool:
    placement = object_in(plan, "placement")
    return (
        plan.get("type") in daemon.types
        and placement.get("daemon", daemon.daemon_id) == daemon.daemon_id
        and placement.get("pool", daemon.pool) == daemon.pool
        and all(
            daemon.labels.get(key) == value for key, value in object_in(placement, "labels").items()
        )
    )
