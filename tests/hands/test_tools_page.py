"""The page of the tools says what they take."""

import re
from pathlib import Path
from typing import Any

from hands.inside.file_tools import FILE_TOOLS
from hands.inside.toolset import TOOLS, check_more

PAGE = (Path(__file__).parents[2] / "docs/reference/tools.md").read_text()


def test_every_tool_has_its_place_on_the_page_and_a_body() -> None:
    of_hands = PAGE.partition("## The brain's own tools")[0]
    headings = re.findall(r"^## (.+)$", of_hands, re.MULTILINE)
    assert ", ".join(headings).split(", ") == list(TOOLS)
    assert {"bash", *FILE_TOOLS} == set(TOOLS)


def test_every_field_of_every_tool_is_on_the_page_as_required_as_it_is() -> None:
    for name in ("read", "write", "edit", "glob", "grep"):
        schema: Any = TOOLS[name][1]
        fields = [f"`{each}`" for each in schema["required"]]
        fields += [f"`{each}?`" for each in schema["properties"] if each not in schema["required"]]
        assert f"| `{name}` | {', '.join(fields)} |" in PAGE


def test_a_command_takes_the_fields_the_page_says_and_no_other() -> None:
    for name in ("str_replace_based_edit_tool", "memory"):
        part = PAGE.partition(f"## {name}\n")[2].partition("\n## ")[0]
        schema: Any = TOOLS[name][1]
        for command, fields in re.findall(r"^\| `(\w+)` \| (.+?) \|", part, re.MULTILINE)[1:]:
            given = {field.strip("`?"): "/memories/x" for field in fields.split(", ")}
            assert check_more(name, {"command": command, **given}) is None
            for field in fields.split(", "):
                without = {k: v for k, v in given.items() if k != field.strip("`?")}
                problem = check_more(name, {"command": command, **without})
                assert (problem is None) == field.endswith("?`")
            for other in set(schema["properties"]) - {*given, "command"}:
                problem = check_more(name, {"command": command, **given, other: "x"})
                assert problem
                assert problem.field == other
