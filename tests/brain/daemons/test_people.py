"""Which hand a person means, by a session's log."""

import json

import pytest

from brain.daemons.people import Found, choose
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import types_pb2


def _log(*events: tuple[str, str, str]) -> list[types_pb2.Event]:
    """Newest first."""
    return [
        types_pb2.Event(
            type=kind,
            data=json.dumps({"hand_id": hand_id, "name": name, "daemon": "d"}).encode(),
        )
        for kind, hand_id, name in reversed(events)
    ]


LOG = _log(
    ("hand.provisioned", "h1", "shell"),
    ("hand.lost", "h1", "shell"),
    ("hand.provisioned", "h2", "shell"),
    ("hand.provisioned", "h3", "phone"),
    ("hand.released", "h3", "phone"),
    ("hand.provisioned", "h4", "browser"),
)


def test_a_name_means_its_live_hand_and_an_id_itself() -> None:
    assert choose(LOG, "shell") == Found("h2", "shell", "d")
    assert choose(LOG, "h4") == Found("h4", "browser", "d")


@pytest.mark.parametrize("wanted", ["", "phone", "h1", "none"])
def test_what_is_no_live_hand_or_not_the_only_one_is_refused_with_those_there_are(
    wanted: str,
) -> None:
    with pytest.raises(CarpalError) as caught:
        choose(LOG, wanted)
    assert caught.value.reason is Reason.HAND_NOT_FOUND
    assert "live: browser, shell" in str(caught.value)


def test_the_only_one_needs_no_name() -> None:
    assert choose(_log(("hand.provisioned", "h1", "shell")), "").hand_id == "h1"
    redacted = types_pb2.Event(type="hand.provisioned")
    with pytest.raises(CarpalError, match="none: a hand is made at its first call"):
        choose([redacted], "")
