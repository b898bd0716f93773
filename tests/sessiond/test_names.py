"""Types and sources by their numbers: known again, whatever was forgotten."""

import pytest

from sessiond.rows import NewEvent
from sessiond.sql import events
from tests.sessiond.desk import BRAIN, Desk


def test_more_names_than_are_kept_are_stored_and_read_like_any_others(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_KEPT_NAMES", 3)
    desk.create()
    types = [f"user.type_{number}" for number in range(10)]
    for number, type in enumerate(types):
        desk.append("sesn_1", NewEvent(str(number), type, b"{}"))
    assert [event.type for event in desk.log()] == types
    assert {event.source for event in desk.log()} == {BRAIN.uri}
