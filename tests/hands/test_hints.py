"""Type hints as the schema of a tool; and what a wrong one is told."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest

from hands.api import Context, HandType, ToolError, Unit, describe, tool
from hands.hints import signature
from hands.inside.schema import check


class Point(TypedDict):
    x: int
    label: NotRequired[str]


class Loop(TypedDict):
    again: "Loop"


def takes(hint: Any, **default: Any) -> dict[str, Any]:
    """The schema of a tool whose one parameter is `it`."""

    def method(self: object, it: Any) -> str:
        """Does it."""
        return ""

    if default:
        method.__defaults__ = (default["default"],)
    method.__annotations__ = {"it": hint}
    return signature(method, "T.method").schema


@pytest.mark.parametrize(
    ("hint", "schema", "fits", "does_not"),
    [
        (str, {"type": "string"}, "a", 1),
        (int, {"type": "integer"}, 1, 1.5),
        (float, {"type": "number"}, 1.5, "a"),
        (bool, {"type": "boolean"}, True, 1),
        (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, "b", "c"),
        (Literal[1, 2], {"type": "integer", "enum": [1, 2]}, 2, 3),
        (list[int], {"type": "array", "items": {"type": "integer"}}, [1], ["a"]),
        (
            dict[str, bool],
            {"type": "object", "additionalProperties": {"type": "boolean"}},
            {"a": True},
            {"a": 1},
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "label": {"type": "string"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            {"x": 1},
            {"label": "a"},
        ),
        (
            Annotated[str, "A line."],
            {"type": "string", "description": "A line."},
            "a",
            7,
        ),
    ],
)
def test_a_hint_is_a_schema_that_inputs_are_held_to(
    hint: Any, schema: Any, fits: Any, does_not: Any
) -> None:
    whole = takes(hint)
    assert whole["properties"] == {"it": schema}
    assert whole["required"] == ["it"]
    assert check(whole, {"it": fits}) is None
    problem = check(whole, {"it": does_not})
    assert problem is not None
    assert problem.field.startswith("it")
    assert check(whole, {}) is not None
    assert check(whole, {"it": fits, "other": 1}) is not None


@pytest.mark.parametrize(
    ("hint", "default", "schema"),
    [
        (int, 3, {"type": "integer", "default": 3}),
        (int | None, None, {"type": "integer"}),
        (Annotated[str | None, "w"], None, {"type": "string", "description": "w"}),
    ],
)
def test_what_has_a_default_is_optional(hint: Any, default: Any, schema: Any) -> None:
    whole = takes(hint, default=default)
    assert (whole["properties"], whole["required"]) == ({"it": schema}, [])
    assert check(whole, {}) is None


@pytest.mark.parametrize(
    ("hint", "more", "says"),
    [
        (complex, {}, "no JSON is complex; use str, int"),
        (Any, {}, "no JSON is Any"),
        (Path, {}, "no JSON is Path"),
        (list, {}, "no JSON is list"),
        (list[bytes], {}, "no JSON is bytes"),
        (dict[int, str], {}, "the keys of a JSON object are str"),
        (Literal["a", 1], {}, "must all be str, or all int"),
        (int | str, {}, "is one of several types"),
        (int | None, {}, "its default must be None"),
        (list[int | None], {}, "no JSON is"),
        (int, {"default": "a"}, "its default 'a' does not fit: must be a whole number"),
        (str, {"default": b"a"}, "its default b'a' is no JSON"),
        ("no_such_name", {}, "a type hint is not understood"),
        (Loop, {}, "nested too deeply"),
        ({"type": "string"}, {}, "no JSON is"),
    ],
)
def test_a_wrong_hint_is_an_error_that_names_the_parameter(
    hint: Any, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(TypeError) as caught:
        takes(hint, **more)
    assert says in str(caught.value)
    assert "T.method" in str(caught.value)
    if "not understood" not in says:
        assert "parameter 'it'" in str(caught.value)


def no_hint(self: object, it) -> str:  # type: ignore[no-untyped-def]
    """Does it."""
    return ""


def many(self: object, *it: int) -> str:
    """Does it."""
    return ""


def by_place(self: object, it: int, /) -> str:
    """Does it."""
    return ""


@pytest.mark.parametrize("method", [no_hint, many, by_place])
def test_a_parameter_that_cannot_be_given_is_named(method: Callable[..., str]) -> None:
    with pytest.raises(TypeError, match="parameter 'it'"):
        signature(method, "T.method")


class Whole(HandType):
    """A whole one."""

    capabilities = ("files",)

    def provision(self, context: Context, speed: Literal["slow", "fast"] = "slow") -> str:
        return speed

    @tool(time_limit=5)
    def second(self, it: int, context: Context) -> str:
        """Does it.

        And more.
        """
        return str(it)

    @tool()
    async def first(self) -> None:
        """Does nothing."""


def test_a_class_is_described_whole_and_in_its_order() -> None:
    told = describe(Whole)
    assert told["description"] == "A whole one."
    assert [each["name"] for each in told["tools"]] == ["second", "first"]
    assert told["tools"][0]["description"] == "Does it.\n\nAnd more."
    assert told["tools"][0]["time_limit"] == 5.0
    assert list(told["tools"][0]["input_schema"]["properties"]) == ["it"]
    assert told["config_schema"]["properties"]["speed"]["enum"] == ["slow", "fast"]
    assert told["capabilities"] == ["files", "events"]


def test_a_derived_class_has_the_tools_of_its_base_but_those_it_hides() -> None:
    class Derived(Whole):
        """Another."""

        first = None  # type: ignore[assignment]

        @tool()
        def third(self) -> str:
            """Does more."""
            return ""

    assert [each["name"] for each in describe(Derived)["tools"]] == ["second", "third"]


class NoWords(HandType):
    """It."""

    @tool()
    def it(self) -> str:
        return ""


class GivesANumber(HandType):
    """It."""

    @tool()
    def it(self) -> int:
        """Does it."""
        return 7


class NeverEnds(HandType):
    """It."""

    @tool(time_limit=float("inf"))
    def it(self) -> str:
        """Does it."""
        return ""


class NoHand(HandType):
    @tool()
    def it(self) -> str:
        """Does it."""
        return ""


class Boasts(Whole):
    """It."""

    capabilities = ("isolated",)


class HasUnits(Whole):
    """It."""

    @classmethod
    def units(cls) -> list[Unit]:
        return [Unit("a")]

    @classmethod
    def reset(cls, unit_id: str) -> None:
        """It is reset."""


class HasNoReset(Whole):
    """It."""

    @classmethod
    def units(cls) -> list[Unit]:
        return []


class ResetsByTool(HasNoReset):
    """It."""

    @tool()
    def reset(self) -> str:
        """Reset it."""
        return ""


class ResetsNothing(HasNoReset):
    """It."""

    @classmethod
    def reset(cls) -> None:
        """Which one?"""


class TakesUnit(HasUnits):
    """It."""

    def provision(self, unit: str) -> str:  # type: ignore[override]
        return unit


class HasAToolUnits(Whole):
    """It."""

    @tool()
    def units(self) -> str:
        """Count them."""
        return "0"


def test_a_type_has_units_when_it_names_and_resets_them_and_not_for_a_tool_of_that_name() -> None:
    assert "units" in describe(HasUnits)["capabilities"]
    assert "units" not in describe(HasAToolUnits)["capabilities"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (HasNoReset, "HasNoReset.reset: a type with `units` has two methods"),
        (ResetsByTool, "ResetsByTool.reset: a type with `units` has two methods"),
        (ResetsNothing, "ResetsNothing.reset: a type with `units` has two methods"),
        (TakesUnit, "TakesUnit.provision: parameter 'unit'"),
        (NoWords, "NoWords.it: has no docstring; say in it what the tool does"),
        (NoHand, "NoHand: has no docstring; say in it what a hand of it is"),
        (GivesANumber, "GivesANumber.it: returns <class 'int'>; a tool returns str or None"),
        (NeverEnds, "NeverEnds.it: time_limit must be above 0"),
        (Boasts, "Boasts.capabilities: 'isolated' is none of files, mounts, save, shell, visual"),
        (HandType, "HandType has no tool; put @tool() before a method"),
        (str, "is no class derived from hands.api.HandType"),
    ],
)
def test_what_is_wrong_with_a_class_is_said_with_its_place(kind: Any, says: str) -> None:
    with pytest.raises(TypeError) as caught:
        describe(kind)
    assert says in str(caught.value)


def test_an_author_tests_tools_as_the_methods_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hand").mkdir()
    context = Context(tmp_path / "hand")
    assert Whole().second(7, context) == "7"
    context.say("out")
    assert capsys.readouterr().out == "out"
    context.attach(b"abc", "image/png", "a.png")
    (one,) = context.attached
    assert (tmp_path / "kept" / one.digest).read_bytes() == b"abc"
    with pytest.raises(ToolError, match=r"a\.png has"):
        context.attach(b"x" * 6_000_000, "image/png", "a.png")
