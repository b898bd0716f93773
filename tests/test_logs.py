"""carpal.logs: lines that a person reads, a program parses and `carpal hand diag` recognises."""

import json
import logging
import subprocess
import sys
from pathlib import Path, PurePosixPath

from carpal.logs import ForMachines, ForPeople
from hands.diag.log_lines import kept

WHEN = 1_788_220_800.25
TIME = "2026-09-01T00:00:00.250000Z"
PEOPLE = ForPeople(colours=False)


def record(event: str, *, level: str = "INFO", **fields: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": "hands.app",
            "msg": event,
            "levelname": level,
            "created": WHEN,
            **fields,
        }
    )


def raised() -> logging.LogRecord:
    try:
        raise ValueError("no such thing")
    except ValueError:
        return record("it failed", level="ERROR", exc_info=sys.exc_info(), what="x")


def test_a_line_for_people_has_its_columns_and_then_the_fields_by_name() -> None:
    line = PEOPLE.format(record("serving", socket="/run/s", hands=3, by=PurePosixPath("/b")))
    assert line == (
        f"{TIME} [info     ] serving                        [hands.app]"
        " by=PurePosixPath('/b') hands=3 socket=/run/s"
    )


def test_a_value_that_a_reader_could_take_for_two_or_a_terminal_obey_is_quoted() -> None:
    line = PEOPLE.format(record("x", a="b c=d", e="\x1b[31m", f="one\ntwo", g="it's"))
    assert line.endswith(r"""a='b c=d' e='\x1b[31m' f='one\ntwo' g="it's" """.rstrip())


def test_a_traceback_stands_below_its_line_for_people_and_inside_it_for_machines() -> None:
    first, *rest = PEOPLE.format(raised()).splitlines()
    assert first.endswith("[hands.app] what=x")
    assert (rest[0], rest[-1]) == (
        "Traceback (most recent call last):",
        "ValueError: no such thing",
    )
    assert json.loads(ForMachines().format(raised()))["exception"].splitlines() == rest


def test_colours_change_nothing_but_the_colour() -> None:
    coloured = ForPeople(colours=True).format(record("serving", why="x", level="WARNING"))
    assert "\x1b[33m" in coloured
    plain = "serving                        [hands.app] why=x"
    for code in ("\x1b[33m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == f"{TIME} [warning  ] {plain}"


def test_a_line_for_machines_is_one_object_whatever_its_fields_are() -> None:
    line = ForMachines().format(record("a\nb", why="ü", path=PurePosixPath("/b"), n=None))
    assert "\n" not in line
    assert json.loads(line) == {
        "event": "a\nb",
        "level": "info",
        "logger": "hands.app",
        "timestamp": TIME,
        "why": "ü",
        "path": "PurePosixPath('/b')",
        "n": None,
    }


def test_a_daemons_own_words_are_recognised_in_both_kinds_of_line() -> None:
    ours = record("linked", address="127.0.0.1:7440", brain="b 1")
    shown = {
        line
        for form in (PEOPLE, ForMachines(), ForPeople(colours=True))
        for line in kept([form.format(ours)], lambda text: text)
    }
    assert shown == {f"{TIME} info linked [hands.app] address='127.0.0.1:7440' brain='b 1'"}


def test_records_go_to_stderr_from_the_level_that_is_set(tmp_path: Path) -> None:
    program = (
        "import logging\nfrom carpal import logs\n"
        "logs.setup(json=True, level='warning', of={'hands.a': 'debug'})\n"
        "for name in ('hands', 'hands.a.b'): logging.getLogger(name).debug('%s', name)\n"
        "logging.getLogger('hands').warning('told')\n"
        "logs.levels('error', {})\n"
        "for name in ('hands', 'hands.a.b'): logging.getLogger(name).warning('%s', name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == ""
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["hands.a.b", "told"]
