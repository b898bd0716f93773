"""What a log proves once nothing runs any more: the exact input, and what a harness decides."""

import json
from pathlib import Path

import httpx2
import pytest

from tests.command import Command
from tests.interaction.play import session
from tests.world import World


@pytest.mark.timeout(180)
async def test_every_request_that_the_model_got_is_made_again_from_the_log(
    whole: World, tmp_path: Path
) -> None:
    url, address = (whole.running[name].facts for name in ("practice", "sessiond"))
    carpal = Command(
        tmp_path, {"CARPAL_STATE": str(whole.state), "CARPAL_SESSIOND": address["address"]}
    )
    async with httpx2.AsyncClient(base_url=url["url"], timeout=30) as http:
        before = (await http.get("/practice/requests")).json()["requests"]
        seen = max((each["number"] for each in before), default=0)
        async with session(whole, "$ echo one\n$ echo two") as made:
            await made.until_type("session.status_idle")
        after = (await http.get("/practice/requests", params={"after": seen})).json()["requests"]
    listed = await carpal("session", "request", made.session_id, "--json")
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [row["n"] for row in rows] == list(range(1, len(after) + 1))
    ended = await carpal("session", "request", made.session_id, "--n", "-1", "--json")
    assert ended.code == 0, ended.stderr
    rebuilt = json.loads(ended.stdout)
    assert rebuilt["same"]
    assert rebuilt["request"]["messages"] == after[-1]["body"]["messages"]
    replayed = json.loads((await carpal("session", "replay", made.session_id, "--json")).stdout)
    assert replayed["same"]
    assert replayed["decisions"] == len(rows) + 1, "each call of the model, and the end"


async def test_a_number_that_is_none_says_which_there_are(whole: World, tmp_path: Path) -> None:
    address = whole.running["sessiond"].facts["address"]
    carpal = Command(tmp_path, {"CARPAL_STATE": str(whole.state), "CARPAL_SESSIOND": address})
    async with session(whole, "hello") as made:
        await made.until_type("session.status_idle")
    ended = await carpal("session", "request", made.session_id, "--n", "7")
    assert (ended.code, "1 to 1" in ended.stderr) == (2, True)
    ended = await carpal("session", "replay", made.session_id, "--harness", "other")
    assert (ended.code, "tool_loop" in ended.stderr) == (2, True)
