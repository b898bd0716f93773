"""The exact input of every model call can be made again from the log alone."""

import json

import pytest

from brain.recorded.rebuilt import rebuild
from brain.recorded.recording import Recording
from brain.session.entries import Entry
from carpal.errors import CarpalError
from carpal.status import Reason
from tests.brain.recorded.recorder import Recorder


def test_each_request_of_a_session_is_made_again_to_the_byte() -> None:
    recorder = Recorder()
    recorder.say("go")
    first = recorder.turn(calls=("a", "b"))
    second = recorder.turn("done")
    recorder.say("more")
    third = recorder.turn("done again")
    recording = recorder.recording()
    rebuilt = [rebuild(recording, asked) for asked in recording.asked()]
    assert [json.loads(each.body) for each in rebuilt] == [first, second, third]
    assert all(each.same for each in rebuilt)


def test_what_came_while_the_model_wrote_is_not_in_the_request_that_it_answered() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.turn(calls=("a",), meanwhile="stop that")
    recorder.turn("done")
    recording = recorder.recording()
    first, second = (rebuild(recording, asked) for asked in recording.asked())
    assert b"stop that" not in first.body
    assert b"stop that" in second.body
    assert first.same
    assert second.same


def test_a_log_that_was_redacted_since_says_at_which_positions() -> None:
    recorder = Recorder()
    recorder.say("the password is x")
    recorder.turn("done")
    recording = recorder.recording()
    said = next(e for e in recording.entries if e.type == "user.message")
    gone = Entry(
        said.position, said.id, said.type, {"content": [{"type": "text", "text": "[redacted]"}]},
        redacted=True,
    )  # fmt: skip
    entries = [gone if e is said else e for e in recording.entries]
    (asked,) = recording.asked()
    rebuilt = rebuild(Recording(entries), asked)
    assert not rebuilt.same
    assert rebuilt.why == f"redacted since: {said.position}"


def test_code_that_makes_another_request_is_told_from_a_log_that_changed() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.turn("done")
    recording = recorder.recording()
    start = recording.asked()[0].start
    start.data["request_sha256"] = "0" * 64
    rebuilt = rebuild(recording, recording.asked()[0])
    assert not rebuilt.same
    assert "another request of the same log" in rebuilt.why


def test_a_policy_that_is_not_installed_is_named() -> None:
    recorder = Recorder()
    recorder.say("go")
    recorder.turn("done")
    recording = recorder.recording()
    recording.asked()[0].start.data["policy"] = "mine/7"
    with pytest.raises(CarpalError, match="mine/7") as caught:
        rebuild(recording, recording.asked()[0])
    assert caught.value.reason is Reason.CONFIG_INVALID
