"""Which tests run here: slow ones in CI or when named, and in CI a skip is a failure.

A test that lacks a part of the machine skips with a reason that names the part. The
report lists it. CI installs every part, so there the same skip fails the test.
"""

import os
from collections.abc import Generator

import pytest

IN_CI = os.environ.get("CI") == "true"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip slow tests, unless in CI, chosen by `-m`, or in a file named on the command line."""
    if IN_CI or "slow" in config.option.markexpr:
        return
    files = {argument.split("::")[0] for argument in config.args if ".py" in argument}
    for item in items:
        named = any(item.path.as_posix().endswith(file.removeprefix("./")) for file in files)
        if item.get_closest_marker("slow") and not named:
            item.add_marker(pytest.mark.skip(reason="slow: runs with CI=true, or when named"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI, turn a skipped test into a failed one."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """In CI, turn a skipped module into a failed one."""
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"left out, but CI has every part: {reason}"
