"""What the supervisor starts below it, without a supervisor."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from hands.inside import runner
from tests.pace import AT_ONCE


def _sleeps(_report: Callable[[runner.Report], None]) -> None:
    time.sleep(60)


def test_a_runner_that_does_not_end_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "_END_LIMIT", 0.1)
    children = runner.Children()
    started = children.fork(_sleeps, None)
    begun = time.monotonic()
    try:
        assert children.wait(started.pid) == -signal.SIGKILL
        assert time.monotonic() - begun < AT_ONCE
    finally:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
        os.close(started.report)
