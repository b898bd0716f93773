"""Each spelling of a secret that an ordinary program makes is one that is looked for."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vault.redact.patterns import SHORTEST, spellings
from vault.redact.stream import Patterns, Redactor
from vault.secret import Secret

AWKWARD = "p+ss/w\"rd\\<&>'é=%2F{x}~"
TOKENS = ("ghp_Ab12Cd34Ef56Gh78", "eyJhbGciOi.J9-_x+/=zzzzzz", AWKWARD)


def clean(text: bytes, token: str) -> bytes:
    passing = Redactor(Patterns([Secret(token)]))
    return passing.feed(text) + passing.end()


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "spelled",
    [
        lambda t: t,
        lambda t: t.encode().hex(),
        lambda t: t.encode().hex().upper(),
        json.dumps,
        lambda t: json.dumps(t, ensure_ascii=False),
        lambda t: json.dumps(t).replace("/", "\\/"),
        lambda t: json.dumps(json.dumps({"error": t})),
        lambda t: (
            json.dumps(t).replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        ),
        quote,
        lambda t: quote(t, safe=""),
        quote_plus,
        lambda t: quote(t, safe="!'()*"),
        lambda t: urlencode({"q": t}),
        lambda t: "".join(f"%{byte:02x}" for byte in t.encode()),
        html.escape,
        lambda t: html.escape(t, quote=False),
        lambda t: html.escape(t).replace("&#x27;", "&#39;"),
    ],
)
def test_no_ordinary_spelling_passes(token: str, spelled) -> None:  # type: ignore[no-untyped-def]
    text = "{" + spelled(token) + "}"
    out = clean(text.encode(), token)
    assert b"[REDACTED]" in out
    assert len(out) < len("{[REDACTED]}") + 20  # what is left is punctuation around it


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize(
    "escape",
    [
        lambda b: b,
        lambda b: b.replace(b"/", b"\\/"),
        lambda b: quote(b).encode(),
        lambda b: quote(b, safe="").encode(),
    ],
)
def test_base64_of_it_in_any_text_passes_at_no_alignment(token: str, encode, escape) -> None:  # type: ignore[no-untyped-def]
    for before in range(7):
        for after in range(4):
            whole = ("u" * before + token + ":" * after).encode()
            out = clean(escape(encode(whole)), token)
            assert b"[REDACTED]" in out, (before, after)
            # At most a letter beside each end has bits of it.
            assert len(out) <= len(b"[REDACTED]") + (before + after + 8) * 4 // 3 + 6


def test_a_secret_too_short_to_look_for_is_refused_without_saying_it() -> None:
    with pytest.raises(ValueError, match="fewer than 8") as refused:
        spellings([Secret("hunter2")])
    assert "hunter2" not in str(refused.value)


@given(st.binary(min_size=SHORTEST, max_size=64))
def test_every_spelling_is_long_enough_to_be_found(value: bytes) -> None:
    assert min(map(len, spellings([Secret(value)]))) >= SHORTEST


def test_what_a_server_computes_of_a_secret_is_not_found() -> None:
    """The limit that docs/threat-model.md speaks of: no list of spellings has these."""
    token = b"tok-CANARY-3f9a77c1e5d2"
    looked = Patterns([Secret(token)])
    for made in (token[::-1], b" ".join(token[at : at + 1] for at in range(len(token)))):
        assert looked.spans(made) == []
