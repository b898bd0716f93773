"""The example is a harness that a brain finds by its entry point, and that needs the log alone."""

import importlib
import tomllib
from pathlib import Path

import pytest

from brain import harness
from brain.effects import CallModel, Emit, Execute, Failed, Finish, HarnessType, Replied, Sleep
from tests.brain.logs import Log
from tests.command import ROOT

HERE = ROOT / "examples" / "03_a_narrow_harness"
PAGE = ROOT / "docs" / "how-to" / "write-a-harness.md"


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HarnessType:
    """The example, as a brain finds it once it is installed."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    info = tmp_path / "carpal_nightly-0.1.0.dist-info"
    info.mkdir()
    (name, target), *_ = project["entry-points"]["carpal.harnesses"].items()
    (info / "entry_points.txt").write_text(f"[carpal.harnesses]\n{name} = {target}\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(HERE))
    importlib.invalidate_caches()
    harness.load.cache_clear()
    return harness.load(name)


def test_each_message_is_answered_by_one_model_call_without_tools(nightly: HarnessType) -> None:
    log = Log()
    log.say("disk is full")
    steps = nightly.start(log.transcript)
    call = next(steps)  # type: ignore[arg-type]
    assert isinstance(call, CallModel)
    assert (call.policy, call.through) == ("given/1", log.transcript.head)
    assert "disk is full" in str(call.request["messages"])
    assert "tools" not in call.request
    log.reply(log.ask(), "The disk is full.")
    assert steps.send(Replied("end_turn")) == Finish("end_turn")  # type: ignore[union-attr]


def test_it_goes_on_from_whatever_the_log_ends_with(nightly: HarnessType) -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("a",))
    assert next(nightly.start(log.transcript)) == Execute((call,))  # type: ignore[arg-type]
    log.result(call)
    assert isinstance(next(nightly.start(log.transcript)), CallModel)  # type: ignore[arg-type]


def test_a_failure_is_said_waited_for_and_tried_again(nightly: HarnessType) -> None:
    log = Log()
    log.say("go")
    steps = nightly.start(log.transcript)
    next(steps)  # type: ignore[arg-type]
    failed = Failed("model_overloaded_error", "busy", True, 7.0)
    said = steps.send(failed)  # type: ignore[union-attr]
    assert isinstance(said, Emit)
    assert said.data["error"]["retry_status"] == {"type": "retrying"}
    assert steps.send(3) == Sleep(7.0)  # type: ignore[union-attr]
    assert isinstance(steps.send(None), CallModel)  # type: ignore[union-attr]


def test_the_page_registers_the_harness_as_the_example_does() -> None:
    (line,) = [line for line in PAGE.read_text().splitlines() if line.startswith("nightly = ")]
    assert line in (HERE / "pyproject.toml").read_text()
