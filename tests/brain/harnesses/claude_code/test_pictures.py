"""Pictures of a session that Claude Code drives: they reach the model as they were given, or left
a hand."""

import base64
import struct
import zlib

import pytest

from tests.brain.harnesses.claude_code.conftest import (
    blocks,
    drive,
    say,
    take_over,
    texts,
)
from tests.brain.said import Said, uses
from tests.brain.stage import Stage, emit
from tests.brain.test_pictures_sent import PNG, name_of, shows

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
_DOT = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(side: int) -> str:
    """A grey square, in base64."""
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * side) * side)
    whole = _chunk(b"IHDR", header) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + whole).decode()


@pytest.mark.parametrize("data", [_DOT, png(9000), "AAAA"], ids=["small", "too large", "none"])
async def test_a_picture_that_a_person_gives_comes_to_the_model_as_it_is_in_every_process(
    driven: Stage, data: str
) -> None:
    """Whatever it is: what the model's service refuses of it is the log's to say."""
    source = {"type": "base64", "media_type": "image/png", "data": data}
    await take_over(driven)
    model = Said()
    head = driven.driver.transcript.head
    content = [{"type": "text", "text": "what is this?"}, {"type": "image", "source": source}]
    await emit(driven.sessions, "sesn_1", "user.message", {"content": content})
    await driven.driver.until(lambda t: t.head > head)
    await drive(driven, model)
    await say(driven, "and now?")
    await drive(driven, model)
    assert model.asked == 2
    for request in model.requests:
        (given,) = [block for block in blocks(request) if block["type"] == "image"]
        assert given["source"] == source
        assert "/tmp" not in str(texts(request)), "nor where on this machine it would be"


async def test_a_picture_of_a_result_comes_to_the_model_in_this_process_and_the_next(
    driven: Stage,
) -> None:
    await take_over(driven)
    await driven.driver.keep(PNG, "image/png")
    driven.hands.script["execute"] = [[shows(PNG)]]
    model = Said()
    model.replies = [uses("look")]
    await drive(driven, model)
    await say(driven, "and now?")
    await drive(driven, model)
    assert model.asked == 3
    assert model.contents == [{}, {name_of(PNG): PNG}, {name_of(PNG): PNG}]
    for request in model.requests[1:]:
        (result,) = [block for block in blocks(request) if block["type"] == "tool_result"]
        assert [each["type"] for each in result["content"]] == ["text", "image"]
        assert result["content"][1]["source"]["data"] == name_of(PNG)
    assert "context.conversation_retold" not in await driven.kinds()
