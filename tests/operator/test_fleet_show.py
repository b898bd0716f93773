"""`carpal fleet show` tells all there is to know of one daemon."""

import json
from datetime import UTC, datetime

from carpal.operator.fleet_rows import daemon_row, daemon_text, details, details_text
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb
from tests.command import Command
from tests.operator.fakes import House

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
HOUR = 3600


def a_daemon() -> pb.GetDaemonResponse:
    """One that is linked, with a broken type, a hand, and a past."""
    began = int(NOW.timestamp()) - HOUR
    info = pb.DaemonInfo(
        daemon_id="box", state="connected", brain="b2", types=["android", "process"], pool="gpu",
        labels={"rack": "7"}, version="0.1.0", identity="spiffe://d/daemon/box",
        certificate_serial="1f", protocol_min=1, protocol_max=2, boot_id="boot", instance_id="inst",
    )  # fmt: skip
    info.capacity.hands, info.capacity.hands_max = 1, 4
    info.linked_since.FromSeconds(began)
    info.certificate_begins.FromSeconds(began - HOUR)
    info.certificate_expires.FromSeconds(began + 23 * HOUR)
    info.supported_until.FromDatetime(datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    past = info.links.add(brain="b1", why="LINK_SILENT")
    past.began.FromSeconds(began - 2 * HOUR)
    past.ended.FromSeconds(began - HOUR)
    info.links.add(brain="b1", why="unseen").began.FromSeconds(began - 9 * HOUR)
    hello = info.refused.add(brain="b2", reason="DAEMON_QUARANTINED", message="a clone")
    hello.time.FromSeconds(began)
    told = pb.GetDaemonResponse(daemon=info)
    broken = told.types.add(type="android", state=hand_pb2.PROBE_STATE_BROKEN, reason="start adb")
    broken.units.add(unit_id="phone", healthy=False)
    ready = hand_pb2.PROBE_STATE_READY
    told.types.add(type="process", state=ready, not_enforceable=["disk_bytes"])
    hand = told.hands.add(hand_id="hand_1", type="process", session_ids=["sesn_1"])
    hand.provisioned.FromSeconds(began)
    return told


def test_all_of_it_is_in_one_object() -> None:
    shown = details(a_daemon(), NOW)
    assert shown["linked_since"] == "2026-12-01T11:00:00.000Z"
    assert (shown["last_seen"], shown["supported_until"]) == (None, "2026-11-30")
    assert (shown["identity"], shown["certificate_serial"]) == ("spiffe://d/daemon/box", "1f")
    assert shown["protocols"] == [1, 2]
    android, process = shown["type_states"]
    assert (android["state"], android["reason"]) == ("broken", "start adb")
    assert (process["state"], process["not_enforceable"]) == ("ready", ["disk_bytes"])
    (hand,) = shown["hand_list"]
    assert (hand["session_ids"], hand["age_seconds"]) == (["sesn_1"], 3600.0)
    silent, unseen = shown["links"]
    assert (silent["ended"], silent["why"]) == ("2026-12-01T10:00:00.000Z", "LINK_SILENT")
    assert unseen["ended"] is None
    assert shown["refused"][0]["reason"] == "DAEMON_QUARANTINED"


def test_people_read_it_in_lines() -> None:
    text = details_text(details(a_daemon(), NOW), "2026-12-01")
    lines = {line.split(maxsplit=1)[0]: line for line in text.splitlines()}
    assert "b2 since 2026-12-01T11:00:00.000Z" in lines["brain"]
    assert "over, upgrade it" in lines["support"]
    assert "android: broken; start adb; unit phone free, not healthy" in text
    assert "process: ready; cannot enforce disk_bytes" in text
    assert "hand_1 (process) for sesn_1, 60 min 0 s old" in text
    assert "to ? at b1: unseen" in text


def test_of_a_daemon_that_is_gone_people_are_told_when_it_was_seen_last() -> None:
    info = pb.DaemonInfo(daemon_id="box", state="gone")
    info.last_seen.FromSeconds(int(NOW.timestamp()))
    info.links.add(brain="b1", why="cut")
    told = pb.GetDaemonResponse(daemon=info, unanswered="it is not linked")
    text = details_text(details(told, NOW), "2026-12-01")
    assert "none; last seen 2026-12-01T12:00:00.000Z at b1" in text
    assert "it does not say when it was released" in text


def test_a_list_says_until_when_each_is_supported_and_marks_what_is_over() -> None:
    row = daemon_row(a_daemon().daemon)
    assert "supported until 2026-11-30 (OVER: upgrade it)" in daemon_text(row, "2026-12-01")
    assert "OVER" not in daemon_text(row, "2026-11-30")
    assert "supported until ?" in daemon_text(daemon_row(pb.DaemonInfo()), "2026-11-30")


async def test_show_asks_a_live_brain(house: House, carpal: Command) -> None:
    house.brain.shown["box"] = a_daemon()
    async with house.serve_brain() as server:
        house.sessiond.lease("brain/brain-1", server.address)
        asked = await carpal("fleet", "show", "box", "--json")
        people = await carpal("fleet", "show", "box")
        missing = await carpal("fleet", "show", "nobody")
    assert json.loads(asked.stdout)["daemon_id"] == "box"
    assert people.stdout.startswith("daemon      box, connected")
    assert (missing.code, "carpal fleet ls" in missing.stderr) == (5, True)
