"""What a brain asks, read from its message alone."""

from typing import Any

import pytest

from vault.mcp.asked import CALL_ID, Ask, answer, approval, greeting, read
from vault.mcp.jsonrpc import Request
from vault.mcp.refusals import Refusal, Why
from vault.mcp.wire import MODERN, VERSION

CALL: dict[str, Any] = {"name": "add", "arguments": {"a": 1}}
BARE: dict[str, Any] = {"name": "add"}


def ask(
    method: str, params: dict[str, Any] | None = None, meta: dict[str, Any] | None = None
) -> Ask:
    return read(Request(1, method, {**(params or {}), **({"_meta": meta} if meta else {})}))


def refusal(method: str, params: dict[str, Any], meta: dict[str, Any] | None = None) -> Why:
    with pytest.raises(Refusal) as caught:
        ask(method, params, meta)
    return caught.value.why


def test_a_request_says_its_generation_in_its_body() -> None:
    assert not ask("tools/list").modern
    assert ask("tools/list", meta={VERSION: MODERN}).modern
    assert refusal("tools/list", {}, meta={VERSION: "2031-01-01"}) is Why.VERSION_UNSUPPORTED


def test_a_tool_call_without_an_id_is_refused() -> None:
    assert refusal("tools/call", CALL) is Why.CALL_ID_MISSING
    for bad in ("", "a b", "x" * 129, 7, "a\n"):
        assert refusal("tools/call", CALL, meta={CALL_ID: bad}) is Why.CALL_ID_MISSING
    assert ask("tools/call", CALL, meta={CALL_ID: "sevt_1"}).call == "sevt_1"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"arguments": {}}),
        ("tools/call", {"name": 7}),
        ("tools/call", {"name": "a", "arguments": []}),
        ("tools/call", {"name": "a", "url": "https://evil.test"}),
        ("tools/list", {"cursor": 1}),
        ("resources/read", {"uri": "x" * 9000}),
        ("tools/list", {"_meta": 7}),
    ],
)
def test_v21_parameters_that_the_method_has_not_are_refused(
    method: str, params: dict[str, Any]
) -> None:
    assert refusal(method, params) is Why.PARAMS_INVALID


@pytest.mark.parametrize(
    "method",
    ["sampling/createMessage", "roots/list", "logging/setLevel", "x", "subscriptions/listen"],
)
def test_what_is_not_served_is_refused(method: str) -> None:
    assert refusal(method, {}) is Why.METHOD_UNKNOWN


def test_an_approval_is_of_one_call_just_as_it_is() -> None:
    first = ask("tools/call", CALL, meta={CALL_ID: "c1"})
    digest = approval("s", "a", first, "d")
    assert digest == approval("s", "a", ask("tools/call", CALL, meta={CALL_ID: "c1"}), "d")
    others = [
        approval("s2", "a", first, "d"),
        approval("s", "b", first, "d"),
        approval("s", "a", first, "d2"),
        approval("s", "a", ask("tools/call", CALL, meta={CALL_ID: "c2"}), "d"),
        approval("s", "a", ask("tools/call", {**CALL, "name": "sub"}, meta={CALL_ID: "c1"}), "d"),
        approval("s", "a", ask("tools/call", BARE, meta={CALL_ID: "c1"}), "d"),
        approval("sa", "", first, "d"),
    ]
    assert len({digest, *others}) == 8


def test_v40_nothing_that_is_answered_may_be_kept_by_anyone() -> None:
    result = {"tools": [], "ttlMs": 60_000, "cacheScope": "public"}
    modern = answer(ask("tools/list", meta={VERSION: MODERN}), result)["result"]
    assert (modern["ttlMs"], modern["cacheScope"]) == (0, "private")
    assert answer(ask("tools/list"), result)["result"] == {"tools": []}


def test_who_begins_is_told_the_version_that_it_wants_if_we_speak_it() -> None:
    for wanted, given in (("2025-06-18", "2025-06-18"), ("1999-01-01", "2025-11-25")):
        said = greeting(ask("initialize", {"protocolVersion": wanted}), "a", True)
        assert (said["protocolVersion"], said["capabilities"]) == (given, {"tools": {}})
    assert greeting(ask("server/discover"), "a", False)["supportedVersions"][0] == MODERN
