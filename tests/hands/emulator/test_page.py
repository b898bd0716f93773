"""What docs/reference/emulator-hand.md says is so."""

import re

import yaml
from PIL import Image

from carpal.mounts import parse
from hands.api import describe
from hands.emulator import screen
from hands.emulator.hand import Emulator
from tests.command import ROOT

PAGE = ROOT / "docs" / "reference" / "emulator-hand.md"


def test_the_page_has_every_tool_with_its_fields_and_the_one_field_of_the_config() -> None:
    told = describe(Emulator)
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\| [^|]+ \| ", PAGE.read_text(), re.M)
    fields = {name: set(re.findall(r"`(\w+\??)`", given)) for name, given in rows}
    assert fields == {
        tool["name"]: {
            name if name in tool["input_schema"]["required"] else f"{name}?"
            for name in tool["input_schema"]["properties"]
        }
        for tool in told["tools"]
    }
    assert list(told["config_schema"]["properties"]) == ["cartridge"]


def test_the_page_s_agent_is_one_and_its_picture_is_a_screenshot() -> None:
    page = PAGE.read_text()
    ((_, snippet),) = re.findall(r"^```(yaml)\n(.*?)^```$", page, re.M | re.S)
    game = yaml.safe_load(snippet)["hands"]["game"]
    assert game["type"] == "emulator"
    for source, path in game["resources"]:
        parse(source, path)
    (picture,) = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)
    with Image.open(PAGE.parent / picture) as shown:
        assert shown.size == screen.SIZE
