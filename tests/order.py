"""Files in which tests take long come first.

Workers take whole files, so a long one that comes last is run alone. How long a file takes is
guessed from what its tests say of themselves: which are slow, and what their limits are.
"""

from collections import defaultdict

import pytest

_QUICK = 0.05
"""Seconds of a test that says nothing."""
_OF_LIMIT = 0.05
"""Of its limit, what one takes that is slow or has a longer limit than others."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the files; the tests of each stay as they are."""
    usual = float(config.getini("timeout"))
    takes = defaultdict[str, float](float)
    for item in items:
        marker = item.get_closest_marker("timeout")
        limit = float(marker.args[0]) if marker else usual
        long = limit > usual or item.get_closest_marker("slow") is not None
        takes[item.path.as_posix()] += limit * _OF_LIMIT if long else _QUICK
    items.sort(key=lambda item: -takes[item.path.as_posix()])
