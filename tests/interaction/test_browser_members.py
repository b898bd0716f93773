"""Each member's answer of a real browser hand, as the Messages API is sent it, by its shape."""

from pathlib import Path
from typing import Any

import pytest
from anthropic.types.beta import BetaToolResultBlockParam
from pydantic import TypeAdapter

from carpal.v1 import hand_pb2 as pb
from hands.browser.members import MEMBERS, OFF, acknowledged
from tests.brain.tools.test_toolsets import browsing as session
from tests.brain.tools.test_toolsets import used
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browsing
from tests.hands.browser.toolset import TABLE

AT = {"type": "coordinate", "x": 30, "y": 20}
PLAIN: dict[str, dict[str, Any]] = {
    "navigate": {"url": "reload"},
    "zoom": {"region": [0, 0, 320, 200]},
    "left_click_drag": {"from": AT, "target": {**AT, "x": 90}},
    **{name: {"target": AT} for name in ("left_mouse_down", "left_mouse_up", "mouse_move")},
    **{f"{each}_click": {"target": AT} for each in ("left", "right", "middle", "double", "triple")},
    "hover": {"target": AT},
    "scroll": {"target": AT, "scroll_direction": "down"},
    "type": {"text": "x"},
    "key": {"text": "Return"},
    "hold_key": {"text": "a", "duration": 0.1},
    "find": {"query": "send"},
    "wait": {"duration": 0.1},
    "javascript_exec": {"text": "1 + 1"},
}


async def given(it: Browsing, name: str) -> dict[str, Any]:
    """An input that a member does well with."""
    if name in ("switch_tab", "close_tab"):
        return {"tab_id": (await it.state())["tabs"][0]["tab_id"]}
    fields: dict[str, tuple[str, dict[str, Any]]] = {
        "scroll_to": ("send button", {}),
        "form_input": ("name field", {"value": "Ada"}),
        "file_upload": ("File button", {"paths": ["a.txt"]}),
    }
    if name in fields:
        query, more = fields[name]
        return {"target": await it.ref(query), **more}
    return PLAIN.get(name, {})


@needs_browser
@pytest.mark.timeout(180)
async def test_every_member_s_answer_has_the_shape_that_the_toolset_gives_it(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path, allow=sorted(OFF)) as it:
        await it.place.run(it.hand, "navigate", url=it.site.url("/"))
        workspace = tmp_path / "state" / "hands" / it.hand / "workspace"
        (workspace / "a.txt").write_text("a")
        for name in MEMBERS:
            if name != "navigate":
                await it.go("/form")
            said = await given(it, name)
            result = await it.result(name, **said)
            assert result.outcome == pb.OUTCOME_OK, (name, result.content)
            attached = [
                {
                    "blob": f"sha256:{each.digest.hex()}",
                    "media_type": each.media_type,
                    "size": each.size,
                    "name": each.name,
                }
                for each in result.attachments
            ]
            more: dict[str, Any] = {"attachments": attached} if attached else {}
            log = session(config={"allow": sorted(OFF)})
            sent = used(log, name, result.content, **more)
            kinds = [block["type"] for block in sent["content"]]
            match TABLE[name]["result"]:
                case "screenshot":
                    assert kinds[0] == "image", name
                case "tab" | "tabs":
                    assert kinds == ["browser_state"], name
                case _ if name == "close_tab":  # as the API wants it, though nothing is asked
                    assert kinds == ["browser_state"]
                case "none":
                    assert sent["content"][0]["text"] == acknowledged(MEMBERS[name], said), name
                case "navigate":
                    assert sent["content"][0]["text"].startswith("Navigated to http://"), name
                case "text":
                    assert kinds[0] == "text", name
            assert set(kinds[1:]) <= {"browser_state"}, name
            assert kinds.count("browser_state") <= 1, name
            use = sent.pop("use")
            assert (use["name"], sent["toolset_name"]) == (name, "browser")
            block = {key: each for key, each in sent.items() if key not in ("id", "name", "input")}
            TypeAdapter(BetaToolResultBlockParam).validate_python(block)
