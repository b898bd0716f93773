"""A picture that a hand reads comes to the model as an image, whichever brain asks it."""

import base64
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from hands.pictures import header
from tests.command import Command
from tests.interaction.play import session
from tests.png import png
from tests.practice import requests_of
from tests.world import World, world


@pytest.fixture(scope="module")
async def looking(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A world whose practice model reads shot.png when it is asked to look."""
    folder = tmp_path_factory.mktemp("look")
    turns = [{"tools": [{"name": "read", "input": {"file_path": "shot.png"}}]}, {"text": "I see."}]
    script = folder / "look.yaml"
    script.write_text(json.dumps({"match": "[look]", "turns": turns}))
    async with world(folder / "state", brains=("b1", "b2"), scripts=(script,)) as running:
        yield running


async def shown(it: World, after: int = 0) -> list[list[dict[str, Any]]]:
    """The content of the one result in each request to the model that has one."""
    asked = await requests_of(it.running["practice"].facts["url"], after=after)
    return [
        block["content"]
        for each in asked
        for message in each["body"]["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


async def newest(it: World) -> int:
    """The number of the newest request to the model."""
    asked = await requests_of(it.running["practice"].facts["url"])
    return max((each["number"] for each in asked), default=0)


@pytest.mark.timeout(180)
async def test_the_model_is_sent_the_picture_again_and_again_also_by_the_next_brain_h46(
    looking: World, tmp_path: Path
) -> None:
    before = await newest(looking)
    picture = png(40, 30)
    (tmp_path / "shot.png").write_bytes(picture)
    async with session(looking, "[look] please", tmp_path) as made:
        idle = await made.until_type("session.status_idle")
        driver = idle.source.rpartition("/")[2]
        await looking.running[driver].kill(signal.SIGKILL)
        await made.say("and now?")
        await made.until_type("session.status_idle", idle.position)
    source = {
        "type": "base64",
        "media_type": "image/png",
        "data": base64.b64encode(picture).decode(),
    }
    contents = await shown(looking, before)
    assert len(contents) == 2
    for text, image in contents:
        assert text["text"].startswith(f"[image/png, {len(picture)} bytes, sha256 ")
        assert image == {"type": "image", "source": source}
    await looking.brain(driver)


async def test_the_request_is_made_again_with_the_picture_by_its_name_and_a_person_saves_it(
    looking: World, tmp_path: Path
) -> None:
    address = looking.running["sessiond"].facts["address"]
    environ = {"CARPAL_STATE": str(looking.state), "CARPAL_SESSIOND": address}
    carpal = Command(tmp_path, environ)
    (tmp_path / "shot.png").write_bytes(png())
    async with session(looking, "[look] again", tmp_path) as made:
        await made.until_type("session.status_idle")
        (result,) = made.data("agent.tool_result")
    (attached,) = result["attachments"]
    ended = await carpal("session", "request", made.session_id, "--n", "-1", "--json")
    assert ended.code == 0, ended.stderr
    rebuilt = json.loads(ended.stdout)
    assert rebuilt["same"]
    image = rebuilt["request"]["messages"][-1]["content"][0]["content"][1]
    assert image["source"]["data"] == attached["blob"]
    out = tmp_path / "saved"
    ended = await carpal("session", "attachments", made.session_id, "--out", str(out))
    assert ended.code == 0, ended.stderr
    (file,) = out.iterdir()
    assert file.name.endswith("-1-shot.png")
    assert file.read_bytes() == png()


async def test_a_large_picture_comes_scaled_and_one_that_cannot_be_is_said_to_be_left_out(
    looking: World, tmp_path: Path
) -> None:
    before = await newest(looking)
    for size in ((1920, 1080), (10_000, 10_000)):
        (tmp_path / "shot.png").write_bytes(png(*size))
        async with session(looking, "[look] closely", tmp_path) as made:
            await made.until_type("session.status_idle")
    (large, image), (huge,) = await shown(looking, before)
    assert "[shot.png: scaled from 1920x1080 to 1456x819]" in large["text"]
    data = base64.b64decode(image["source"]["data"])
    assert header.read(data) == header.Header("image/png", 1456, 819)
    assert "[shot.png is left out: it has 10000x10000 pixels, more than" in huge["text"]
