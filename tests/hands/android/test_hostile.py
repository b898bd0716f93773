"""Who would break it: phones that change and lie, and calls that mean more than they say."""

import json
import os
import signal
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from hands.android import said, typed
from hands.android.adb import Unreachable
from hands.android.hand import Android
from hands.api import ToolError
from hands.builtin.plugin import PluginType
from hands.journal import Journal
from tests.hands.android.conftest import TARGET, Held, Lab, Rack
from tests.hands.place import open_place, until
from tests.hands.test_restart import Child, child

TAP = "input tap 540 1200"
"""The middle of the phone's screen, as its shell is told."""
MIDDLE = [353, 784]


def named(lab: Lab) -> set[str]:
    """The units that the daemon knows."""
    return {each.unit_id for each in lab.place.inventory.units.infos("android")}


async def test_a_phone_that_goes_in_the_middle_of_a_tap_may_have_been_tapped_and_the_call_says_so(
    held: Held,
) -> None:
    held.lab.rack.faults(R58M1={"shell": "goes"})
    told = await held.fails("left_click", coordinate=MIDDLE)
    assert "the phone R58M1 is offline" in told
    assert "What was asked may have happened" in told
    assert len(held.phone["touched"]) == 1
    held.lab.rack.faults()
    held.lab.rack.phone("R58M1", state="device")
    await held.does("left_click", coordinate=MIDDLE)
    assert len(held.phone["touched"]) == 2


@pytest.mark.parametrize("how", ["closed", "slips"])
async def test_a_cable_that_slips_and_is_back_does_not_make_a_tap_one_that_was_not(
    held: Held, how: str
) -> None:
    held.lab.rack.faults(R58M1={"shell": how})
    for _ in range(2):
        told = await held.fails("left_click", coordinate=MIDDLE)
        assert "What was asked may have happened" in told
        assert "did not do it" not in told
    assert len(held.phone["touched"]) == 2
    result = await held.call("left_click", coordinate=MIDDLE)
    assert result.outcome == pb.OUTCOME_LOST


async def test_of_what_takes_several_steps_some_may_be_done_when_one_fails(held: Held) -> None:
    held.lab.rack.phone(held.serial, stuck=["keyevent"])
    told = await held.fails("type", text="a\nb")
    assert "the phone failed at it, and may have done a part: Error: no such thing" in told
    assert held.phone["typed"] == "a"
    held.lab.rack.phone(held.serial, stuck=[])
    await held.does("back")


async def test_of_two_taps_the_second_is_not_tried_when_the_first_fails(held: Held) -> None:
    held.lab.rack.phone(held.serial, once=["tap"])
    told = await held.fails("double_click", coordinate=MIDDLE)
    assert "may have done a part: Error: not this time" in told
    assert held.phone["touched"] == []


async def test_a_phone_that_comes_back_under_another_serial_is_another_phone(lab: Lab) -> None:
    held = await lab.hand("R58M1")
    changed = lab.rack.see("R58M1")
    lab.rack.unplug("R58M1")
    lab.rack.phone("R58M2", **changed)
    for _ in range(2):
        assert "the phone R58M1 is not connected: plug it in" in await held.fails("back")
    assert (await held.call("back")).outcome == pb.OUTCOME_LOST
    await until(lambda: "R58M2" in named(lab), "it is not named")
    other = await lab.hand("R58M2")
    assert await other.does("back") == "Went back."
    assert {each[1] for each in lab.rack.calls() if "KEYCODE_BACK" in str(each)} == {
        "R58M1",
        "R58M2",
    }


async def test_a_serial_of_nothing_but_signs_is_a_unit_and_no_option_or_command(lab: Lab) -> None:
    for serial in ("-H", "$(id>x)", "';id;'", "a/../b", "!" * 40):
        lab.rack.phone(serial)
        unit = said.unit_id(serial)
        await until(lambda unit=unit: unit in named(lab), "it is not named")
        held = await lab.hand(serial)
        assert await held.does("back") == "Went back."
        assert held.phone["keys"][-1] == ["KEYCODE_BACK", 0]
        await lab.place.release(held.hand)
        lab.rack.unplug(serial)


async def test_a_phone_of_wireless_debugging_whose_serial_is_long_is_a_unit(lab: Lab) -> None:
    serial = "adb-1C041FDF6003RT-OUkqpK._adb-tls-connect._tcp"
    lab.rack.phone(serial)
    await until(lambda: said.unit_id(serial) in named(lab), "it is not named")
    assert await (await lab.hand(serial)).does("back") == "Went back."


async def test_more_phones_than_a_daemon_may_name_are_asked_nothing(rack: Rack) -> None:
    for number in range(257):
        rack.phone(f"p{number}")
    with pytest.raises(Unreachable, match="adb names 259 phones, more than 256"):
        await Android.units()
    assert {each[2] for each in rack.calls()} == {"devices"}


async def test_what_floods_beside_an_answer_is_ended_in_time(held: Held) -> None:
    held.lab.rack.faults(R58M1={"shell": "scold"})
    assert "no answer within 10 s" in await held.fails("back")
    held.lab.rack.faults()
    await held.does("back")
    await held.lab.rack.nothing_runs()


EVIL = (
    "$(input tap 1 1)",
    "`input tap 1 1`",
    "a;input tap 1 1",
    "a && input tap 1 1 || x",
    "'\"'\"'; input tap 1 1 #",
    "\\'; input tap 1 1; \\'",
    "a\ninput tap 1 1\n$(input tap 1 1)",
    "%s$(input%stap%s1%s1)%s",
    "-h --help; input tap 1 1",
    "!! ~root * ? [a-z] {a,b} <(x) >x | y & z ${IFS}",
    "\\",
    "'",
    '"',
    "%",
    "%s",
    "%%s",
    "~",
)


async def test_no_text_that_is_typed_is_a_command_of_the_phone_s_shell(held: Held) -> None:
    for text in EVIL:
        held.lab.rack.phone(held.serial, typed="")
        await held.does("type", text=text)
        assert held.phone["typed"] == text
    for text in ("\U0001f600", "a\r", "\x1b[2J", "a\x7f", "\u2028"):
        assert "types only ASCII" in await held.fails("type", text=text)
    assert held.phone["touched"] == []


def test_text_of_more_lines_than_are_typed_in_time_is_refused_and_some_are_one_step() -> None:
    assert typed.steps("\n\n\t\n") == [
        "input keyevent KEYCODE_ENTER KEYCODE_ENTER KEYCODE_TAB KEYCODE_ENTER"
    ]
    assert len(typed.steps("\n" * 2000)) == 1
    assert len(typed.steps("a\n" * 100)) == 200
    for many in ("a\n" * 101, "%s" * 201):
        with pytest.raises(ToolError, match=r"is typed in 20[12] steps, more than 200"):
            typed.steps(many)


async def test_no_key_or_app_is_a_command_of_the_phone_s_shell(held: Held) -> None:
    for name in (
        "BACK; input tap 1 1",
        "$(input tap 1 1)",
        "a b",
        "",
        "+",
        "a+",
        "x" * 99999,
    ):
        assert "there is no key" in await held.fails("key", text=name)
        assert "there is no key" in await held.fails("hold_key", text=name, duration=1)
    evil = ["com.a'; input tap 1 1; '", "com.a;input tap 1 1", "$(input tap 1 1).b", "-n"]
    held.lab.rack.phone(held.serial, apps=[*evil, "com.example.notes"], own=evil)
    assert await held.does("list_apps") == "com.example.notes"
    for app in (*evil, "com.example.notes/.Main", "com.example.notes\n", "../x", "x" * 99999):
        assert "list_apps names all" in await held.fails("launch", app=app)
    assert await held.lab.place.release(held.hand)
    await until(lambda: held.lab.info("R58M1").holder == "", "it is not reset")
    assert held.lab.info("R58M1").reason == ""
    assert held.phone["touched"] == []


HUGE = 10**400
NUMBERS: list[tuple[str, str]] = [
    *(
        ("left_click", f'{{"coordinate": {each}}}')
        for each in (
            "[NaN, 1]",
            "[Infinity, 1]",
            "[1e999, 1]",
            "[-1, 0]",
            "[0, 1568]",
            "[1.5, 2]",
            '["1", "2"]',
            "[true, 1]",
            "[[1], 2]",
            "[1, 2, 3]",
            "[]",
            "null",
            "{}",
            f"[{HUGE}, 1]",
            f"[-{HUGE}, 1]",
            '["1;input tap 1 1", 1]',
        )
    ),
    *(
        (tool, f'{{"text": "a", "{field}": {each}}}')
        for tool, field in (
            ("hold_key", "duration"),
            ("key", "repeat"),
        )
        for each in ("NaN", "Infinity", "0", "-1", "101", "1.5", '"1"', "true", f"{HUGE}")
    ),
    *(
        ("long_press", f'{{"coordinate": [1, 1], "milliseconds": {each}}}')
        for each in (
            "NaN",
            "-1",
            "10001",
            f"{HUGE}",
        )
    ),
    *(
        ("scroll", f'{{"scroll_direction": "up", "scroll_amount": {each}}}')
        for each in (
            "NaN",
            "-1",
            "51",
            f"{HUGE}",
        )
    ),
]


async def test_a_number_that_is_none_or_out_of_bounds_touches_no_phone(held: Held) -> None:
    for tool, given in NUMBERS:
        request = held.lab.place.request(held.hand, tool)
        request.input = given.encode()
        said_why, outcome = "", pb.OUTCOME_ERROR
        try:
            result = (await held.lab.place.steps(request))[-1].result
            said_why, outcome = result.content, result.outcome
        except CarpalError as error:
            said_why = error.message
        assert outcome == pb.OUTCOME_ERROR, (given, said_why)
        assert 0 < len(said_why) < 2000, given
        assert "Traceback" not in said_why
    now = held.phone
    assert now["touched"] == now["swiped"] == []
    assert [key for key, _ in now["keys"] if key == "KEYCODE_A"] == []
    await held.does("back")


async def _tapping(daemon: Child, rack: Rack) -> pb.ExecuteRequest:
    driver = pb.Driver(session_id="s", epoch=1, workspace="default")
    config = json.dumps({"unit": {"serial": "R58M1"}}).encode()
    asked = pb.ProvisionRequest(driver=driver, hand_id="h", type="android", config=config)
    daemon.ask(provision=asked)
    while not (reply := await daemon.reply()).last:
        pass
    assert reply.provision.result.note, reply
    rack.faults(R58M1={"shell": "hang"})
    tap = pb.ExecuteRequest(driver=driver, hand_id="h", call_id="c", name="left_click")
    tap.input = json.dumps({"coordinate": MIDDLE}).encode()
    daemon.ask(execute=tap)
    await until((rack.programs / "children").exists, "the tap does not begin")
    await daemon.kill()
    return tap


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("whose", ["the daemon", "the daemon and the hand"])
async def test_a_tap_in_which_all_was_killed_is_told_as_what_may_have_happened_and_is_done_once(
    rack: Rack, tmp_path: Path, whose: str
) -> None:
    state = tmp_path / "state"
    async with child(state, {"CARPAL_TEST_PLUGIN": f"android={TARGET}"}) as daemon:
        tap = await _tapping(daemon, rack)
    if whose != "the daemon":
        journal = Journal(state / "journal.db")
        row = journal.hand("h")
        journal.close()
        assert row is not None
        os.kill(row.facts["pid"], signal.SIGKILL)
    async with open_place(state, more={"android": PluginType("android", TARGET)}) as place:
        result = (await place.steps(tap))[-1].result
        goes_on = whose == "the daemon"
        assert result.outcome == (pb.OUTCOME_ERROR if goes_on else pb.OUTCOME_INTERRUPTED)
        assert f"may have {'' if goes_on else 'partly '}happened" in result.content
        rack.faults()
    assert sum(each[1:] == ["R58M1", "shell", TAP] for each in rack.calls()) == 1
    await rack.nothing_runs()
