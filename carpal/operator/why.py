"""Why a session stands as it stands: its log and the fleet → findings, in sentences. Pure.

No one has to open a shell where user data is: what is told are ids, names of tools,
hands, daemons and brains, numbers and times, and never what anybody said.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from carpal.operator import story, why_fleet, why_place, why_turn
from carpal.operator.events import rfc3339
from carpal.operator.overview import is_live, status_of
from carpal.operator.story import Story
from carpal.operator.why_words import Finding, plain, when
from carpal.v1 import orchestrator_pb2, types_pb2


def why(
    info: types_pb2.SessionInfo,
    events: Iterable[types_pb2.Event],
    fleet: Sequence[orchestrator_pb2.DaemonInfo] | None,
    brains: int,
    now: datetime,
) -> list[Finding]:
    """The findings, how it stands first.

    `events` are the newest of `story.TYPES`, in order. `fleet` is what a brain told, None when
    none could be asked; `brains` is how many are live.
    """
    told = story.read(events)
    found = list(_standing(info, told, brains))
    if fleet is not None:
        found += why_place.of_placement(told, status_of(info), fleet)
    found += why_turn.of_people(told)
    found += why_turn.of_turn(told, status_of(info))
    if fleet is not None:
        known = {each.daemon_id: each for each in fleet}
        begun = told.begun or told.first or now
        found += why_fleet.of_hands(told.hands, known, begun, now)
    elif told.hands and brains:
        text = "No brain answered, so what is told of its daemons is from the log alone."
        found.append(Finding("fleet_unknown", text, next="ask again in a moment"))
    return found


def steps(found: Iterable[Finding]) -> list[str]:
    """What to do, each once, for what is wrong now before what is not."""
    ordered = sorted((each for each in found if each.next), key=lambda each: not each.wrong)
    return list(dict.fromkeys(each.next for each in ordered if each.next))


def report(info: types_pb2.SessionInfo, found: Sequence[Finding]) -> dict[str, Any]:
    """The answer as `--json` shows it."""
    return {
        "session_id": info.session_id,
        "status": status_of(info),
        "healthy": not any(each.wrong for each in found),
        "findings": [
            {
                "kind": each.kind,
                "layer": each.layer,
                "since": rfc3339(each.since) if each.since else None,
                "until": rfc3339(each.until) if each.until else None,
                "text": each.text,
                "next": each.next,
                "wrong": each.wrong,
            }
            for each in found
        ],
        "next": steps(found),
    }


def text(found: Sequence[Finding]) -> str:
    """The answer for people."""
    lines = [each.text for each in found]
    todo = steps(found)
    if not any(each.wrong for each in found) and all(step.startswith("nothing") for step in todo):
        lines.append("Nothing is wrong.")
    lines += [f"What to do: {step}." for step in todo or ["nothing"]]
    return "\n".join(lines)


def _standing(info: types_pb2.SessionInfo, told: Story, brains: int) -> Iterator[Finding]:
    status = status_of(info)
    if status == "archived":
        moment = info.archived.ToDatetime(tzinfo=UTC)
        yield Finding("archived", f"It is archived since {when(moment)}.", since=moment)
    elif status == "running":
        holder = plain(info.lease.holder.rpartition("/")[2])
        text = (
            f"Brain {holder} drives it, with a lease that is in force (epoch {info.lease.epoch})."
        )
        yield Finding("running", text, since=told.begun)
        yield from why_turn.doing(told)
    elif status == "parked":
        yield why_turn.parked(info, told)
    elif status == "waiting":
        yield from _waiting(info, told, brains)
    elif told.idle is None:
        yield Finding("new", "It is idle, and was never given anything to do.")
    else:
        yield why_turn.idle(told.idle, told)
    if not brains and status in ("running", "waiting"):
        yield Finding(
            "no_brain",
            "No brain is live, so nobody drives any session.",
            "harness",
            next="start one with `carpal brain run`, or see why those there are have no lease",
            wrong=True,
        )


def _waiting(info: types_pb2.SessionInfo, told: Story, brains: int) -> Iterator[Finding]:
    since = told.begun
    text = f"It has something to do (position {info.wake}) and no brain drives it"
    text += f", since {when(since)}." if since else "."
    if not brains:
        yield Finding("waiting", text, "harness", since, wrong=True)
        return
    if info.lease.epoch and not is_live(info.lease) and told.drivers and told.idle is None:
        text += f" Brain {plain(told.drivers[-1][0])} drove it last, and its lease ended."
    step = (
        "wait: a brain takes it within seconds, or up to a minute after a try that failed; if none "
        "does, look at the brains' logs, and whether `sessions_max` is reached"
    )
    yield Finding("waiting", text, "harness", since, next=step, wrong=False)
