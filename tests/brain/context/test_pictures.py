"""Pictures that left hands stand in requests as images, the newest of many, at a known size."""

import base64
import hashlib
from itertools import pairwise
from typing import Any

import pytest

from brain import budget
from brain.context import pictures
from brain.context.request import next_reply
from brain.context.tokens import estimate
from brain.models import media
from brain.text import canonical
from tests.brain.context.chats import Json, check_fit, log_with, prefixes, whole_of
from tests.brain.logs import Log

PNG = b"\x89PNG and so on"


def attachment(number: int = 0, **more: Any) -> Json:
    """As the log says one."""
    blob = "sha256:" + hashlib.sha256(b"%d" % number).hexdigest()
    told = {"blob": blob, "media_type": "image/png", "size": len(PNG), "name": "shot.png"}
    return told | more


def looks(log: Log, *attached: Json, outcome: str = "ok") -> Json:
    """The model calls once, and what comes of it has these; the request that follows."""
    (call,) = log.reply(log.ask(), calls=("look",), stop="tool_use")
    log.result(call, "a picture", outcome, attachments=list(attached))
    return next_reply(log.transcript).request


def images(request: Json) -> list[Json]:
    """The sources of the images in the results of calls."""
    return [
        inner["source"]
        for message in request["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
        for inner in block["content"]
        if inner["type"] == "image"
    ]


def lines(request: Json) -> str:
    """The texts of the results of calls."""
    return "\n".join(
        inner["text"]
        for message in request["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
        for inner in block["content"]
        if inner["type"] == "text"
    )


def log_of(policy: str = "whole") -> Log:
    """One in which a person asked something."""
    log = log_with(policy=policy)
    log.say("look")
    return log


def test_a_picture_of_a_result_is_named_by_its_blob_and_sent_as_its_bytes() -> None:
    request = looks(log_of(), attachment())
    blob = attachment()["blob"]
    (source,) = images(request)
    assert source == {"type": "blob", "media_type": "image/png", "data": blob, "size": len(PNG)}
    assert list(media.blobs(request)) == [blob]
    sent = media.filled(request, {blob: PNG})
    data = base64.b64encode(PNG).decode()
    assert images(sent) == [{"type": "base64", "media_type": "image/png", "data": data}]
    assert lines(sent) == "a picture"
    assert "blob" not in canonical(sent).decode()
    check_fit(sent)


@pytest.mark.parametrize(
    "told",
    [
        {"media_type": "application/pdf", "name": "a.pdf"},
        {"media_type": "image/tiff"},
        {"size": 5_000_000},
        {"size": 0},
        {"size": "12"},
        {"blob": "sha256:none"},
        {"blob": None},
        {"media_type": ["image/png"]},
        {"name": ""},
    ],
    ids=str,
)
def test_what_cannot_be_shown_is_a_line(told: Json) -> None:
    request = looks(log_of(), attachment(**told))
    shown = told == {"name": ""}
    assert len(images(request)) == shown
    assert ("attached, and not shown]" in lines(request)) != shown


def test_the_result_of_a_call_that_failed_has_text_alone() -> None:
    request = looks(log_of(), attachment(), outcome="error")
    assert not images(request)
    assert "[shot.png: image/png, 14 bytes: attached, and not shown]" in lines(request)


@pytest.mark.parametrize("attached", ["x", {"a": 1}, [1, None, "x"]])
def test_attachments_that_are_none_are_passed_over(attached: Any) -> None:
    log = log_of()
    (call,) = log.reply(log.ask(), calls=("look",), stop="tool_use")
    log.result(call, "a picture", attachments=attached)
    assert lines(next_reply(log.transcript).request) == "a picture"


def test_a_late_result_shows_its_picture_too() -> None:
    log = log_of()
    (call,) = log.reply(log.ask(), calls=("look",), stop="tool_use")
    log.result(call, "given up", "interrupted", given_up=True)
    told = [{"type": "text", "text": "it ended"}]
    late = {"tool_use_id": call, "outcome": "ok", "content": told, "attachments": [attachment()]}
    log.add("hand.late_result", late)
    request = next_reply(log.transcript).request
    assert list(media.blobs(request)) == [attachment()["blob"]]


def test_a_person_names_no_blob() -> None:
    log = log_of()
    source = pictures.source("image/png", attachment()["blob"], 3)
    content = [{"type": "image", "source": source}]
    log.add("user.message", {"content": content, "attachments": [attachment()]})
    assert not media.blobs(next_reply(log.transcript).request)


def test_of_many_pictures_the_newest_are_shown_and_the_line_moves_seldom() -> None:
    log = log_of()
    requests = [looks(log, attachment(number)) for number in range(100)]
    counts = [len(images(request)) for request in requests]
    assert max(counts) == pictures.SHOWN_MAX
    assert min(counts[pictures.SHOWN_MAX :]) == pictures.SHOWN_MAX // 2
    for number, request in enumerate(requests):
        assert images(request)[-1]["data"] == attachment(number)["blob"]
        check_fit(request)
    moved = sum(whole_of(before) not in prefixes(after) for before, after in pairwise(requests))
    assert moved == 3
    assert "[left out: an older picture (image/png); it is at position 7 of" in lines(requests[-1])


def test_of_large_pictures_fewer_are_shown_but_always_the_newest() -> None:
    log, size = log_of(), 3_900_000
    for number in range(12):
        request = looks(log, attachment(number, size=size))
        shown = images(request)
        assert shown[-1]["data"] == attachment(number)["blob"]
        assert sum(each["size"] for each in shown) <= pictures.BYTES_MAX


def test_trim_leaves_an_old_picture_out_with_its_result() -> None:
    log = log_with(policy="trim", at_tokens=6000, keep_tokens=3000)
    log.say("look")
    for number in range(8):
        request = looks(log, attachment(number))
        log.reply(log.ask(), "I see " * 50)
        log.say("again")
    assert 1 <= len(images(request)) <= 4
    assert "of this result; all is at position" in lines(request)


def test_a_picture_counts_as_the_most_that_one_takes_whatever_its_bytes() -> None:
    small, large = (
        estimate({"type": "image", "source": pictures.source("image/png", "x" * 71, size)})
        for size in (100, 3_000_000)
    )
    assert small == large
    assert 1568 <= small <= 1800
    request = looks(log_of(), attachment())
    without = looks(log_of())
    more = [budget.estimate(each, len(canonical(each))) for each in (request, without)]
    assert 1568 <= more[0] - more[1] <= 2200


def test_a_picture_that_is_gone_or_refused_is_a_line_from_then_on() -> None:
    log = log_of()
    request = looks(log, attachment(1), attachment(2))
    gone, refused = (media.source_digest(block) for block in media.blobs(request).values())
    log.add("context.media_refused", {"sha256": [gone], "reason": media.GONE})
    log.add("context.media_refused", {"sha256": [refused], "reason": "too odd"})
    again = next_reply(log.transcript).request
    assert not images(again)
    assert f"[left out: {media.GONE}]" in lines(again)
    assert "[left out: the model's service refused this image: too odd]" in lines(again)


def test_a_refusal_is_of_the_picture_that_it_names_by_its_place() -> None:
    request = looks(log_of(), attachment(1), attachment(2))
    message = "messages.2.content.0.tool_result.content.2.image.source: Could not process image"
    second = media.source_digest(media.blobs(request)[attachment(2)["blob"]])
    assert media.refused(message, request) == [second]
