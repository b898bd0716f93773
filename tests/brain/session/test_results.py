"""What the log says of a call that ended, and of one that never will."""

import json

import pytest

from brain.session.entries import Call, Hand
from brain.session.results import (
    NO_OUTPUT,
    TEXT_BYTES,
    gone,
    late_event,
    not_run,
    result_event,
    settled,
)
from carpal.layers import Layer
from carpal.v1 import hand_pb2

CALL = Call("c", 3, "bash", "shell", {}, "r")
HAND = Hand("hand_1", "shell", "process", "d1", {}, 600.0, 1)


def test_a_result_says_where_it_came_from_and_where_it_stands_in_the_journal() -> None:
    result = hand_pb2.Result(outcome=hand_pb2.OUTCOME_ERROR, content="no", exit_code=3, sequence=9)
    event = result_event(CALL, HAND, result)
    assert event.type == "agent.tool_result"
    assert event.data == {
        "tool_use_id": "c",
        "content": [{"type": "text", "text": "no"}],
        "is_error": True,
        "outcome": "error",
        "hand_id": "hand_1",
        "sequence": 9,
        "exit_code": 3,
        "layer": "hand",
    }


def test_a_result_without_an_exit_code_has_none() -> None:
    event = result_event(CALL, HAND, hand_pb2.Result(outcome=hand_pb2.OUTCOME_OK))
    assert "exit_code" not in event.data
    assert event.data["is_error"] is False


@pytest.mark.parametrize("text", ["x" * 2_000_000, "\x00" * 500_000, "€" * 700_000, '"' * 950_000])
def test_whatever_a_hand_says_fits_in_an_event(text: str) -> None:
    result = hand_pb2.Result(outcome=hand_pb2.OUTCOME_OK, content=text)
    data = result_event(CALL, HAND, result).data
    assert len(json.dumps(data, ensure_ascii=False).encode()) < TEXT_BYTES + 1000


@pytest.mark.parametrize(
    ("sent", "words"), [(True, "may have partly happened"), (False, "did not run")]
)
def test_a_lost_hands_call_says_whether_it_may_have_begun(sent: bool, words: str) -> None:
    data = gone(CALL, HAND, "why", sent=sent, failed=(Layer.HAND, "HAND_GONE")).data
    assert (data["outcome"], data["is_error"]) == ("lost", True)
    assert words in data["content"][0]["text"]


def test_a_call_settled_without_a_hand_names_none() -> None:
    assert "hand_id" not in settled(CALL, "error", "x").data
    assert "hand_id" not in not_run("c", "x", "TOOL_NOT_FOUND").data


@pytest.mark.parametrize(
    ("result", "failed"),
    [
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_OK), (None, None)),
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_CANCELLED), (None, None)),
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_ERROR), ("hand", None)),
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_TIMED_OUT), ("hand", None)),
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_LOST), ("hand", None)),
        (hand_pb2.Result(outcome=hand_pb2.OUTCOME_INTERRUPTED), ("daemon", None)),
        (hand_pb2.Result(), ("daemon", "outcome_unknown")),
        (
            hand_pb2.Result(outcome=hand_pb2.OUTCOME_ERROR, out_of_memory=True),
            ("hand", "out_of_memory"),
        ),
        (
            hand_pb2.Result(outcome=hand_pb2.OUTCOME_LOST, out_of_memory=True),
            ("hand", "out_of_memory"),
        ),
    ],
)
def test_a_result_from_a_hand_says_which_layer_failed(
    result: hand_pb2.Result, failed: tuple[str | None, str | None]
) -> None:
    data = result_event(CALL, HAND, result).data
    assert (data.get("layer"), data.get("cause")) == failed


def told(number: int, content: str = "hi") -> hand_pb2.Result:
    """A result of an outcome by its number on the wire, which this version may not know."""
    wire = bytes([8, number]) + hand_pb2.Result(content=content).SerializeToString()
    return hand_pb2.Result.FromString(wire)


def test_a_result_without_a_text_has_one_that_says_so() -> None:
    for event in (result_event(CALL, HAND, told(1, "")), late_event(CALL, HAND, told(1, ""))):
        assert event.data["content"][0]["text"].endswith(NO_OUTPUT)


@pytest.mark.parametrize("number", [0, 99])
def test_an_outcome_that_is_not_known_here_is_told_as_one_of_which_nobody_knows_the_rest(
    number: int,
) -> None:
    event = result_event(CALL, HAND, told(number))
    assert (event.data["outcome"], event.data["is_error"]) == ("interrupted", True)
    text = event.data["content"][0]["text"]
    assert "may have partly happened" in text
    assert text.endswith("hi")
    assert late_event(CALL, HAND, told(number)).data["outcome"] == "interrupted"


def test_a_change_of_a_kind_that_is_not_known_here_is_told_as_a_change() -> None:
    change = hand_pb2.FileChange.FromString(bytes([0x10, 77]))
    result = hand_pb2.Result(outcome=hand_pb2.OUTCOME_OK, content="x", files=[change])
    assert result_event(CALL, HAND, result).data["files"][0]["kind"] == "changed"


def test_what_a_result_has_attached_is_named_by_its_blob_h46() -> None:
    digest = bytes(range(32))
    image = hand_pb2.Attachment(digest=digest, media_type="image/png", size=7, name="a.png")
    short = hand_pb2.Attachment(digest=b"short", name="of no blob")
    result = hand_pb2.Result(
        outcome=hand_pb2.OUTCOME_OK, content="[attached]", attachments=[image, short]
    )
    assert result_event(CALL, HAND, result).data["attachments"] == [
        {"blob": f"sha256:{digest.hex()}", "media_type": "image/png", "size": 7, "name": "a.png"}
    ]


def test_any_number_of_attachments_fits_in_an_event() -> None:
    image = hand_pb2.Attachment(digest=bytes(32), media_type="\0" * 9000, size=7, name="€" * 9000)
    result = hand_pb2.Result(content="x" * 2_000_000, attachments=[image] * 1000)
    data = result_event(CALL, HAND, result).data
    assert len(data["attachments"]) == 20
    assert len(json.dumps(data, ensure_ascii=False).encode()) < TEXT_BYTES + 1000
