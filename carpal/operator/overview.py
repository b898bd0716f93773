"""Where a session stands: its info and a few events → status, lease and hands. Pure."""

from collections.abc import Iterable, Mapping
from datetime import UTC, timedelta
from types import MappingProxyType
from typing import Any

from carpal.operator.attachment_rows import Attached
from carpal.operator.events import data_of, missing_hand, object_in, printable, rfc3339
from carpal.operator.waiting import Asked
from carpal.v1 import types_pb2

TYPES = ("session.updated", "hand.*")
"""Event types that say which hands there are."""


def is_live(lease: types_pb2.LeaseInfo) -> bool:
    """Whether somebody holds it now."""
    return bool(lease.holder) and lease.expires_in.ToTimedelta() > timedelta()


def status_of(info: types_pb2.SessionInfo) -> str:
    """`archived`, `running`, `parked`, `waiting` (for a brain) or `idle`."""
    if info.HasField("archived"):
        return "archived"
    if is_live(info.lease):
        return "running"
    if info.parked_reason:
        return "parked"
    return "waiting" if info.wake > info.processed else "idle"


def row(info: types_pb2.SessionInfo) -> dict[str, Any]:
    """A session as `session ls` shows it."""
    return {
        "session_id": info.session_id,
        "status": status_of(info),
        "created": rfc3339(info.created.ToDatetime(tzinfo=UTC)),
        "head": info.head.position,
        "processed": info.processed,
        "title": info.title,
    }


def row_text(row: dict[str, Any]) -> str:
    """That row for people."""
    return (
        f"{row['session_id']}  {row['status']:<8}  {row['created'][:19]}Z  "
        f"{row['head']:>6} events  {printable(row['title'])}"
    ).rstrip()


def details(
    info: types_pb2.SessionInfo,
    events: Iterable[types_pb2.Event],
    waiting: Iterable[Asked] = (),
    attachments: Iterable[Attached] = (),
) -> dict[str, Any]:
    """A session as `session show` shows it; `events` are all of `TYPES`, in order."""
    events = list(events)
    return {
        **row(info),
        "workspace": info.workspace,
        "parked_reason": info.parked_reason or None,
        "lease": _lease(info.lease),
        "hands": hands_of(events),
        "agent": agent_of(events),
        "waiting": [asked.row() for asked in waiting],
        "attachments": [each.row() for each in attachments],
    }


def details_text(
    shown: dict[str, Any], links: Mapping[Attached, str] = MappingProxyType({})
) -> str:
    """Those details for people, with a link to each picture that has one."""
    attachments = [Attached(**each) for each in shown["attachments"]]
    lease = shown["lease"]
    rows = [
        ("session", shown["session_id"]),
        ("title", shown["title"]),
        ("status", shown["status"]),
        ("why", shown["parked_reason"] or ""),
        ("created", shown["created"]),
        ("events", f"{shown['head']}, processed up to {shown['processed']}"),
        ("driver", f"{lease['holder']} at {lease['address']}, epoch {lease['epoch']}")
        if lease and lease["holder"]
        else ("driver", "none"),
        *(
            ("hand", " ".join(str(part) for part in (
                hand["name"], f"({hand['type']})", hand["state"], hand["hand_id"] or "",
                f"on {hand['daemon']}" if hand["daemon"] else "",
            ) if part) + (f": {' '.join(hand['why'].split())}" if hand["why"] else ""))
            for hand in shown["hands"]
        ),
        ("agent", _agent_text(shown["agent"])),
        *(("waits", f"{each.call_id}  {each.text()}") for each in _asked(shown["waiting"])),
        *(("attached", each.text(links.get(each, ""))) for each in attachments),
        ("", f"carpal session consent {shown['session_id']} has the user consent")
        if any(each.is_consent for each in _asked(shown["waiting"]))
        else ("", ""),
        ("", f"carpal session attachments {shown['session_id']} --out DIR saves what is attached")
        if shown["attachments"]
        else ("", ""),
    ]  # fmt: skip
    return "\n".join(f"{name:<8} {printable(str(value))}" for name, value in rows if value)


def agent_of(events: Iterable[types_pb2.Event]) -> dict[str, Any] | None:
    """Which agent drives it, by the newest event that says so: `name, version, model`."""
    said: dict[str, Any] | None = None
    for event in events:
        if event.type == "session.updated" and (agent := object_in(data_of(event), "agent")):
            said = {name: agent.get(name) for name in ("name", "version", "model")}
    return said


def _agent_text(agent: dict[str, Any] | None) -> str:
    if agent is None:
        return ""
    version = f", version {agent['version']}" if agent["version"] else ""
    return f"{agent['name']}{version}, model {agent['model']}"


def _asked(rows: list[dict[str, Any]]) -> list[Asked]:
    return [Asked(row["call"], row["hand"], row["name"], row["input"]) for row in rows]


def hands_of(events: Iterable[types_pb2.Event]) -> list[dict[str, Any]]:
    """The hands a session names, each with what became of the newest one provisioned for it.

    `state` is `not provisioned`, `provisioning`, `provisioned`, `failed`, `lost` or `released`;
    `why` says why one failed.
    """
    hands: dict[str, dict[str, Any]] = {}
    for event in events:
        data = data_of(event)
        if event.type == "session.updated":
            for name, plan in object_in(data, "hands").items():
                kind = plan.get("type") if isinstance(plan, dict) else None
                hands.setdefault(name, _unprovisioned(name, kind))["type"] = kind
        elif event.type in _STATES and isinstance(data.get("name"), str):
            name = data["name"]
            hand = hands.setdefault(name, _unprovisioned(name, data.get("type")))
            hand["state"] = _STATES[event.type]
            hand["hand_id"] = data.get("hand_id")
            hand["daemon"] = data.get("daemon") or hand["daemon"]
            failed = missing_hand(event, data)
            hand["why"] = failed[1] if failed else None
    return list(hands.values())


_STATES = {
    "hand.provision_requested": "provisioning",
    "hand.provisioned": "provisioned",
    "hand.provision_failed": "failed",
    "hand.lost": "lost",
    "hand.released": "released",
}


def _unprovisioned(name: str, kind: object) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "state": "not provisioned",
        "hand_id": None,
        "daemon": None,
        "why": None,
    }


def _lease(lease: types_pb2.LeaseInfo) -> dict[str, Any] | None:
    """The lease, live or last; None when nobody ever held it."""
    if not lease.epoch:
        return None
    live = is_live(lease)
    return {
        "holder": lease.holder if live else None,
        "address": lease.address if live else None,
        "epoch": lease.epoch,
        "expires_in": round(lease.expires_in.ToTimedelta().total_seconds(), 3) if live else None,
    }
