"""What adb and phones say is read, and what they say wrongly is nothing."""

import pytest

from hands.android import said


def test_a_list_of_phones_is_read_also_behind_what_adb_says_first() -> None:
    data = (
        b"* daemon started successfully\nList of devices attached\n"
        b"R58M1\tdevice\r\n10.0.0.7:5555\toffline\nA1\tno permissions; see [http://x]\n"
        b"no tab\n\n\tdevice\nbad serial\tdevice\n\xff\xfe\tdevice\n"
        b"adb-1C041FDF6003RT-OUkqpK._adb-tls-connect._tcp\tdevice\n"
        + b"!" * 43
        + b"\tdevice\n"
        + b"x" * 129
        + b"\tdevice\n"
    )
    assert said.states(data) == {
        "R58M1": "device",
        "10.0.0.7:5555": "offline",
        "A1": "no permissions",
        "adb-1C041FDF6003RT-OUkqpK._adb-tls-connect._tcp": "device",
    }
    assert said.states(b"List of devices attached\n\n") == {}
    assert said.states(b"\x00\xff rubbish") is None
    assert said.states(b"") is None


@pytest.mark.parametrize("serial", ["R58M1", "10.0.0.7:5555", "a_b-c", "_3a", "!~", "x" * 40])
def test_the_id_of_a_unit_says_its_serial_and_no_other_has_it(serial: str) -> None:
    unit = said.unit_id(serial)
    assert said.serial_of(unit) == serial
    assert unit.replace("_", "").replace("-", "").isalnum()
    assert len(unit) <= 128


def test_a_line_is_the_last_that_says_something_without_what_moves_a_terminal() -> None:
    assert said.line(b"first\n\x1b[2Jlast\xff\r\n\n") == "\ufffd[2Jlast\ufffd"
    assert said.line(b"") == ""
    assert len(said.line(b"x" * 9000)) == said.LINE_MAX


def test_properties_are_lines_with_a_name_and_a_value_and_other_lines_are_none() -> None:
    data = b"[ro.a]: [x]\r\n[ro.b]: []\nrubbish\n[ro.c]: [y [z]]\n[: ]\n"
    assert said.properties(data) == {"ro.a": "x", "ro.b": "", "ro.c": "y [z]"}


def test_only_names_of_packages_are_packages() -> None:
    assert said.packages(b"package:com.a.b\npackage:x; rm\n\nnope\npackage:com.c\n") == [
        "com.a.b",
        "com.c",
    ]
    assert said.packages(b"com.d\n  com.e/.Main\n") == []
    listed = b"2 activities:\n  A #0:\n    p=0\n    com.a.b/.Main\n    com.a.b/x.Y\n  c.d/e;f\n"
    assert said.apps(listed) == {"com.a.b": "com.a.b/.Main"}
