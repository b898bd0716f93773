"""What docs/reference/android-hand.md says is so."""

import re

import yaml

from carpal.agent import read_agent
from hands.android import adb, hand, keys, phone, said, typed
from hands.android.hand import Android
from hands.api import describe
from hands.life import units
from tests.command import ROOT

PAGE = (ROOT / "docs" / "reference" / "android-hand.md").read_text()


def test_the_page_has_every_tool_with_its_fields() -> None:
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| [^|]+ \|$", PAGE.partition("## Tools")[2], re.M)
    fields = {name: set(re.findall(r"`(\w+\??)`", given)) for name, given in rows}
    assert fields == {
        tool["name"]: {
            name if name in tool["input_schema"]["required"] else f"{name}?"
            for name in tool["input_schema"]["properties"]
        }
        for tool in describe(Android)["tools"]
    }
    assert describe(Android)["config_schema"]["properties"].keys() <= {"unit"}


def test_the_page_s_agent_is_one_whose_phone_has_a_label_that_there_is() -> None:
    (snippet,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
    agent = read_agent({"model": "claude-opus-4-8", **yaml.safe_load(snippet)})
    plan = agent.hands["phone"]
    assert plan.type == "android"
    asked = plan.config["unit"]
    told = dict.fromkeys(said.PROPERTIES.values(), "34") | {"ro.product.model": "Pixel 8"}
    labels = said.labels("A1", "device", told)
    assert asked.items() <= labels.items()
    table = PAGE.partition("| label |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]+\|$", "", table, flags=re.M))) == set(labels)


def test_the_page_s_keys_serials_and_limits_are_those_there_are() -> None:
    (named,) = re.findall(r"^Keys are (.*?), arrows, (.*?), letters", PAGE, re.M)
    for key in re.findall(r"`(\w+)`", " ".join(named)):
        assert len(keys.codes(key)) == 1
    assert keys.codes("Home") == ["KEYCODE_HOME"]
    assert f"`10.0.0.7:5555` is `{said.unit_id('10.0.0.7:5555')}`" in PAGE
    assert f"longer than {phone.RESET_LIMIT:g} seconds" in PAGE
    assert phone.RESET_LIMIT < units.RESET_LIMIT
    assert f"at most {typed.TEXT_MAX} characters" in PAGE
    assert f"{hand.NOTCHES} of `scroll_amount` a whole screen, 1 to {hand.AMOUNT_MAX}" in PAGE
    assert hand.MISSES == 3
    assert "does so in three calls in a row" in PAGE
    assert "apt-get install adb" in PAGE
    assert "apt-get install adb" in adb.INSTALL
