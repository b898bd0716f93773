"""A hand type to begin with: the files that `carpal hand new` writes."""

import keyword
import re
import sys
from importlib.metadata import entry_points
from pathlib import Path

from carpal.errors import invalid, refuse
from carpal.status import Reason

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OURS = frozenset({"brain", "carpal", "hands", "sessiond", "vault", "test"})

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "carpal-{dashed}"
version = "0.1.0"
# Install it where Carpal is. It does not ask for it: what a registry has under that name is not it.

# By this a daemon finds the type, under the name that stands before the `=`.
[project.entry-points."carpal.hand_types"]
{name} = "{name}:{kind}"

[tool.hatch.build.targets.wheel]
include = ["{name}.py"]
"""

_MODULE = '''\
"""The hand type `{name}`."""

import time
from typing import Annotated, Literal

from hands.api import Context, HandType, ToolError, tool


class {kind}(HandType):
    """Say here what a hand of this type is; the model reads it."""

    def provision(self, context: Context, manner: Literal["kind", "curt"] = "kind") -> str:
        self.word = "Welcome" if manner == "kind" else "Yes"
        return f"It is {{manner}} to whoever is greeted."

    @tool()
    def greet(self, whom: Annotated[str, "A name."]) -> str:
        """Greet someone by name."""
        if not whom:
            raise ToolError("say whom to greet: the name is empty")
        return f"{{self.word}}, {{whom}}."

    @tool(time_limit=600)
    def count(self, to: int, context: Context) -> None:
        """Count to a number, ten a second; what is counted is seen as it comes."""
        for number in range(1, to + 1):
            context.say(f"{{number}}\\n")
            time.sleep(0.1)
'''

_TEST = '''\
"""Tests of the hand type `{name}`."""

from pathlib import Path

import pytest
from {name} import {kind}

from hands.api import Context, ToolError, describe


@pytest.fixture
def hand(tmp_path: Path) -> {kind}:
    made = {kind}()
    assert made.provision(Context(tmp_path)) == "It is kind to whoever is greeted."
    return made


def test_it_says_what_it_can() -> None:
    assert [tool["name"] for tool in describe({kind})["tools"]] == ["greet", "count"]


def test_it_greets(hand: {kind}) -> None:
    assert hand.greet("Ada") == "Welcome, Ada."


def test_nobody_is_greeted_without_a_name(hand: {kind}) -> None:
    with pytest.raises(ToolError, match="the name is empty"):
        hand.greet("")


def test_it_counts_as_it_goes(
    hand: {kind}, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hand.count(2, Context(tmp_path))
    assert capsys.readouterr().out == "1\\n2\\n"
'''


def write(name: str, parent: Path) -> Path:
    """Write the files into `parent/name`; says where. Raises INVALID_FIELD, and what disks do."""
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise invalid("NAME", f"{name!r} is not 1 to 40 of a-z, 0-9 and '_', beginning with a-z")
    if name in _OURS or name in sys.stdlib_module_names:
        raise invalid("NAME", f"{name!r} is the name of a Python package that hands need")
    if name in {each.name for each in entry_points(group="carpal.hand_types")}:
        raise invalid("NAME", f"there is a hand type {name!r} here already; choose another name")
    folder = parent / name
    if folder.exists():
        raise refuse(
            Reason.INVALID_FIELD,
            f"{folder} is there already",
            action="remove it, or choose another name",
            field="NAME",
        )
    words = {
        "name": name,
        "dashed": name.replace("_", "-"),
        "kind": "".join(part.capitalize() for part in name.split("_")),
    }
    try:
        folder.mkdir(parents=True)
        for file, text in (
            ("pyproject.toml", _PROJECT),
            (f"{name}.py", _MODULE),
            (f"test_{name}.py", _TEST),
        ):
            (folder / file).write_text(text.format(**words), encoding="utf-8")
    except OSError as error:
        raise refuse(
            Reason.CONFIG_INVALID,
            f"{folder} cannot be written: {error}",
            action="give another --in",
        ) from error
    return folder
