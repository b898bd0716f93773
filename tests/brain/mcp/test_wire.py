"""What the proxy answers is read as one result or one refusal, whatever it is."""

import json

import pytest

from brain.mcp import wire
from brain.mcp.wire import Refused


def test_a_request_says_its_version_its_call_and_where_it_wants_to_hear_of_progress() -> None:
    body = json.loads(wire.request(7, "tools/call", {"name": "a"}, {wire.CALL_ID: "sevt_1"}))
    assert body == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {
            "name": "a",
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "progressToken": 7,
                "carpal/callId": "sevt_1",
            },
        },
    }


def test_the_result_is_the_last_of_a_stream_of_events() -> None:
    stream = (
        b'event: message\ndata: {"method":"notifications/progress","params":{}}\n\n:\n\n'
        b'event: message\ndata: {"id":1,"result":{"content":[]}}\n\n'
    )
    assert wire.result(stream, "text/event-stream; charset=utf-8") == {"content": []}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b'{"error":{"reason":"GRANT_REFUSED"}}', "GRANT_REFUSED"),
        (
            b'{"id":1,"error":{"code":1,"message":"m","data":{"reason":"UNREACHABLE"}}}',
            "UNREACHABLE",
        ),
        (b'{"id":1,"error":{"code":1,"message":"m","data":[]}}', wire.BROKEN),
        (b'{"error":{"reason":"not one of ours"}}', wire.BROKEN),
        (b'{"error":"no"}', wire.BROKEN),
        (b'{"result":[]}', wire.BROKEN),
        (b"[]", wire.BROKEN),
        (b"<html>", wire.BROKEN),
        (b"", wire.BROKEN),
        (b"[" * 100_000, wire.BROKEN),
        (b"\xff", wire.BROKEN),
    ],
)
def test_what_is_no_result_is_refused_by_a_reason_of_the_proxys_or_as_broken(
    body: bytes, reason: str
) -> None:
    for kind in ("application/json", ""):
        with pytest.raises(Refused) as caught:
            wire.result(body, kind)
        assert caught.value.reason == reason


def test_a_stream_without_an_answer_is_broken() -> None:
    with pytest.raises(Refused, match=wire.BROKEN):
        wire.result(b":\n\n", "text/event-stream")
