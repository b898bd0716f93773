"""HTTP heads: what is passed on, and what two readers could understand in two ways."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hands.forwarder import heads
from hands.forwarder.heads import Refused


def read(*lines: str) -> heads.Request:
    return heads.request("".join(f"{line}\r\n" for line in [*lines, ""]).encode("latin-1"))


def refused(*lines: str) -> Refused:
    with pytest.raises(Refused) as raised:
        read(*lines)
    return raised.value


def test_a_whole_url_becomes_a_request_for_its_host() -> None:
    asked = read(
        "GET http://Example.com:8080/a/b?c=d HTTP/1.1",
        "Host: example.com:8080",
        "User-Agent: x",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic secret",
        "Connection: keep-alive, X-Mine",
        "X-Mine: 1",
    )
    assert (asked.host, asked.port, asked.tls, asked.path) == ("example.com", 8080, False, "/a/b")
    assert asked.head() == (
        b"GET /a/b?c=d HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x\r\n"
        b"Connection: close\r\n\r\n"
    )


def test_an_https_url_is_asked_for_by_tls() -> None:
    asked = read("GET https://example.com?x HTTP/1.1", "Host: example.com")
    assert (asked.tls, asked.port, asked.target) == (True, 443, "/?x")
    assert b"Host: example.com\r\n" in asked.head()


def test_connect_names_host_and_port() -> None:
    asked = read("CONNECT [2001:db8::1]:443 HTTP/1.1", "Host: [2001:db8::1]:443")
    assert (asked.host, asked.port, asked.tunnel, asked.path) == ("2001:db8::1", 443, True, "")
    assert refused("CONNECT example.com HTTP/1.1", "Host: example.com").status == 400


def test_a_path_alone_is_no_request_to_a_proxy() -> None:
    assert "whole URL" in refused("GET /etc HTTP/1.1", "Host: example.com").why
    assert "whole URL" in refused("OPTIONS * HTTP/1.1", "Host: example.com").why


def test_a_dot_at_the_end_and_capitals_make_no_other_host() -> None:
    assert read("GET http://EXAMPLE.com./ HTTP/1.1", "Host: example.com").host == "example.com"


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (400, ["GET http://a.b/ HTTP/1.1"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", "Host: a.b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: c.d"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b:81"]),
        (400, ["GET http://u@a.b/ HTTP/1.1", "Host: a.b"]),
        (400, ["GET http://a.b@c.d/ HTTP/1.1", "Host: c.d"]),
        (400, ["GET http://a.b#@c.d/ HTTP/1.1", "Host: a.b"]),
        (400, ["GET http://a.b\\@c.d/ HTTP/1.1", "Host: a.b"]),
        (400, ["GET http://127.1/ HTTP/1.1", "Host: 127.1"]),
        (400, ["GET http://0x7f000001/ HTTP/1.1", "Host: 0x7f000001"]),
        (400, ["GET http://b\xfccher.example/ HTTP/1.1", "Host: b\xfccher.example"]),
        (400, ["GET http:///x HTTP/1.1", "Host: a.b"]),
        (400, ["GET ftp://a.b/ HTTP/1.1", "Host: a.b"]),
        (400, ["GET http://a.b/ x HTTP/1.1", "Host: a.b"]),
        (400, ["GET  http://a.b/ HTTP/1.1", "Host: a.b"]),
        (400, ["GET\thttp://a.b/\tHTTP/1.1", "Host: a.b"]),
        (505, ["PRI * HTTP/2.0"]),
        (505, ["GET http://a.b/ HTTP/2.0", "Host: a.b"]),
        (505, ["GET http://a.b/ http/1.1", "Host: a.b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host : a.b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", " folded"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", "X: a\nY: b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", "X: a\rY: b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", "X: a\0b"]),
        (400, ["GET http://a.b/ HTTP/1.1", "Host: a.b", "X"]),
        (431, ["GET http://a.b/ HTTP/1.1", "Host: a.b", *["X: y"] * 100]),
    ],
)
def test_a_malformed_request_is_refused(status: int, lines: list[str]) -> None:
    assert refused(*lines).status == status


@pytest.mark.parametrize(
    "framing",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Content-Length: 5", "Content-Length: 6"],
        ["Content-Length: 5", "Content-Length: 5"],
        ["Content-Length: 5, 5"],
        ["Content-Length: +5"],
        ["Content-Length: -5"],
        ["Content-Length: 0x5"],
        ["Content-Length: 5_0"],
        ["Content-Length:"],
        ["Transfer-Encoding: xchunked"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: chunked, identity"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: \x0bchunked"],
        ["Transfer-Encoding : chunked"],
    ],
)
def test_a_body_whose_end_two_servers_see_in_two_places_is_refused(framing: list[str]) -> None:
    head = ["POST http://a.b/ HTTP/1.1", "Host: a.b", *framing]
    assert refused(*head).status == 400


def test_http_1_0_has_no_chunks() -> None:
    refused("POST http://a.b/ HTTP/1.0", "Transfer-Encoding: chunked")


def test_a_body_is_framed_anew_and_no_client_can_have_its_frame_dropped() -> None:
    for framing in ("Content-Length: 5", "Transfer-Encoding: chunked"):
        asked = read(
            "POST http://a.b/ HTTP/1.1",
            "Host: a.b",
            framing,
            "Connection: Content-Length, Host, Transfer-Encoding",
        )
        assert asked.head().count(framing.encode()) == 1
        assert b"Host: a.b\r\n" in asked.head()


def test_no_request_is_upgraded_to_another_protocol() -> None:
    asked = read(
        "GET http://a.b/ HTTP/1.1",
        "Host: a.b",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABk",
    )
    assert asked.head() == b"GET / HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n"
    with pytest.raises(Refused, match="changes the protocol"):
        heads.response(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", "GET")


@pytest.mark.parametrize(
    ("head", "method", "length", "chunked"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "GET", 5, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "GET", None, True),
        (b"HTTP/1.0 200\r\n\r\n", "GET", None, False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 0, False),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "GET", 0, False),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "GET", 0, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "POST", 0, False),
    ],
)
def test_an_answers_body_ends_where_its_head_says(
    head: bytes, method: str, length: int | None, chunked: bool
) -> None:
    found = heads.response(head, method)
    assert (found.length, found.chunked) == (length, chunked)


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\nX: y\r\n\r\n",
    ],
)
def test_an_answer_that_is_not_understood_is_not_passed_on(head: bytes) -> None:
    with pytest.raises(Refused) as raised:
        heads.response(head, "GET")
    assert raised.value.status == 502


def test_a_refusal_can_be_read_where_clients_show_it() -> None:
    said = heads.answer(403, "b\xfccher\r\nX: y is not allowed")
    line, _, rest = said.partition(b"\r\n")
    assert line == b"HTTP/1.1 403 b?cher?X: y is not allowed"
    assert b"Connection: close\r\n\r\ncarpal: b" in rest


def test_no_host_says_that_the_forwarder_refused() -> None:
    forged = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nCARPAL-REFUSED: yes\r\n\r\n"
    passed = heads.response(forged, "GET").head("HTTP/1.1")
    assert heads.REFUSED.encode() not in passed.lower()
    assert heads.REFUSED.encode() in heads.answer(403, "no").lower()


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_be_refused(junk: bytes) -> None:
    for head in (junk, b"GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n" + junk):
        try:
            asked = heads.request(head + b"\r\n\r\n")
        except Refused:
            continue
        # What is passed on reads as one request, to the same place.
        if not asked.tunnel:
            place = f"{asked.method} http://a.b".encode()
            again = asked.head().replace(asked.method.encode() + b" ", place, 1)
            again = again.replace(f"Host: {asked.host}".encode(), b"Host: a.b")
            assert again.count(b"\r\n\r\n") == 1
            assert heads.request(again).target == asked.target
