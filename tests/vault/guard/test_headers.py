"""Headers go out as they were meant or not at all, and come back only when they are wanted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault.guard.errors import BadRequest, Malformed
from vault.guard.headers import Slot, basic, bearer, encoding, from_caller, incoming, outgoing
from vault.secret import Secret

TOKEN = "tok_0123456789abcdef"
BAD = [
    "a\rb",
    "a\nb",
    "a\r\nX-Evil: 1",
    "a\0b",
    "é",
    "a\x7fb",
    " lead",
    "trail ",
    "a\tb\x1f",
    "\u2028",
]


@pytest.mark.parametrize("value", BAD)
def test_a_value_that_would_be_more_than_one_is_not_sent_v25(value: str) -> None:
    with pytest.raises(BadRequest) as refused:
        outgoing([("X-Tool", value)])
    assert value not in str(refused.value) + repr(refused.value.fields)


@pytest.mark.parametrize("name", [*BAD, "", "a b", "a:b", "a(b", "ü", "X" * 300])
def test_a_name_that_is_no_token_is_not_sent_v25(name: str) -> None:
    with pytest.raises(BadRequest):
        outgoing([(name, "x")])


@pytest.mark.parametrize("value", [each for each in BAD if each.strip()] + ["with space inside"])
def test_a_secret_that_is_not_visible_ascii_is_not_rendered_v25(value: str) -> None:
    for slot in (Slot(Secret(value)), bearer(Secret(value)), basic("u", Secret(value))):
        with pytest.raises(BadRequest) as refused:
            outgoing([("Authorization", slot)])
        assert value not in str(refused.value) + repr(refused.value.fields)


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "TE",
        "Upgrade",
        "Expect",
        "Accept-Encoding",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Keep-Alive",
        "Trailer",
    ],
)
def test_what_the_guard_says_itself_nobody_else_says(name: str) -> None:
    with pytest.raises(BadRequest):
        outgoing([(name, "x")])


def test_no_name_is_there_twice_in_whatever_case() -> None:
    with pytest.raises(BadRequest):
        outgoing([("Authorization", bearer(Secret(TOKEN))), ("authorization", "Bearer mine")])


def test_slots_render_and_print_only_their_marks() -> None:
    assert outgoing([("Authorization", bearer(Secret(TOKEN)))])[0][1] == f"Bearer {TOKEN}".encode()
    assert outgoing([("X-Api-Key", Slot(Secret(TOKEN)))])[0][1] == TOKEN.encode()
    assert basic("x", Secret("abcdefgh")).render() == "Basic eDphYmNkZWZnaA=="
    assert TOKEN not in repr(bearer(Secret(TOKEN)))
    with pytest.raises(BadRequest):
        basic("a:b", Secret(TOKEN)).render()


def test_a_callers_own_credentials_and_hops_go_nowhere_v26() -> None:
    own = [
        ("Authorization", "Bearer mine"),
        ("Cookie", "a=b"),
        ("X-Api-Key", "k"),
        ("Proxy-Authorization", "Basic x"),
        ("X-Forwarded-For", "1.2.3.4"),
        ("Forwarded", "for=1.2.3.4"),
        ("Connection", "close, X-Hop ,authorization"),
        ("X-Hop", "1"),
        ("Host", "evil.com"),
        ("Transfer-Encoding", "chunked"),
        ("Accept", "text/html"),
    ]
    assert from_caller(own) == [("accept", "text/html")]


def test_of_a_reply_only_what_is_wanted_is_kept() -> None:
    raw = [
        (b"Content-Type", b"text/plain"),
        (b"Set-Cookie", b"a=b"),
        (b"WWW-Authenticate", b"Bearer"),
        (b"X-Other", b"1"),
        (b"Alt-Svc", b"h3"),
        (b"Link", b"</x>"),
        (b"Content-Length", b"3"),
        (b"Cache-Control", b"no-store"),
        (b"Cache-Control", b"private"),
        (b"Pragma", "é".encode()),
    ]
    assert dict(incoming(raw)) == {
        "content-type": b"text/plain",
        "cache-control": b"no-store, private",
    }
    never = ["set-cookie", "link", "alt-svc", "content-length", "www-authenticate"]
    assert dict(incoming(raw, never)) == {"www-authenticate": b"Bearer"}


@pytest.mark.parametrize("name", [b"content-type", b"Location"])
def test_two_of_what_there_is_one_of_are_an_error(name: bytes) -> None:
    with pytest.raises(Malformed):
        list(incoming([(name, b"a/b"), (name.upper(), b"c/d")]))
    with pytest.raises(Malformed):
        encoding([(b"Content-Encoding", b"gzip"), (b"content-encoding", b"identity")])


@given(st.text(max_size=30), st.text(max_size=30))
def test_whatever_is_sent_is_one_line_of_printable_ascii_v25(name: str, value: str) -> None:
    try:
        [(sent, content)] = outgoing([(name, value)])
    except BadRequest:
        return
    assert sent.isascii()
    assert all(32 <= byte < 127 or byte == 9 for byte in content)
