"""`carpal session why` as a command: reads a log, asks the fleet, shows no word of either."""

import json

import pytest

from carpal.v1 import orchestrator_pb2 as pb
from tests.command import Command
from tests.operator.fakes import House
from tests.operator.log import OPERATOR
from tests.operator.log import text as said

CANARY = "tell nobody: 4711 Main Street"


async def test_the_command_reads_the_log_and_the_fleet_and_answers(
    house: House, carpal: Command
) -> None:
    log = house.sessiond
    await log.append("sesn_1", "user.message", said(CANARY), source=OPERATOR)
    await log.append("sesn_1", "session.status_running")
    request = {"hand_id": "h", "name": "shell", "daemon": "box"}
    await log.append("sesn_1", "hand.provision_requested", request)
    await log.append("sesn_1", "session.status_idle", {"stop_reason": {"type": "refusal"}})
    house.brain.daemons = [pb.DaemonInfo(daemon_id="box", state="quarantined")]
    async with house.serve_brain() as server:
        log.lease("brain/brain-1", server.address)
        people = await carpal("session", "why", "sesn_1")
        asked = await carpal("session", "why", "sesn_1", "--json")
    assert people.code == 0, people.stderr
    assert "the model refused to go on" in people.stdout
    assert "An operator quarantined daemon box" in people.stdout
    assert people.stdout.splitlines()[-1].startswith("What to do: ")
    told = json.loads(asked.stdout)
    assert (told["session_id"], told["status"], told["healthy"]) == ("sesn_1", "idle", False)
    assert [each["kind"] for each in told["findings"]] == ["refusal", "daemon_quarantined"]
    assert CANARY not in people.stdout + asked.stdout


async def test_which_hands_there_are_is_read_also_where_a_long_log_began_with_it(
    house: House, carpal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("carpal.operator.why_command._EVENTS_MAX", 2)
    log = house.sessiond
    plans = {"hands": {"shell": {"type": "process"}}}
    await log.append("sesn_1", "session.updated", plans, source=OPERATOR)
    for _ in range(3):
        await log.append("sesn_1", "session.updated", {"limits": {}}, source=OPERATOR)
    await log.append("sesn_1", "user.message", said(CANARY), source=OPERATOR)
    await log.append("sesn_1", "session.status_running")
    house.brain.daemons = [pb.DaemonInfo(daemon_id="box", state="quarantined", types=["process"])]
    async with house.serve_brain() as server:
        log.lease("brain/brain-1", server.address)
        log.lease("session/sesn_1", server.address)
        ended = await carpal("session", "why", "sesn_1")
    assert ended.code == 0, ended.stderr
    assert "waits for a daemon that fits hand shell (process), since" in ended.stdout
    assert "daemon box would, and is in quarantine" in ended.stdout
    assert "Nothing is wrong" not in ended.stdout


async def test_without_a_brain_it_is_told_from_the_log_alone(house: House, carpal: Command) -> None:
    await house.sessiond.append("sesn_1", "user.message", said(CANARY), source=OPERATOR)
    house.sessiond.wakes["sesn_1"] = 1
    ended = await carpal("session", "why", "sesn_1")
    assert (ended.code, "No brain is live" in ended.stdout) == (0, True)
