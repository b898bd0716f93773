"""What docs/reference/browser-hand.md says is so, and the type is held to the contract."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import yaml
from anthropic.types.beta import BetaBrowserMemberName
from anthropic.types.beta.beta_browser_click_target import BetaBrowserClickTarget
from PIL import Image
from pydantic import TypeAdapter

from hands.attachments import BYTES_MAX
from hands.browser import flood, members, navigating, pressing, reading, state, weighed
from hands.builtin import browser
from hands.builtin.browser import BrowserType
from hands.builtin.sandboxes import PROCESSES
from hands.inside.schema import check
from tests.command import ROOT
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import browsing
from tests.hands.browser.toolset import TABLE, bounds, form
from tests.pace import SCALE

PAGE = ROOT / "docs" / "reference" / "browser-hand.md"


def test_the_page_has_every_tool_and_every_field_of_the_config() -> None:
    page = PAGE.read_text()
    tools = page.partition("## Tools")[2].partition("## When")[0]
    rows = re.findall(r"^\|((?: `\w+`,?)+) \|", tools, re.M)
    assert {each for row in rows for each in re.findall(r"\w+", row)} == members.MEMBERS.keys()
    config = page.partition("## Configuration")[2].partition("## Tools")[0]
    schema = BrowserType().describe().config_schema["properties"]
    assert re.findall(r"^\| `(\w+)` \|", config, re.M) == [
        *("egress", "allow", "dialogs", "viewport", "workspace")
    ]
    assert set(re.findall(r"^\| `(\w+)` \|", config, re.M)) == schema.keys()
    assert all(f"`{each}`" in config for each in schema["allow"]["items"]["enum"])
    assert f"{state.TABS_MAX} tabs" in tools


@pytest.mark.parametrize(
    "words",
    [
        f"at most {weighed.SIZE_MAX // 2**20} MiB",
        f"at most {BYTES_MAX // 2**20} MiB.",
        f"of a hand together at most {weighed.ALL_MAX // 2**20} MiB",
        f"| {browser.HOME // 2**20} MiB of memory",
        f"does not answer for {navigating.COMMIT:g} s, or",
        f"has grown to {flood.HELD_MAX // 2**20} MiB, or answers nothing for "
        f"{flood.WAITED_WORKING:g} to {flood.WAITED_MAX:g} s",
        f"is told after {navigating.LOAD:g} s",
        f"at most {members.WAIT_MAX:g} seconds",
        f"Of text of up to {pressing.TYPED_MAX:,} characters no more than {pressing.PIECE} are",
        f"have at most {reading.TEXT_MAX:,} characters",
        f"| {PROCESSES:,} with their threads",
    ],
)
def test_the_page_says_what_the_bounds_are(words: str) -> None:
    assert words in PAGE.read_text()


def test_the_members_that_need_a_tab_or_take_none_are_those_of_the_page() -> None:
    page = PAGE.read_text()
    takes = {
        name for name, each in members.MEMBERS.items() if "tab_id" in each.schema["properties"]
    }
    assert members.MEMBERS.keys() - takes == {"new_tab", "list_tabs"}
    assert "All but `new_tab` and `list_tabs` take a `tab_id`" in page
    needs = {name for name in takes if "tab_id" in members.MEMBERS[name].schema["required"]}
    assert needs == {"switch_tab", "close_tab"}
    assert "which `switch_tab` and `close_tab` need" in page


def test_the_page_s_config_is_one_and_its_picture_a_screenshot() -> None:
    page = PAGE.read_text()
    (snippet,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)
    hand = yaml.safe_load(snippet)["hands"]["web"]
    assert check(BrowserType().describe().config_schema, hand["config"], "config") is None
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    with Image.open(PAGE.parent / picture) as shown:
        assert shown.size == (640, 400)


def test_h22_every_members_whole_input_is_that_of_the_recorded_table() -> None:
    assert members.MEMBERS.keys() == TABLE.keys()
    for name, member in members.MEMBERS.items():
        assert form(member.schema) == TABLE[name]["input"], name
        assert bounds(member.schema) == TABLE[name]["bounds"], name
        assert member.acknowledgement == (TABLE[name]["confirmation"] or ""), name
        assert (name not in members.OFF) == TABLE[name]["enabled_by_default"], name


def test_the_recorded_table_is_what_the_api_s_own_package_says() -> None:
    from anthropic._data.browser_toolset_members import BROWSER_TOOLSET_MEMBERS
    from anthropic.types import beta

    assert set(get_args(BetaBrowserMemberName)) == TABLE.keys()
    for name, recorded in TABLE.items():
        of_the_api = getattr(beta, f"BetaBrowser{name.title().replace('_', '')}Input")
        assert form(TypeAdapter(of_the_api).json_schema(by_alias=True)) == recorded["input"], name
        told = {key: recorded[key] for key in recorded.keys() - {"input", "bounds"}}
        assert BROWSER_TOOLSET_MEMBERS[name] == told, name


@pytest.mark.parametrize(
    "target", [{"type": "coordinate", "x": 1, "y": 2}, {"type": "ref", "ref": "e1"}]
)
def test_a_target_of_the_toolset_is_one_here(target: dict[str, object]) -> None:
    TypeAdapter(BetaBrowserClickTarget).validate_python(target)
    assert check(members.MEMBERS["left_click"].schema, {"target": target}) is None


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_passes_every_check_of_what_it_claims() -> None:
    told = subprocess.run(
        [
            *(sys.executable, "-m", "carpal", "hand", "check", "--type", "browser", "--json"),
            *("--scale", str(2 * SCALE)),
        ],
        capture_output=True,
        text=True,
        timeout=560 * SCALE,
        check=False,
    )
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert [line for line in lines if line.get("verdict") == "fail"] == []
    assert told.returncode == 0, told.stderr
    passed = {line["capability"] for line in lines if line.get("verdict") == "pass"}
    assert passed == {"contract", "visual", "view", "control"}


@needs_browser
async def test_the_page_s_picture_can_be_taken(tmp_path: Path) -> None:
    async with browsing(tmp_path, viewport={"width": 640, "height": 400}) as it:
        await it.go("/form")
        await it.do("form_input", target=await it.ref("name field"), value="Ada Lovelace")
        await it.do("form_input", target=await it.ref("colour"), value="Blue")
        await it.do("form_input", target=await it.ref("gift"), value=True)
        (picture,) = (await it.result("screenshot")).attachments
        data = it.blobs.blobs[picture.digest]
        (tmp_path / "browser.png").write_bytes(data)
        with Image.open(tmp_path / "browser.png") as shown:
            assert shown.size == (640, 400)
