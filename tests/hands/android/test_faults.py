"""Phones that hang, go, lie or are not allowed: a call says so, and the phone is looked at."""

import asyncio
import os
import shutil
import signal
import socket
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.android import adb, said
from hands.android.hand import Android
from hands.inside import tree
from tests.hands.android.conftest import TARGET, Held, Lab, Rack
from tests.hands.place import until
from tests.hands.plugins.written import probe
from tests.hands.test_restart import child

REAL = shutil.which("adb")
OTHER = "10.0.0.7:5555"


async def refused(lab: Lab, serial: str) -> CarpalError:
    with pytest.raises(CarpalError) as caught:
        await lab.hand(serial)
    return caught.value


async def cleared(lab: Lab, serial: str) -> None:
    await lab.place.inventory.units.clear(said.unit_id(serial))


STATES = {
    "unauthorized": "has not allowed this machine: unlock it, and accept what its screen asks",
    "no permissions (user in plugdev group; are your udev rules wrong?)": "may not be opened by",
    "recovery": "is in the state 'recovery': restart it",
}


@pytest.mark.parametrize("state", STATES)
async def test_a_phone_in_a_wrong_state_fails_calls_then_loses_its_hand_and_is_quarantined(
    lab: Lab, state: str
) -> None:
    held = await lab.hand("R58M1")
    lab.rack.phone("R58M1", state=state)
    why = f"the phone R58M1 {STATES[state]}"
    assert why in await held.fails("screenshot")
    assert "1 more times, and the hand is given up" in await held.fails("back")
    result = await held.call("list_apps")
    assert result.outcome == pb.OUTCOME_LOST
    assert f"did not answer 3 times in a row; the last time: {why}" in result.content
    await until(lambda: why in lab.info("R58M1").reason, "it is not quarantined")
    other = await lab.hand(OTHER)
    assert await other.does("back") == "Went back."
    lab.rack.phone("R58M1", state="device")
    await cleared(lab, "R58M1")
    assert (await lab.hand("R58M1")).note
    await lab.rack.nothing_runs()


async def test_a_phone_that_comes_back_in_between_goes_on_with_its_hand(held: Held) -> None:
    for _ in range(3):
        for _ in range(2):
            held.lab.rack.phone(held.serial, state="offline")
            assert "is offline: plug it in again, or restart it" in await held.fails("back")
        held.lab.rack.phone(held.serial, state="device")
        assert await held.does("back") == "Went back."


@pytest.mark.slow
@pytest.mark.timeout(150)
async def test_a_phone_that_was_unplugged_is_waited_for_and_then_quarantined(lab: Lab) -> None:
    held = await lab.hand("R58M1")
    lab.rack.phone("R58M1", state="offline")
    lab.rack.faults(R58M1={"shell": "fail"})
    for _ in range(2):
        assert "is offline" in await held.fails("back")
    assert (await held.call("back")).outcome == pb.OUTCOME_LOST
    await until(lambda: lab.info("R58M1").reason != "", "it is not quarantined")
    assert "is offline" in lab.info("R58M1").reason
    # One that comes while it is waited for is reset.
    lab.rack.faults()
    lab.rack.server(True)
    clearing = asyncio.ensure_future(cleared(lab, "R58M1"))
    waits = ["R58M1", "wait-for-device"]
    count = sum(each[1:] == waits for each in lab.rack.calls())
    await until(lambda: sum(each[1:] == waits for each in lab.rack.calls()) > count, "no wait")
    lab.rack.phone("R58M1", state="device")
    await clearing
    assert lab.info("R58M1").reason == ""
    await lab.rack.nothing_runs()


SHELLS = {
    "die": "ended by SIGKILL. What was asked may have happened: a screenshot shows",
    "flood": "more than 262144 bytes came",
    "fail": "adb: error: protocol fault (couldn't read status): Success. What was asked may have",
    "closed": "adb: error: closed. What was asked may have happened",
    "slips": "adb: it lost the phone meanwhile. What was asked may have happened",
}


async def test_a_call_of_adb_that_goes_wrong_says_how_and_the_next_goes_well(held: Held) -> None:
    for how, says in SHELLS.items():
        held.lab.rack.faults(R58M1={"shell": how})
        assert says in await held.fails("back")
        held.lab.rack.faults()
        assert await held.does("back") == "Went back."
    await held.lab.rack.nothing_runs()


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_phone_that_hangs_fails_the_call_in_time_and_leaves_nothing(held: Held) -> None:
    held.lab.rack.faults(R58M1={"shell": "hang", "exec-out": "hang"})
    assert "no answer within 10 s, and it was ended" in await held.fails("back")
    assert "no answer within 12 s, and it was ended" in await held.fails("screenshot")
    held.lab.rack.faults()
    assert await held.does("back") == "Went back."
    await held.lab.rack.nothing_runs()


PICTURES = {
    "cut": "the phone's screenshot is damaged, or cut: take it again",
    "damaged": "the phone's screenshot is damaged, or cut",
    "huge": "has 20000x20000 pixels, more than are scaled",
    "wide": "has 10000x10000 pixels, more than are scaled",
    "rubbish": "gave no screenshot, but '\ufffd\ufffd\ufffd[2J rubbish'",
    "flood": "more than 50331648 bytes came",
    "fail": "the phone made no screenshot: error: protocol fault",
    "die": "it was ended by SIGKILL",
}


async def test_a_screenshot_that_is_none_is_no_picture_and_the_next_one_is(held: Held) -> None:
    for how, says in PICTURES.items():
        held.lab.rack.faults(R58M1={"exec-out": how})
        result = await held.call("screenshot")
        assert (result.outcome, len(result.attachments)) == (pb.OUTCOME_ERROR, 0)
        assert says in result.content
        assert (await held.call("zoom", region=[0, 0, 9, 9])).outcome == pb.OUTCOME_ERROR
        held.lab.rack.faults()
        assert (await held.picture()).size == (706, 1568)
    await held.lab.rack.nothing_runs()


async def test_rubbish_of_a_phone_is_an_answer_that_misleads_nobody(held: Held) -> None:
    held.lab.rack.faults(R58M1={"shell": "rubbish"})
    assert "names no app that can be launched" in await held.fails("list_apps")
    assert "names no app" in await held.fails("launch", app="com.example.notes")


async def test_a_phone_that_still_starts_or_will_not_stop_its_apps_is_quarantined_and_says_so(
    lab: Lab,
) -> None:
    properties = lab.rack.see("R58M1")["properties"]
    lab.rack.phone("R58M1", properties={**properties, "sys.boot_completed": ""})
    error = await refused(lab, "R58M1")
    assert error.reason is Reason.PROVISION_FAILED
    assert "the phone R58M1 is still starting: try again in a minute" in error.message
    lab.rack.phone("R58M1", properties=properties)
    await cleared(lab, "R58M1")
    lab.rack.faults(**{OTHER: {"shell": "fail"}})
    assert "error: protocol fault" in (await refused(lab, OTHER)).message
    assert lab.info("R58M1").healthy
    assert not lab.info(OTHER).healthy


async def test_labels_are_plain_text_whatever_a_phone_says_it_is(lab: Lab) -> None:
    evil = "\x1b[31m\u202eevil" + "x" * 500
    lab.rack.phone("R58M1", properties={"ro.product.model": evil, "sys.boot_completed": "1"})
    lab.rack.phone("new one\n")
    lab.rack.phone("x" * 129)
    model = "[31mevil" + "x" * 32
    await until(lambda: lab.info("R58M1").labels["model"] == model, "it is not so")
    every = lab.place.inventory.units.infos("android")
    assert {each.labels["serial"] for each in every} == {"R58M1", OTHER}


@pytest.mark.slow
async def test_phones_are_named_again_when_adb_answers_again_and_the_probe_says_why_not(
    lab: Lab,
) -> None:
    kind = lab.kind
    for how, why in (
        ("hang", "adb devices: no answer within 4 s"),
        ("rubbish", "said what is no list"),
        ("fail", "said what is no list: error: protocol fault"),
    ):
        lab.rack.faults(all={"devices": how})
        await until(lambda why=why: why in kind.unnamed, "it is not said")
        assert why in (await probe(lab.place, "android")).reason
        assert lab.info("R58M1").healthy
        lab.rack.faults()
        await until(lambda: not kind.unnamed, "it is said for ever")
    await lab.rack.nothing_runs()


async def test_no_server_is_started_and_who_must_is_told_how(held: Held) -> None:
    rack = held.lab.rack
    rack.server(False)
    assert "run `adb start-server` as the daemon's user" in await held.fails("back")
    rack.server(True)
    assert await held.does("back") == "Went back."
    assert not [each for each in rack.calls() if each[2] == "start-server"]


async def test_without_adb_the_probe_says_what_to_install_and_there_are_no_phones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Android.probe() == adb.INSTALL
    assert "apt-get install adb" in adb.INSTALL
    assert await Android.units() == []
    with pytest.raises(adb.Unreachable, match="adb is not installed"):
        await adb.states()


@pytest.mark.slow
async def test_a_daemon_killed_while_it_asks_adb_takes_the_call_along(
    rack: Rack, tmp_path: Path
) -> None:
    rack.faults(all={"devices": "hang"})
    async with child(tmp_path / "state", {"CARPAL_TEST_PLUGIN": f"android={TARGET}"}):
        await until((rack.programs / "children").exists, "adb is not asked")
    await until(lambda: tree.find(rack.calls()[-1][0]) is None, "adb outlives the daemon")


@pytest.mark.slow
async def test_a_hand_killed_in_the_middle_of_a_call_leaves_nothing_and_its_phone_is_reset(
    lab: Lab,
) -> None:
    held = await lab.hand("R58M1")
    lab.rack.faults(R58M1={"shell": "hang"})
    call = lab.place.begin(lab.place.request(held.hand, "back"))
    await until((lab.rack.programs / "children").exists, "the call does not begin")
    lab.rack.faults()
    os.kill(lab.place.supervisor(held.hand), signal.SIGKILL)
    assert (await call.result()).outcome == pb.OUTCOME_LOST
    await until(lambda: lab.info("R58M1").holder == "", "its phone is not free")
    assert lab.info("R58M1").reason == ""
    await lab.rack.nothing_runs()


@pytest.mark.slow
@pytest.mark.skipif(REAL is None, reason="adb is missing: apt-get install adb")
async def test_debian_s_adb_starts_no_server_for_a_call_and_knows_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", port)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(adb.Unreachable, match="adb's server does not run"):
        await adb.states()
    assert list(tmp_path.iterdir()) == []
    assert (await adb._run(("start-server",), 6.0, 1000)).code == 0
    try:
        assert await adb.states() == {}
        with pytest.raises(adb.Unreachable, match="the phone none is not connected: plug it in"):
            await Android.reset("none")
    finally:
        await adb._run(("kill-server",), 5.0, 1000)
