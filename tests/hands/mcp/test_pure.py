"""What a server says of its tools and answers is held to what a hand can have."""

import base64
import json
from typing import Any

import pytest

from hands.attachments import BYTES_MAX, COUNT_MAX
from hands.mcp.content import rendered
from hands.mcp.listing import checked, listing, told_name
from hands.mcp.said import NO_TEXT, mended, shown

ANY: dict[str, Any] = {"type": "object"}


def deep(levels: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": deep(levels - 1)} if levels else {}}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "array"}, "not that of an object"),
        (None, "not that of an object"),
        ({**ANY, "properties": []}, "properties are none"),
        ({**ANY, "properties": {"a": 7}}, "are no schemas"),
        ({**ANY, "required": [1]}, "no list of names"),
        ({**ANY, "allOf": []}, "oneOf, anyOf or allOf"),
        ({**ANY, "description": "x" * 70_000}, "more than 65536 bytes"),
        (deep(40), "nested more than 30 deep"),
    ],
)
def test_a_tool_whose_schema_no_model_could_be_told_is_left_out_with_the_reason(
    schema: Any, why: str
) -> None:
    found = listing([("good", "", ANY), ("bad", "It is.", schema)])
    assert [tool["name"] for tool in found.tools] == ["good"]
    assert found.left_out[0].startswith("bad: ")
    assert why in found.left_out[0]


def test_what_is_beyond_the_bounds_of_all_tools_is_left_out() -> None:
    many = listing((f"t{number}", "d", ANY) for number in range(130))
    assert (len(many.tools), len(many.left_out)) == (128, 2)
    large = listing((f"t{number}", "x" * 30_000, ANY) for number in range(10))
    assert (len(large.tools), len(large.left_out)) == (8, 2)


def test_what_no_result_can_hold_is_left_out_in_words_and_the_rest_is_there() -> None:
    def image(data: bytes) -> dict[str, str]:
        return {"type": "image", "mimeType": "image/png", "data": base64.b64encode(data).decode()}

    done = {"type": "text", "text": "ordered"}
    large = image(bytes(BYTES_MAX + 1))
    text, attached = rendered({"content": [done, large, *[image(b"p")] * (COUNT_MAX + 1)]})
    first, second, *others, last = text.splitlines()
    assert first == "ordered"
    assert second == (
        f"[an image, image/png, {BYTES_MAX + 1} bytes: left out: "
        f"image has {BYTES_MAX + 1} bytes, more than {BYTES_MAX}]"
    )
    assert others == ["[an image, image/png, 1 bytes: attached]"] * COUNT_MAX
    assert last.endswith(f": left out: a result has at most {COUNT_MAX} attachments]")
    assert [each.data for each in attached] == [b"p"] * COUNT_MAX


def test_of_two_tools_of_one_name_the_first_is_the_one() -> None:
    found = listing([("a", "first", ANY), ("a", "second", ANY)])
    assert [tool["description"] for tool in found.tools] == ["first"]


def test_a_name_is_told_by_another_where_it_must_be_and_by_the_same_each_time() -> None:
    assert told_name("read_file") == "read_file"
    names = ["a.b", "a b", "é", "x" * 63, "x" * 64, "\udc80", ""]
    told = [told_name(name) for name in names]
    assert told == [told_name(name) for name in names]
    assert len(set(told)) == len(names)
    assert all(len(name) <= 62 for name in told)


def test_a_listing_out_of_a_sandbox_is_held_to_the_same() -> None:
    good = listing([("a", "d", ANY)]).tools
    assert checked(json.dumps(good).encode())[0].name == "a"
    for wrong in (
        b"nonsense",
        b"[]",
        b"{}",
        b"[7]",
        b"[" * 100_000,
        json.dumps(good * 2).encode(),
        json.dumps([{**good[0], "name": "a b"}]).encode(),
        json.dumps([{**good[0], "description": ""}]).encode(),
        json.dumps([{**good[0], "input_schema": {"type": "string"}}]).encode(),
        json.dumps(good * 129).encode(),
    ):
        with pytest.raises(ValueError, match=r"it lists|tool|what it"):
            checked(wrong)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({}, "[the tool answered nothing]"),
        ({"content": None}, "[the tool answered nothing]"),
        ({"content": [{"type": "text", "text": ""}]}, "[the tool answered nothing]"),
        ({"content": [7]}, "[a part of the answer that is none]"),
        ({"content": [{"type": "film"}]}, "[a part of the answer of the kind film: left out]"),
        ({"content": [], "structuredContent": {"a": "ü"}}, '{"a": "ü"}'),
        (
            {"content": [{"type": "text", "text": "so"}], "structuredContent": {"a": 1}},
            "so",
        ),
        (
            {"content": [{"type": "image", "data": "%%", "mimeType": "image/png"}]},
            "[an image, image/png: it is no base64, and left out]",
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "b"}}]},
            "[resource file:///a]\nb",
        ),
        (
            {"content": [{"type": "resource_link", "name": "a\nb", "uri": "x:y"}]},
            "[a link to a resource: a b, x:y]",
        ),
    ],
)
def test_each_answer_is_a_text_that_is_never_empty(result: dict[str, Any], text: str) -> None:
    assert rendered(result)[0] == text


def test_a_file_that_is_a_resource_is_attached_by_its_name() -> None:
    data = base64.b64encode(b"abc").decode()
    resource = {"uri": "file:///x/report.pdf", "mimeType": "application/pdf", "blob": data}
    text, (file,) = rendered({"content": [{"type": "resource", "resource": resource}]})
    assert (file.data, file.media_type, file.name) == (b"abc", "application/pdf", "report.pdf")
    assert text == "[resource file:///x/report.pdf, application/pdf, 3 bytes: attached]"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rb"a\ud83db", f"a{NO_TEXT}b"),
        (rb"\ude00\ud83d", f"{NO_TEXT}{NO_TEXT}"),
        (rb"\uD83D\uDE00", "\U0001f600"),
        (rb"\ud83d\ud83d\ude00", f"{NO_TEXT}\U0001f600"),
        (rb"\\ud83d", r"\ud83d"),
        (rb"\\\ud83d", f"\\{NO_TEXT}"),
        (b"caf\xe9", "caf\ufffd"),
        (rb"\u00e9\n", "\xe9\n"),
    ],
)
def test_halves_of_characters_are_marked_and_whole_ones_and_backslashes_are_as_they_were(
    written: bytes, read: str
) -> None:
    assert json.loads(mended(b'"%s"' % written)) == read
    assert NO_TEXT not in shown(read)
