"""A picture that left a hand is read from the store as the model is asked; its bytes are sent."""

import asyncio
import hashlib

from google.protobuf.message import Message

from brain.models import media
from brain.runner import Runner
from brain.session import model_kinds
from carpal.v1 import hand_pb2
from tests.brain.said import Said, uses
from tests.brain.stage import WAIT, Stage, emit

PNG = b"\x89PNG\r\n\x1a\n and so on"


def shows(*pictures: bytes) -> Message:
    """The end of a call that attached these."""
    attached = [
        hand_pb2.Attachment(
            digest=hashlib.sha256(each).digest(), media_type="image/png", size=len(each), name="a"
        )
        for each in pictures
    ]
    made = hand_pb2.Result(
        outcome=hand_pb2.OUTCOME_OK, content="here", sequence=2, attachments=attached
    )
    return hand_pb2.ExecuteResponse(result=made)


def name_of(picture: bytes) -> str:
    """As the log names it."""
    return f"sha256:{hashlib.sha256(picture).hexdigest()}"


async def drive(stage: Stage, model: Said) -> None:
    """One drive."""
    async with asyncio.timeout(WAIT):
        await Runner(stage.driver, stage.fleet, stage.hub, model).run()


async def test_the_bytes_come_from_the_store_also_for_the_next_driver(driven: Stage) -> None:
    await driven.driver.keep(PNG, "image/png")
    driven.hands.script["execute"] = [[shows(PNG)]]
    model = Said()
    model.replies = [uses("look")]
    await drive(driven, model)
    head = driven.driver.transcript.head
    said = {"content": [{"type": "text", "text": "and now?"}]}
    await emit(driven.sessions, "sesn_1", "user.message", said)
    await driven.driver.until(lambda t: t.head > head)
    await drive(driven, model)
    assert model.contents == [{}, {name_of(PNG): PNG}, {name_of(PNG): PNG}]


async def test_of_a_picture_that_is_not_in_the_store_a_line_is_said_and_the_session_goes_on(
    driven: Stage,
) -> None:
    await driven.driver.keep(PNG, "image/png")
    driven.hands.script["execute"] = [[shows(b"never put", PNG)]]
    model = Said()
    model.replies = [uses("look")]
    await drive(driven, model)
    assert model.asked == 2
    (refused,) = [data for data in await driven.datas() if "sha256" in data]
    assert refused["reason"] == media.GONE
    assert len(refused["sha256"]) == 1
    assert model.contents[1] == {name_of(PNG): PNG}
    assert f"[left out: {media.GONE}]" in str(model.requests[1])
    kinds = await driven.kinds()
    assert kinds[-1] == "session.status_idle"
    assert model_kinds.MEDIA not in str(await driven.datas()), "no model call failed"


async def test_more_bytes_than_the_log_says_are_not_taken(driven: Stage) -> None:
    await driven.driver.keep(PNG, "image/png")
    assert await driven.driver.content(name_of(PNG), len(PNG)) == PNG
    assert await driven.driver.content(name_of(PNG), len(PNG) - 1) is None
    assert await driven.driver.content(name_of(b"another"), 100) is None
