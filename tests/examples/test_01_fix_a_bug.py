"""The example's script fits its files: the edit applies once, and it is what makes tests pass."""

import json
import subprocess
import sys
from pathlib import Path

from brain.practice.answer import ToolCall
from brain.practice.player import Player
from brain.practice.request import read_messages
from brain.practice.script import load_script
from tests.practice import user

HERE = Path(__file__).parents[2] / "examples" / "01_fix_a_bug"
SCRIPT = load_script(HERE / "script.yaml")
TASK = (HERE / "task.txt").read_text(encoding="utf-8")


def calls(name: str) -> list[ToolCall]:
    return [tool for turn in SCRIPT.turns for tool in turn.tools if tool.name == name]


def unittest(folder: Path) -> subprocess.CompletedProcess[str]:
    (command,) = {call.input["command"] for call in calls("bash")}
    assert command == "python3 -m unittest"
    return subprocess.run(
        [sys.executable, "-m", "unittest"],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=30,
    )


def copy(folder: Path) -> Path:
    for path in HERE.glob("*.py"):
        (folder / path.name).write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def test_the_script_is_played_for_the_task() -> None:
    raw = json.dumps({"model": "m", "max_tokens": 9, "messages": [user(TASK)]}).encode()
    assert Player([SCRIPT]).play(read_messages(raw)[1], raw).source == "fix_a_bug[0]"


def test_the_agent_reads_runs_edits_runs_and_reports() -> None:
    order = [[tool.name for tool in turn.tools] for turn in SCRIPT.turns]
    assert order == [["read", "read"], ["bash"], ["edit"], ["bash"], []]
    assert "not a model" in (SCRIPT.turns[-1].text or "")


def test_what_it_reads_is_there() -> None:
    assert [call.input for call in calls("read")] == [
        {"file_path": "stats.py"},
        {"file_path": "test_stats.py"},
    ]
    assert (HERE / "stats.py").is_file()
    assert (HERE / "test_stats.py").is_file()


def test_its_tests_fail_before_the_edit_and_pass_after_it(tmp_path: Path) -> None:
    folder = copy(tmp_path)
    before = unittest(folder)
    assert before.returncode == 1
    assert "FAILED (failures=1, errors=1)" in before.stderr
    (edit,) = calls("edit")
    path = folder / edit.input["file_path"]
    source = path.read_text(encoding="utf-8")
    assert source.count(edit.input["old_string"]) == 1
    path.write_text(
        source.replace(edit.input["old_string"], edit.input["new_string"]), encoding="utf-8"
    )
    after = unittest(folder)
    assert (after.returncode, after.stderr.splitlines()[-1]) == (0, "OK")


def test_the_edit_changes_the_length_of_the_file() -> None:
    # Bytecode is cached by the source's size and its time in whole seconds: an edit of
    # the same length within a second would run the old code.
    (edit,) = calls("edit")
    assert len(edit.input["new_string"]) != len(edit.input["old_string"])
