"""Headers of requests to MCP servers, held against those that its own client makes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.inbound import decode_header_value, encode_header_value, mcp_param_headers
from mcp.shared.inbound import x_mcp_header_map as theirs

from vault.mcp import headers
from vault.mcp.headers import Unsendable

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "deep": {
            "type": "object",
            "properties": {"n": {"type": "integer", "x-mcp-header": "Deep-N"}},
        },
        "on": {"type": "boolean", "x-mcp-header": "On"},
        "data": {"default": {"x-mcp-header": "Nothing"}, "type": "object"},
    },
}


def test_arguments_that_a_schema_names_become_headers_as_the_protocol_says() -> None:
    found = headers.annotations(SCHEMA)
    arguments = {"region": "eu\r\nX-Evil: 1", "deep": {"n": 7}, "on": False}
    made = headers.of_arguments(found, arguments)
    assert dict(made) == mcp_param_headers(theirs(SCHEMA), arguments)
    assert not any("\r" in value or "\n" in value for _, value in headers.checked(made))
    assert headers.of_arguments(found, {"deep": 3, "on": None}) == []


@given(st.text(max_size=200).filter(lambda text: text.encode("utf-8", "replace") and True))
def test_v25_any_value_is_one_line_of_ascii_and_means_the_same(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    made = headers.encoded(value)
    assert made == encode_header_value(value) or value == ""
    assert decode_header_value(made) == value
    headers.checked([("X", made)])


@pytest.mark.parametrize("name", ["a\r\nb", "a b", "", "a:b", "é", "a\x00", 7, None, "x" * 65])
def test_v25_a_server_may_not_choose_a_header_that_is_none(name: object) -> None:
    with pytest.raises(Unsendable):
        headers.annotations({"properties": {"a": {"type": "string", "x-mcp-header": name}}})


@pytest.mark.parametrize(
    "schema",
    [
        {"x-mcp-header": "A", "type": "string"},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"items": {"type": "string", "x-mcp-header": "A"}}}},
        {"anyOf": [{"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}]},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "Same"},
                "b": {"type": "string", "x-mcp-header": "same"},
            }
        },
        {"properties": {f"p{n}": {"type": "string", "x-mcp-header": f"H{n}"} for n in range(17)}},
    ],
)
def test_v25_annotations_that_may_not_be_are_refused(schema: object) -> None:
    with pytest.raises(Unsendable):
        headers.annotations(schema)


def test_no_header_that_a_server_chooses_is_one_of_ours() -> None:
    schema = {"properties": {"a": {"type": "string", "x-mcp-header": "Authorization"}}}
    assert headers.of_arguments(headers.annotations(schema), {"a": "x"}) == [
        ("Mcp-Param-Authorization", "x")
    ]


@pytest.mark.parametrize("header", [("A b", "x"), ("A", "x\r\n"), ("A", "é"), ("", "x")])
def test_v25_what_could_begin_another_header_is_never_sent(header: tuple[str, str]) -> None:
    with pytest.raises(Unsendable):
        headers.checked([header])


def test_a_value_has_a_most() -> None:
    with pytest.raises(Unsendable):
        headers.encoded("x" * 5000)


def test_of_a_callers_headers_a_trace_alone_goes_on_and_only_as_one() -> None:
    good = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    assert headers.trace(good) == [("traceparent", good)]
    for bad in (None, "", good + "\r\nX: 1", good.upper(), json.dumps(good)):
        assert headers.trace(bad) == []
