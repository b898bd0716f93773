"""The gate in front of the HTTP parser."""

import random

import pytest

from vault.http.gate import HEAD_MAX, Gate, Refused

HEAD = b"POST /mcp/x HTTP/1.1\r\nHost: vault\r\n"
WHOLE = HEAD + b"Content-Length: 4\r\n\r\nbody"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1\r\ny\r\n0\r\n\r\n"


@pytest.mark.parametrize("whole", [WHOLE, CHUNKED, b"GET / HTTP/1.1\r\nHost: v\r\n\r\n"])
def test_a_request_passes_unchanged_however_it_is_cut(whole: bytes) -> None:
    for seed in range(200):
        chance, gate, passed, at = random.Random(seed), Gate(), b"", 0
        while at < len(whole):
            step = chance.randint(1, 9)
            assert not gate.done
            passed += gate.take(whole[at : at + step])
            at += step
        assert (passed, gate.done, gate.pipelined) == (whole, True, False)


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 4\r\n",
        b"Content-Length: +4\r\n",
        b"Content-Length: 0x4\r\n",
        b"Content-Length: \r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
        b"Transfer-Encoding: identity\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"X: a\r\n folded\r\n",
        b"X: a\r\n\tfolded\r\n",
        b"X: a\nTransfer-Encoding: chunked\r\n",
        b"X: a\rY: b\r\n",
        b"X: \x00\r\n",
        b"X\r\n",
        b": x\r\n",
        b"Host: other\r\n",
        b"Authorization: a\r\nauthorization: b\r\n",
        b"Upgrade: h2c\r\n",
        b"Trailer: x\r\n",
    ],
)
def test_v27_what_could_be_read_in_two_ways_is_refused(headers: bytes) -> None:
    gate = Gate()
    with pytest.raises(Refused):
        gate.take(HEAD + headers + b"\r\nbody")


@pytest.mark.parametrize(
    "line",
    [
        b"POST http://evil/ HTTP/1.1",
        b"POST //evil HTTP/1.0",
        b"POST /a b HTTP/1.1",
        b"POST  /a HTTP/1.1",
        b"post /a HTTP/1.1",
        b"CONNECT evil:443 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"\r\nPOST /a HTTP/1.1",
        b"",
    ],
)
def test_v27_a_first_line_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(Refused):
        Gate().take(line + b"\r\nHost: vault\r\n\r\n")


@pytest.mark.parametrize(
    "chunks",
    [
        b"3;a=b\r\nbod\r\n0\r\n\r\n",
        b"3 \r\nbod\r\n0\r\n\r\n",
        b"3\nbod\r\n0\r\n\r\n",
        b"3\r\nbodXX0\r\n\r\n",
        b"3\r\nbod\n0\r\n\r\n",
        b"\r\n",
        b"-3\r\nbod\r\n",
        b"0x3\r\nbod\r\n",
        b"123456789\r\n",
        b"0\r\nX: trailer\r\n\r\n",
        b"g\r\n",
    ],
)
def test_v27_chunks_that_are_more_than_size_and_data_are_refused(chunks: bytes) -> None:
    with pytest.raises(Refused):
        bytewise(Gate(), HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)


def bytewise(gate: Gate, data: bytes) -> None:
    for byte in data:
        gate.take(bytes([byte]))


def test_v27_a_second_request_before_the_first_has_its_answer_never_passes() -> None:
    gate = Gate()
    assert gate.take(WHOLE + WHOLE) == WHOLE
    assert gate.pipelined
    assert gate.take(WHOLE) == b""


def test_the_next_request_passes_once_the_first_has_its_answer() -> None:
    gate = Gate()
    gate.take(WHOLE)
    gate.answered()
    assert gate.take(CHUNKED) == CHUNKED
    assert not gate.pipelined


def test_a_head_without_end_is_refused_at_its_largest() -> None:
    gate = Gate()
    gate.take(HEAD + b"X: " + b"x" * 1000)
    with pytest.raises(Refused):
        gate.take(b"x" * HEAD_MAX)


def test_a_bare_line_feed_is_refused_before_the_head_is_whole() -> None:
    with pytest.raises(Refused):
        Gate().take(HEAD + b"X: a\n")


def test_more_headers_than_there_may_be_are_refused() -> None:
    with pytest.raises(Refused):
        Gate().take(HEAD + b"X: a\r\n" * 100 + b"\r\n")
