"""A model goes to a page, looks, and fills in a form, as Claude does: by the toolset it knows."""

import json
from pathlib import Path

import pytest

from carpal.browser_toolset import TOOLSET
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.site import site
from tests.interaction.play import session
from tests.practice import requests_of
from tests.world import world


@needs_browser
@pytest.mark.timeout(180)
async def test_a_model_uses_a_browser_hand_by_the_toolset_that_it_knows(tmp_path: Path) -> None:
    async with site() as there:
        calls = [
            ("navigate", {"url": there.url("/form")}),
            ("screenshot", {}),
            ("left_click", {"target": {"type": "ref", "ref": "e99"}}),
            ("find", {"query": "name field"}),
            ("new_tab", {}),
        ]
        turns = [{"tools": [{"name": name, "input": given}]} for name, given in calls]
        script = tmp_path / "browse.yaml"
        script.write_text(json.dumps({"match": "[browse]", "turns": [*turns, {"text": "Done."}]}))
        web = {"type": "browser", "config": {"egress": [there.rule]}}
        async with (
            world(tmp_path / "state", scripts=(script,)) as it,
            session(it, "[browse] please", hands=("web",), hand=web) as made,
        ):
            await made.until_type("session.status_idle", seconds=90)
            asked = await requests_of(it.running["practice"].facts["url"])
            results = made.results()
    assert "A form (HTTP 200)" in results[0]
    assert "any more" in results[2]
    assert 'textbox "Name"' in results[3]
    body = asked[-1]["body"]
    assert [tool["type"] for tool in body["tools"] if "type" in tool] == [TOOLSET]
    blocks = [block for message in body["messages"] for block in message["content"]]
    uses = [block for block in blocks if block["type"] == "tool_use"]
    assert [(use["name"], use["toolset_name"]) for use in uses] == [
        (name, "browser") for name, _ in calls
    ]
    answers = [block for block in blocks if block["type"] == "tool_result"]
    assert {answer["toolset_name"] for answer in answers} == {"browser"}
    kinds = [[inner["type"] for inner in answer["content"]] for answer in answers]
    assert kinds == [["text", "browser_state"], ["image"], ["text"], ["text"], ["browser_state"]]
