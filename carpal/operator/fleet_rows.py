"""How a daemon is shown: a row of `fleet ls`, and all of it for `fleet show`. Pure."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from carpal.operator.events import printable, rfc3339
from carpal.operator.timeline import duration
from carpal.v1 import hand_pb2, orchestrator_pb2

_PROBES = {
    hand_pb2.PROBE_STATE_READY: "ready",
    hand_pb2.PROBE_STATE_STARTING: "starting",
    hand_pb2.PROBE_STATE_BROKEN: "broken",
}


def daemon_row(info: orchestrator_pb2.DaemonInfo) -> dict[str, Any]:
    """A daemon as `fleet ls` shows it."""
    until = _time(info, "supported_until")
    return {
        "daemon_id": info.daemon_id,
        "state": info.state,
        "brain": info.brain or None,
        "types": list(info.types),
        "hands": info.capacity.hands,
        "labels": dict(info.labels),
        "certificate_expires": _time(info, "certificate_expires"),
        "pool": info.pool or None,
        "version": info.version or None,
        "supported_until": until and until[:10],
        "quarantine": info.quarantine or None,
        "revoked": info.revoked or None,
    }


def daemon_text(row: dict[str, Any], today: str) -> str:
    """That row for people; `today` is the day in UTC, as 2026-11-30."""
    labels = " ".join(f"{key}={value}" for key, value in sorted(row["labels"].items()))
    until = row["supported_until"]
    parts = [
        f"{row['daemon_id']:<20}",
        f"{row['state']:<9}",
        f"at {row['brain'] or 'no brain':<12}",
        f"{row['hands']} hands",
        f"types {','.join(row['types']) or 'none'}",
        f"certificate until {(row['certificate_expires'] or '?')[:16]}Z",
        f"supported until {until or '?'}{' (OVER: upgrade it)' if until and until < today else ''}",
        *([f"QUARANTINE: {row['quarantine']}"] if row["quarantine"] else []),
        *([f"REVOKED: {row['revoked']}"] if row["revoked"] else []),
        labels,
    ]
    return printable("  ".join(parts)).rstrip()


def details(told: orchestrator_pb2.GetDaemonResponse, now: datetime) -> dict[str, Any]:
    """A daemon as `fleet show` shows it."""
    info = told.daemon
    return {
        **daemon_row(info),
        "identity": info.identity or None,
        "certificate_serial": info.certificate_serial or None,
        "certificate_begins": _time(info, "certificate_begins"),
        "linked_since": _time(info, "linked_since"),
        "last_seen": _time(info, "last_seen"),
        "protocols": [info.protocol_min, info.protocol_max] if info.protocol_max else None,
        "boot_id": info.boot_id or None,
        "instance_id": info.instance_id or None,
        "capacity": {
            "hands": info.capacity.hands,
            "hands_max": info.capacity.hands_max,
            "draining": info.capacity.draining,
        },
        "unanswered": told.unanswered or None,
        "type_states": [_type(each) for each in told.types],
        "hand_list": [_hand(each, now) for each in told.hands],
        "links": [
            {
                "brain": each.brain or None,
                "began": _time(each, "began"),
                "ended": _time(each, "ended"),
                "why": each.why,
            }
            for each in info.links
        ],
        "refused": [
            {
                "time": _time(each, "time"),
                "brain": each.brain,
                "reason": each.reason,
                "message": each.message,
            }
            for each in info.refused
        ],
    }


def details_text(shown: dict[str, Any], today: str) -> str:
    """Those details for people."""
    until = shown["supported_until"]
    capacity, protocols = shown["capacity"], shown["protocols"]
    rows = [
        ("daemon", f"{shown['daemon_id']}, {shown['state']}"),
        ("identity", shown["identity"]),
        ("pool", shown["pool"]),
        ("labels", " ".join(f"{key}={value}" for key, value in sorted(shown["labels"].items()))),
        ("brain", f"{shown['brain']} since {shown['linked_since']}" if shown["linked_since"] else
         f"none; last seen {shown['last_seen'] or 'nobody knows when'}{_at(shown['links'])}"),
        ("serial", shown["certificate_serial"]),
        ("dates", f"{shown['certificate_begins']} to {shown['certificate_expires']}"),
        ("version", f"{shown['version']}, speaks contract versions "
         f"{'-'.join(map(str, protocols)) if protocols else '?'}"),
        ("support", f"until {until}{': over, upgrade it' if until < today else ''}" if until else
         "not known: it does not say when it was released"),
        ("quarantine", shown["quarantine"]),
        ("revoked", shown["revoked"]),
        ("room", f"{capacity['hands']} of {capacity['hands_max']} hands"
         f"{', takes no new ones' if capacity['draining'] else ''}"),
        ("unanswered", shown["unanswered"]),
        *(("type", _type_text(each)) for each in shown["type_states"]),
        *(("hand", _hand_text(each)) for each in shown["hand_list"]),
        *(("was linked", f"{each['began']} to {each['ended'] or '?'} at {each['brain']}: "
           f"{each['why']}") for each in shown["links"]),
        *(("refused", f"{each['time']} by {each['brain']}: {each['reason']}: {each['message']}")
          for each in shown["refused"]),
    ]  # fmt: skip
    return "\n".join(f"{name:<11} {printable(str(value))}" for name, value in rows if value)


def _at(links: list[dict[str, Any]]) -> str:
    return f" at {links[0]['brain']}" if links and links[0]["brain"] else ""


def _type(told: orchestrator_pb2.TypeState) -> dict[str, Any]:
    return {
        "type": told.type,
        "state": _PROBES.get(told.state),
        "reason": told.reason or None,
        "not_enforceable": list(told.not_enforceable),
        "capabilities": list(told.capabilities),
        "units": [
            {
                "unit_id": unit.unit_id,
                "labels": dict(unit.labels),
                "holder": unit.holder or None,
                "healthy": unit.healthy,
                "reason": unit.reason or None,
            }
            for unit in told.units
        ],
    }


def _type_text(told: dict[str, Any]) -> str:
    parts = [
        f"{told['type']}: {told['state'] or 'not asked'}",
        told["reason"],
        _listed("cannot enforce", told["not_enforceable"]),
        *(
            f"unit {unit['unit_id']} {'held' if unit['holder'] else 'free'}"
            f"{'' if unit['healthy'] else ', not healthy'}"
            for unit in told["units"]
        ),
    ]
    return "; ".join(part for part in parts if part)


def _listed(words: str, names: Iterable[str]) -> str:
    said = ", ".join(names)
    return f"{words} {said}" if said else ""


def _hand(hand: hand_pb2.HandInfo, now: datetime) -> dict[str, Any]:
    made = hand.provisioned.ToDatetime(tzinfo=UTC) if hand.HasField("provisioned") else None
    return {
        "hand_id": hand.hand_id,
        "type": hand.type,
        "session_ids": list(hand.session_ids),
        "age_seconds": round(max(0.0, (now - made).total_seconds()), 1) if made else None,
        "open_calls": list(hand.open_call_ids),
        "lost": hand.lost,
        "reason": hand.reason or None,
    }


def _hand_text(hand: dict[str, Any]) -> str:
    age = "?" if hand["age_seconds"] is None else duration(hand["age_seconds"])
    parts = [
        f"{hand['hand_id']} ({hand['type']}) for {', '.join(hand['session_ids']) or 'no session'}",
        f"{age} old",
        f"{len(hand['open_calls'])} open calls" if hand["open_calls"] else "",
        f"LOST: {hand['reason'] or 'no reason given'}" if hand["lost"] else "",
    ]
    return ", ".join(part for part in parts if part)


def _time(message: Any, field: str) -> str | None:
    if not message.HasField(field):
        return None
    moment: Timestamp = getattr(message, field)
    return rfc3339(moment.ToDatetime(tzinfo=UTC))
