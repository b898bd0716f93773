"""The hand type `android`: what a phone shows and takes is what its tools say."""

from typing import Any

import pytest
from anthropic.lib.tools._toolsets._computer_inputs import COMPUTER_INPUT_TYPES
from anthropic.lib.tools._toolsets._computer_registry import COMPUTER_MEMBERS

from carpal.v1 import hand_pb2 as pb
from hands import computer
from hands.android.hand import Android
from hands.api import describe
from tests.hands.android.conftest import SEEN, SIZE, Held, Lab
from tests.hands.android.stand_in import COLOURS, LAUNCHER, MARK, OTHER
from tests.hands.place import until

MEMBERS = (
    *("screenshot", "zoom", "key", "hold_key", "wait", "type"),
    *("left_click", "double_click", "left_click_drag", "scroll"),
)
MIDDLE = [SEEN[0] // 2, SEEN[1] // 2]


def near(found: Any, wanted: Any, by: int = 60) -> bool:
    return all(abs(one - other) <= by for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", MEMBERS)
def test_a_computer_tools_member_takes_exactly_what_claude_was_taught(name: str) -> None:
    (told,) = [each for each in describe(Android)["tools"] if each["name"] == name]
    known = COMPUTER_INPUT_TYPES[name].model_json_schema()
    ours = told["input_schema"]

    def kind(part: dict[str, Any]) -> Any:
        plain = next((each for each in part.get("anyOf", ()) if each != {"type": "null"}), part)
        return plain["type"], plain.get("items"), plain.get("enum")

    assert {field: kind(part) for field, part in ours["properties"].items()} == {
        field: kind(part) for field, part in known["properties"].items()
    }
    assert set(ours["required"]) == set(known.get("required", ()))


def test_what_a_member_answers_is_what_claude_was_taught() -> None:
    ours = {
        "left_click": computer.CLICKED,
        "double_click": computer.DOUBLE_CLICKED,
        "left_click_drag": computer.DRAGGED,
        "type": computer.TYPED,
        "scroll": computer.scrolled("down"),
        "key": computer.pressed("a"),
        "hold_key": computer.held("a", 2),
        "wait": computer.waited(2),
    }
    given = {"text": "a", "duration": 2, "scroll_direction": "down"}
    for name, said in ours.items():
        assert said == (COMPUTER_MEMBERS[name].text or "").format(**given)


async def test_a_hand_has_the_phone_it_asks_for_by_a_label_and_says_which_it_is(lab: Lab) -> None:
    held = await lab.hand("10.0.0.7:5555")
    assert "Example Model 5 (10.0.0.7:5555), Android 14" in held.note
    assert f"{SEEN[0]}x{SEEN[1]} pixels" in held.note
    info = lab.info("10.0.0.7:5555")
    assert (info.holder, info.healthy) == (held.hand, True)
    assert dict(info.labels) == {
        "os": "android",
        "serial": "10.0.0.7:5555",
        "state": "device",
        "model": "Model 5",
        "manufacturer": "Example",
        "version": "14",
        "sdk": "34",
    }


async def test_a_tap_is_where_the_screenshot_shows_it_and_the_next_one_shows_that(
    held: Held,
) -> None:
    before = await held.picture()
    assert before.size == SEEN
    assert before.getpixel((300, 700)) == COLOURS[LAUNCHER]
    assert await held.does("left_click", coordinate=[300, 700]) == "Clicked."
    ((x, y),) = held.phone["touched"]
    assert near((x, y), (300.5 * SIZE[0] / SEEN[0], 700.5 * SIZE[1] / SEEN[1]), 1)
    after = await held.picture()
    assert after.getpixel((300, 700)) == MARK
    assert after.getpixel((300, 740)) == COLOURS[LAUNCHER]
    assert await held.does("double_click", coordinate=[0, 0]) == "Double-clicked."
    assert held.phone["touched"][1:] == [[0, 0], [0, 0]]
    await held.does("left_click", coordinate=[SEEN[0] - 1, SEEN[1] - 1])
    assert near(held.phone["touched"][-1], (SIZE[0] - 1, SIZE[1] - 1), 1)


async def test_a_zoom_shows_a_part_of_the_screen_larger_than_the_screenshot_does(
    held: Held,
) -> None:
    await held.does("left_click", coordinate=[100, 100])
    part = await held.picture("zoom", region=[50, 50, 150, 150])
    assert 600 <= part.size[0] <= 1568
    assert abs(part.size[0] - part.size[1]) <= part.size[0] // 50
    middle = part.size[0] // 2
    assert part.getpixel((middle, middle)) == MARK
    assert part.getpixel((5, 5)) == COLOURS[LAUNCHER]
    assert (await held.picture("zoom", region=[0, 0, *SEEN])).size == SEEN


async def test_a_screen_that_turned_is_seen_as_it_is_and_a_zoom_of_the_old_one_is_refused(
    held: Held,
) -> None:
    held.lab.rack.phone(held.serial, size=SIZE[::-1])
    assert "the screen was turned" in await held.fails("zoom", region=[0, 0, 50, 50])
    assert (await held.picture()).size == SEEN[::-1]
    await held.does("left_click", coordinate=[1500, 100])
    assert held.phone["touched"][-1][0] > SIZE[0]


async def test_a_small_screen_is_given_as_it_is(lab: Lab) -> None:
    lab.rack.phone("R58M1", size=[480, 800])
    held = await lab.hand("R58M1")
    assert (await held.picture()).size == (480, 800)
    await held.does("left_click", coordinate=[123, 456])
    assert held.phone["touched"] == [[123, 456]]


async def test_a_drag_is_a_swipe_and_a_long_press_one_that_stays(held: Held) -> None:
    given = {"start_coordinate": [100, 1000], "coordinate": [600, 200]}
    assert await held.does("left_click_drag", **given) == "Dragged."
    await held.does("long_press", coordinate=[100, 100], milliseconds=700)
    drag, press = held.phone["swiped"]
    assert (drag[0] < drag[2], drag[1] > drag[3]) == (True, True)
    assert press[:2] == press[2:4]
    assert press[4] == 700


async def test_a_scroll_moves_the_finger_the_other_way_and_as_far_as_it_says_off_the_edges(
    held: Held,
) -> None:
    for direction, axis, sign in (("down", 1, -1), ("up", 1, 1), ("right", 0, -1), ("left", 0, 1)):
        held.lab.rack.phone(held.serial, swiped=[])
        said = await held.does("scroll", scroll_direction=direction, scroll_amount=4)
        assert said == f"Scrolled {direction}."
        await held.does("scroll", scroll_direction=direction, scroll_amount=15, coordinate=[0, 0])
        length = SIZE[axis]
        ways = [(each[axis + 2] - each[axis]) * sign for each in held.phone["swiped"]]
        assert near(ways, [length * part / 10 for part in (4, 6, 6, 3)], 2)
        for each in held.phone["swiped"]:
            assert all(length * 0.09 <= at <= length * 0.91 for at in (each[axis], each[axis + 2]))
            assert each[1 - axis] == each[3 - axis]


async def test_keys_are_the_phone_s_own_and_a_keyboard_s_and_combinations(held: Held) -> None:
    begin = len(held.phone["keys"])
    assert await held.does("key", text="Back") == "Pressed Back."
    assert await held.does("key", text="BackSpace", repeat=3) == "Pressed BackSpace."
    await held.does("key", text="ctrl+a", repeat=2)
    assert await held.does("hold_key", text="VolumeUp", duration=2) == "Held VolumeUp for 2s."
    assert await held.does("back") == "Went back."
    assert held.phone["keys"][begin:] == [
        ["KEYCODE_BACK", 0],
        *[["KEYCODE_DEL", 0]] * 3,
        *[["KEYCODE_CTRL_LEFT+KEYCODE_A", 0]] * 2,
        ["KEYCODE_VOLUME_UP", 2000],
        ["KEYCODE_BACK", 0],
    ]


async def test_an_old_phone_says_what_it_cannot_and_presses_nothing(lab: Lab) -> None:
    lab.rack.phone("R58M1", old=True)
    held = await lab.hand("R58M1")
    before = held.phone["keys"]
    assert "presses no combinations" in await held.fails("key", text="ctrl+a")
    assert "for a given time" in await held.fails("hold_key", text="Up", duration=1)
    assert held.phone["keys"] == before


async def test_a_phone_that_did_not_say_what_it_knows_is_asked_again_the_next_time(
    lab: Lab,
) -> None:
    lab.rack.phone("R58M1")
    held = await lab.hand("R58M1")
    (lab.rack.programs / "mute").touch()
    assert "does not say what its `input` knows" in await held.fails("key", text="ctrl+a")
    await held.does("key", text="ctrl+a")


TEXTS = [
    "hello world",
    'it\'s 100% "quoted" & done; $(touch /tmp/x) `id` | > < \\ * ? ~ # ! {a,b}',
    "'; input tap 1 1; '",
    "%s and %%s and 5%special",
    "--flag -n",
    " two lines\nand a last one ",
]


async def test_what_is_typed_is_the_text_and_no_command_of_the_phone_s_shell(held: Held) -> None:
    for text in TEXTS:
        held.lab.rack.phone(held.serial, typed="")
        assert await held.does("type", text=text) == "Typed."
        assert held.phone["typed"] == text
    assert held.phone["touched"] == []


async def test_a_tab_is_a_key_and_text_that_a_phone_cannot_type_is_refused_and_said(
    held: Held,
) -> None:
    await held.does("type", text="a\tb")
    assert "KEYCODE_TAB" in [key for key, _ in held.phone["keys"]]
    said = await held.fails("type", text="na\u00efve \u2603")
    assert "types only ASCII" in said
    assert "\\xef (U+00EF), \\u2603 (U+2603)" in said
    assert "U+0000" in await held.fails("type", text="a\0b")
    assert "2001 characters are not 1 to 2000" in await held.fails("type", text="x" * 2001)
    assert held.phone["typed"] == "ab"


async def test_an_app_of_the_list_is_launched_and_is_what_the_screen_shows(held: Held) -> None:
    listed = await held.does("list_apps")
    assert listed == "com.android.settings\ncom.example.notes"
    assert await held.does("launch", app="com.example.notes") == "Launched com.example.notes."
    assert (await held.picture()).getpixel((9, 9)) == COLOURS["com.example.notes"]
    await held.does("launch", app="com.android.settings")
    assert (await held.picture()).getpixel((9, 9)) == OTHER
    before = held.phone["said"]
    for wrong in ("com.example.none", "a'; input tap 1 1; '", "-n", ""):
        assert "list_apps names all" in await held.fails("launch", app=wrong)
    asked = {each[0] for each in held.phone["said"][len(before) :]}
    assert asked <= {"cmd", "getprop"}  # the list, and its labels for the daemon
    held.lab.rack.phone(held.serial, broken=["com.example.notes"])
    said = await held.fails("launch", app="com.example.notes")
    assert "was not launched: Error: Activity class does not exist." in said


async def test_what_is_asked_wrongly_says_what_would_be_right(held: Held) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("left_click", {}, "coordinate: say where; a phone has no pointer"),
        ("left_click", {"coordinate": [1]}, "coordinate: must be two numbers"),
        ("left_click", {"coordinate": [706, 0]}, "is outside of the screenshot, which is 706x1568"),
        ("left_click", {"coordinate": [-1, 0]}, "coordinate: [-1, 0] is outside"),
        ("left_click", {"coordinate": [1, 1], "text": "ctrl"}, "text: no key can be held"),
        (
            "left_click_drag",
            {"start_coordinate": [0, 9999], "coordinate": MIDDLE},
            "start_coordinate: [0, 9999] is outside",
        ),
        ("scroll", {"scroll_direction": "up", "scroll_amount": 0}, "scroll_amount: 0 is not 1 to"),
        ("long_press", {"coordinate": MIDDLE, "milliseconds": 1}, "1 is not 300 to 10000"),
        ("key", {"text": "Ctrl+Nope"}, "there is no key 'Nope'; there are Back, Home"),
        ("key", {"text": "Back", "repeat": 101}, "repeat: 101 is not 1 to 100"),
        ("wait", {"duration": 101}, "duration: 101 is not 1 to 100"),
        ("zoom", {"region": [0, 0, 707, 10]}, "is no rectangle of a screenshot of 706x1568"),
    ]
    for tool, given, says in wrong:
        assert says in await held.fails(tool, **given), tool
    assert held.phone["touched"] == held.phone["swiped"] == []


async def test_what_ran_is_stopped_before_a_hand_and_after_it_and_nothing_is_wiped(
    lab: Lab,
) -> None:
    held = await lab.hand("R58M1")
    phone = held.phone
    assert (phone["running"], phone["front"]) == ([], LAUNCHER)
    await held.does("launch", app="com.example.notes")
    await lab.place.release(held.hand)
    await until(lambda: lab.info("R58M1").holder == "", "its phone is not free")
    phone = held.phone
    assert (phone["running"], phone["front"]) == ([], LAUNCHER)
    said = {" ".join(each[:2]) for each in phone["said"]}
    assert said == {
        *("getprop", "getprop sys.boot_completed", "pm list", "cmd package", "am force-stop"),
        *("am start", "input keyevent", "wm dismiss-keyguard", "screencap -p"),
    }
    await lab.rack.nothing_runs()


async def test_a_call_that_is_cancelled_ends_and_the_hand_goes_on(held: Held) -> None:
    held.lab.rack.faults(all={"shell": "hang"})
    result = await held.call("list_apps", limit=1.0)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    held.lab.rack.faults()
    assert "com.example.notes" in await held.does("list_apps")
    await held.lab.rack.nothing_runs()
