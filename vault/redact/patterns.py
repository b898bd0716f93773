"""All the ways in which a reply may spell a secret. Pure.

A server that echoes a header gives it raw, in JSON, in a URL, in hex, in base64 or in HTML; each
spelling is one run of bytes to look for. What a server computes otherwise (reversed, hashed,
compressed inside, split by other text) is not among them, and no list could have it.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from vault.secret import Secret

SHORTEST = 8
"""Bytes of what is looked for: fewer would be found everywhere by chance."""
_JAVASCRIPT_SAFE = "!'()*"
"""What `encodeURIComponent` leaves, beyond Python's own."""
_URL_SAFE = "!'()*;,/?:@&=+$#"
"""What `encodeURI` leaves."""
_PLAIN = re.compile(rb"[A-Za-z0-9_.~-]+")
"""What no escaping changes, as most tokens are."""
_HTML = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""JSON that may stand in a page, as Go writes it."""


def spellings(secrets: Iterable[Secret]) -> tuple[bytes, ...]:
    """Everything to look for, each once, the longest first. ValueError for a secret too short."""
    found: set[bytes] = set()
    for secret in secrets:
        value = secret.reveal()
        if len(value) < SHORTEST:
            raise ValueError(f"a secret of fewer than {SHORTEST} bytes cannot be looked for")
        found.update(_of(value))
    return tuple(sorted(found, key=lambda each: (-len(each), each)))


def _of(value: bytes) -> Iterator[bytes]:
    """The spellings of one value, some of them more than once."""
    yield value
    digits = value.hex().encode()
    yield digits
    yield digits.upper()
    every = f"%{value.hex('%')}".encode()
    yield every
    yield every.upper()
    yield from _base64(value)
    if _PLAIN.fullmatch(value):
        return  # in a URL, in JSON and in a page it stands as it is
    yield from _percent(value)
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return  # bytes that are no text are in no JSON and no page
    once = set(_json(text))
    yield from (each.encode() for each in once)
    for each in once:
        yield from (twice.encode() for twice in _json(each))  # a tool's JSON in JSON's text
    yield from (html.escape(text, quote=each).encode() for each in (False, True))
    yield html.escape(text).replace("&#x27;", "&#39;").encode()


def _json(text: str) -> Iterator[str]:
    for ascii_only in (True, False):
        plain = json.dumps(text, ensure_ascii=ascii_only)[1:-1]
        for each in (plain, plain.translate(_HTML)):
            yield each
            yield each.replace("/", "\\/")


def _percent(value: bytes) -> Iterator[bytes]:
    forms = {quote(value, safe=safe) for safe in ("", "/", _JAVASCRIPT_SAFE, _URL_SAFE)}
    forms.add(quote_plus(value))
    for form in forms:
        yield form.encode()
        yield _lower(form).encode()


def _lower(form: str) -> str:
    """The same, its hex digits in lower case."""
    head, *rest = form.split("%")
    return "%".join([head, *(each[:2].lower() + each[2:] for each in rest)])


def _base64(value: bytes) -> Iterator[bytes]:
    """What base64 of any text with the value in it has of it, wherever in the text that stands.

    Three bytes are four letters, so there are three ways; a letter that also depends on what is
    before or after the value is left out.
    """
    for before, shared in ((0, 0), (1, 2), (2, 3)):
        whole = b64encode(bytes(before) + value)
        letters = whole[shared : (before + len(value)) * 8 // 6]
        yield letters
        yield letters.translate(bytes.maketrans(b"+/", b"-_"))
        if b"+" not in letters and b"/" not in letters:
            continue
        yield letters.replace(b"/", rb"\/")
        escaped = letters.replace(b"+", b"%2B").replace(b"/", b"%2F")
        yield escaped
        yield escaped.replace(b"%2B", b"%2b").replace(b"%2F", b"%2f")
