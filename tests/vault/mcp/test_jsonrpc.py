"""JSON-RPC is read strictly."""

import json

import pytest

from vault.mcp.jsonrpc import Malformed, Notification, Reply, Request, message, written


def say(**fields: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **fields}).encode()


def test_what_is_well_formed_is_read() -> None:
    assert message(say(id=1, method="tools/list")) == Request(1, "tools/list", {})
    assert message(say(id="a", method="ping", params={"x": [1.5]})) == Request(
        "a", "ping", {"x": [1.5]}
    )
    assert message(say(method="notifications/initialized")) == Notification(
        "notifications/initialized", {}
    )
    assert message(say(id=1, result={"a": 1})) == Reply(1, {"a": 1}, None)
    assert message(say(id=None, error={"code": -1})) == Reply(None, None, {"code": -1})


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method\\u0000":"tools/call","method":"tools/list"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","Name":"b"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name\\u0000":"a"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":1,"a":2}}}',
        b'[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]',
        b"[]",
        b"1",
        b"",
        b"\xef\xbb\xbf" + say(id=1, method="ping"),
        say(id=1, method="ping").decode().encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":1e999}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"9" * 5000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"a":' * 70 + b"1" + b"}" * 71,
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 100_000,
        say(id=1, method="ping") + b"x",
        say(id=1, method="ping", params=[]),
        say(id=1, method="ping\n"),
        say(id=1, method=7),
        say(id=None, method="ping"),
        say(id=True, method="ping"),
        say(id=1.5, method="ping"),
        say(id=[1], method="ping"),
        say(id="x" * 129, method="ping"),
        say(id=2**60, method="ping"),
        say(id=1, method="ping", extra=1),
        say(id=1, result={}, error={"code": 1}),
        say(id=1, result=[]),
        say(id=1, error={"code": "1"}),
        say(id=1),
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    ],
)
def test_v38_what_two_readers_could_read_differently_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        message(data)
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_v29_why_something_is_malformed_holds_nothing_of_it() -> None:
    for data in (b'{"token": "SUPERSECRET', b"SUPERSECRET", b'{"jsonrpc":"SUPERSECRET"}'):
        with pytest.raises(Malformed) as caught:
            message(data)
        assert "SECRET" not in repr(caught.value)


def test_what_is_written_is_ascii_and_reads_back() -> None:
    data = written({"id": 1, "method": "ping", "params": {"x": "é\u2028\U0001f600"}})
    assert data.isascii()
    assert message(data) == Request(1, "ping", {"x": "é\u2028\U0001f600"})
