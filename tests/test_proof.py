"""Proofs hold for exactly what they were made for; a token survives copying, or says so."""

import base64
import contextlib
import json
from pathlib import Path

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from carpal.errors import BadInput
from carpal.proof import (
    TOKEN_PREFIX,
    Token,
    check_renewal,
    enrol_proof,
    parse_token,
    renewal_signature,
)
from carpal.status import Reason
from carpal.tls import certificate_request, new_key
from tests.pki import Pki

SECRET = bytes(range(32))
TOKEN = Token("brain.example:7443", (b"p" * 32, b"q" * 32), "tok_1", SECRET)


def test_a_proof_depends_on_secret_id_and_request() -> None:
    proofs = {
        enrol_proof(SECRET, "tok_1", b"request"),
        enrol_proof(bytes(32), "tok_1", b"request"),
        enrol_proof(SECRET, "tok_2", b"request"),
        enrol_proof(SECRET, "tok_1", b"request!"),
        enrol_proof(SECRET, "tok_1r", b"equest"),  # lengths are part of what is proved
    }
    assert len(proofs) == 5
    assert all(len(proof) == 32 for proof in proofs)


def test_the_enrolment_proof_never_changes_its_form() -> None:
    assert enrol_proof(SECRET, "tok_1", b"request").hex() == (
        "3410dfaf4007dc690918a368f9b92f996534fa81345c42270f37d6cdb666b208"
    )


def test_a_renewal_is_signed_by_the_certificates_own_key(tmp_path: Path) -> None:
    old = Pki(tmp_path).issue("daemon", "d1").load()
    request = certificate_request(new_key())
    certificate = x509.load_pem_x509_certificate(old.chain)
    signature = renewal_signature(old.key, request)
    assert check_renewal(certificate, request, signature)
    assert not check_renewal(certificate, request + b"\0", signature)
    assert not check_renewal(certificate, request, b"")
    assert not check_renewal(certificate, request, renewal_signature(new_key(), request))


def test_a_token_is_one_line_that_reads_back() -> None:
    text = TOKEN.text()
    assert text.startswith("carpal1.")
    assert "\n" not in text
    assert " " not in text
    assert parse_token(f"  {text}\n") == TOKEN


def test_a_token_does_not_show_its_secret() -> None:
    shown = f"{TOKEN!r} {TOKEN}"
    assert "secret" not in shown
    assert SECRET.hex() not in shown
    assert base64.b64encode(SECRET).decode() not in shown
    assert repr(SECRET) not in shown


def test_members_of_a_newer_token_are_skipped() -> None:
    body = decode(TOKEN.text())
    assert parse_token(encode({**body, "z": [1]})) == TOKEN


@pytest.mark.parametrize(
    "change",
    [
        {"a": "no-port"},
        {"a": "host:0"},
        {"a": "host:70000"},
        {"a": "ho st:1"},
        {"a": 7},
        {"p": []},
        {"p": ["short"]},
        {"p": [7]},
        {"p": "x"},
        {"i": ""},
        {"i": "a b"},
        {"s": base64.b64encode(b"short").decode()},
        {"s": "%"},
        {"s": None},
    ],
    ids=str,
)
def test_a_token_with_a_bad_member_is_malformed(change: dict[str, object]) -> None:
    assert_malformed(encode({**decode(TOKEN.text()), **change}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "hello",
        TOKEN_PREFIX,
        TOKEN_PREFIX + "!!!!",
        TOKEN_PREFIX + base64.urlsafe_b64encode(b"[1]").decode(),
        TOKEN_PREFIX + base64.urlsafe_b64encode(b"[" * 3000).decode(),
        TOKEN.text()[: len(TOKEN.text()) // 2],
        TOKEN.text()[1:],
        TOKEN.text().replace("carpal1", "carpal2"),
        TOKEN.text() + " " + TOKEN.text(),
        TOKEN_PREFIX + "A" * 100_000,
        "caf\u00e9",
        TOKEN_PREFIX + "caf\u00e9",
    ],
    ids=range(14),
)
def test_mangled_text_is_malformed(text: str) -> None:
    assert_malformed(text)


@given(st.integers(0, len(TOKEN.text()) - 1), st.characters())
def test_one_wrong_character_never_crashes_the_parser(at: int, character: str) -> None:
    text = TOKEN.text()
    changed = text[:at] + character + text[at + 1 :]
    # Anything but TOKEN_MALFORMED fails the test by being raised.
    with contextlib.suppress(BadInput):
        parse_token(changed)


def assert_malformed(text: str) -> None:
    with pytest.raises(BadInput) as raised:
        parse_token(text)
    assert raised.value.reason is Reason.TOKEN_MALFORMED
    assert raised.value.exit_code == 2
    # Nothing of what was pasted, which may hold a secret, is said again.
    assert base64.b64encode(SECRET).decode()[:8] not in str(raised.value)
    assert len(str(raised.value)) < 200


def decode(text: str) -> dict[str, object]:
    packed = text.removeprefix(TOKEN_PREFIX)
    body: dict[str, object] = json.loads(
        base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    )
    return body


def encode(body: dict[str, object]) -> str:
    return TOKEN_PREFIX + base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")
