"""What a server may ask a person in the middle of a call."""

import asyncio
import base64
import json
from typing import Any

import pytest

from tests.vault.guard.upstream import reply
from tests.vault.mcp.servers import Server
from tests.vault.mcp.test_bad_servers import raw, result, scripted
from tests.vault.mcp.world import CANARY, World, served
from vault.mcp.elicit import Asked, answered, asked, put
from vault.mcp.refusals import Refusal, Why

FORM = {"type": "object", "properties": {"years": {"type": "integer"}}, "required": ["years"]}


def form(**params: Any) -> dict[str, Any]:
    said = {"mode": "form", "message": "How old?", "requestedSchema": FORM, **params}
    return {"method": "elicitation/create", "params": said}


def url(address: Any) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Look", "url": address, "elicitationId": "e1"},
    }


def field(name: str, **more: Any) -> dict[str, Any]:
    properties = {name: {"type": "string", **more}}
    return form(requestedSchema={"type": "object", "properties": properties})


@pytest.mark.parametrize(
    "question",
    [
        {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
        {"method": "roots/list", "params": {}},
        url("javascript:alert(1)"),
        url("http://a.test/"),
        url("https://user@a.test/"),
        url("https://a.test\\@evil.test/"),
        url("https:///x"),
        url(" https://a.test/"),
        url(7),
        form(mode="other"),
        form(message="x" * 5000),
        form(requestedSchema={"type": "array"}),
        form(requestedSchema={"type": "object", "properties": {"a": {"type": "object"}}}),
        field("password"),
        field("apiKey"),
        field("x", title="Your API key"),
        field("x", format="password"),
        field("x", description="the one-time token"),
        "no question",
    ],
)
def test_v44_what_may_not_be_asked_is_refused(question: Any) -> None:
    with pytest.raises(Refusal) as caught:
        asked({"inputRequests": {"q": question}})
    assert caught.value.why is Why.INPUT_REFUSED


def test_v44_questions_have_a_most_and_so_has_the_state() -> None:
    for said in (
        {"inputRequests": {f"q{n}": form() for n in range(9)}},
        {"inputRequests": {}, "requestState": "x"},
        {"inputRequests": {"q": form()}, "requestState": "x" * 70_000},
        {"inputRequests": {"a\nb": form()}},
        {"inputRequests": [form()]},
    ):
        with pytest.raises(Refusal):
            asked(said)


def test_a_state_is_good_for_what_it_belongs_to_alone() -> None:
    given = {"q": {"action": "accept", "content": {"years": 7}}}
    said = put(Asked({"q": form()}, "theirs"), 0, b"k", b"call 1")
    state = said["requestState"]
    good = answered({"requestState": state, "inputResponses": given}, b"k", b"call 1")
    assert good is not None
    assert (good.turn, good.params["requestState"]) == (1, "theirs")
    bent = base64.urlsafe_b64encode(base64.urlsafe_b64decode(state)[:-3] + b"9}}").decode()
    for params, key, about in (
        ({"requestState": state, "inputResponses": given}, b"k", b"call 2"),
        ({"requestState": state, "inputResponses": given}, b"j", b"call 1"),
        ({"requestState": bent, "inputResponses": given}, b"k", b"call 1"),
        ({"requestState": "x", "inputResponses": given}, b"k", b"call 1"),
        ({"requestState": state}, b"k", b"call 1"),
        ({"inputResponses": given}, b"k", b"call 1"),
        ({"requestState": state, "inputResponses": {}}, b"k", b"call 1"),
        ({"requestState": state, "inputResponses": {"q": {"action": "x"}}}, b"k", b"call 1"),
        ({"requestState": state, "inputResponses": {**given, "r": {}}}, b"k", b"call 1"),
    ):
        with pytest.raises(Refusal) as caught:
            answered(params, key, about)
        assert caught.value.why is Why.PARAMS_INVALID


async def test_v44_a_question_reaches_who_may_be_asked_and_the_answer_the_server(
    there: World,
) -> None:
    """The server asks by a result, and goes on when it is called once more."""
    asks = {
        "resultType": "input_required",
        "requestState": "theirs",
        "inputRequests": {"q": form()},
    }
    seen: list[Any] = []

    async def called(request: Any, request_id: Any, writer: asyncio.StreamWriter) -> None:
        params = json.loads(request.body)["params"]
        seen.append(params)
        done = result(request_id, content=[{"type": "text", "text": "thanks"}])
        writer.write(reply(done if "inputResponses" in params else result(request_id, **asks)))
        await writer.drain()

    async with scripted(there, called, elicitation=True) as (brain, _):
        params = {"name": "go", "arguments": {}}
        meta = {"carpal/callId": "c1"}
        first = (await brain.ask("tools/call", params, **meta))["result"]
        assert first["resultType"] == "input_required"
        assert first["inputRequests"] == {"q": form()}
        assert "theirs" not in first["requestState"]
        more = {
            "requestState": first["requestState"],
            "inputResponses": {"q": {"action": "accept", "content": {"years": 7}}},
        }
        again = await brain.ask("tools/call", params, **meta)
        assert again["error"]["data"] == {"reason": "CALL_SENT", "outcome": "asked"}
        elsewhere = await brain.ask("tools/call", {**params, **more}, **{"carpal/callId": "c2"})
        assert elsewhere["error"]["data"]["reason"] == "PARAMS_INVALID"
        second = (await brain.ask("tools/call", {**params, **more}, **meta))["result"]
        assert second["content"][0]["text"] == "thanks"
        assert seen[-1]["requestState"] == "theirs"
        assert seen[-1]["inputResponses"]["q"]["content"] == {"years": 7}
        third = await brain.ask("tools/call", {**params, **more}, **meta)
        assert third["error"]["data"] == {"reason": "CALL_SENT", "outcome": "ok"}
        capabilities = seen[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        assert capabilities == {"elicitation": {}}


async def test_v44_without_the_grants_word_no_question_is_passed_on(there: World) -> None:
    asks = {"resultType": "input_required", "inputRequests": {"q": form()}}
    async with scripted(there, raw(lambda i: reply(result(i, **asks)))) as (brain, _):
        assert await brain.refused("go") == "INPUT_REFUSED"


@pytest.mark.parametrize("beside", [True, False], ids=["beside a question", "alone"])
async def test_v44_a_server_that_may_ask_a_person_may_not_use_the_model(
    there: World, beside: bool
) -> None:
    """And what it asks beside that is not passed on either: a call is answered as a whole."""
    sampling = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 9}}
    asks = {"m": sampling, **({"q": form()} if beside else {})}
    said = {"resultType": "input_required", "inputRequests": asks}
    async with scripted(there, raw(lambda i: reply(result(i, **said))), elicitation=True) as (
        brain,
        _,
    ):
        assert await brain.refused("go") == "INPUT_REFUSED"
    assert there.credentials.last.said[-1][0] == "refused"


async def test_v44_a_server_of_before_is_asked_for_nobody_even_where_a_person_may_be_asked(
    there: World,
) -> None:
    server = Server(CANARY, legacy=True)
    async with served(there.authority, server) as port:
        brain = there.grant(port, elicitation=True)
        reply = await brain.call("asks")
        assert "result" in reply
    assert [each.split()[0] for each in server.told] == ["refused", "refused"]
