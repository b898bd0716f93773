"""sessiond.tickets: what sessiond signs of a log, anyone with the CA can check, at any time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.signed import sign, verify_head
from carpal.status import Reason
from carpal.tls import new_key
from carpal.v1 import types_pb2
from sessiond.tickets import Tickets
from tests.logs import head, log
from tests.pki import Pki
from vault.authority import ca

INFO = types_pb2.SessionInfo(session_id="sesn_2", chain_id="sesn_1", head=head(log(b"{}", b"[]")))


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def signed(pki: Pki) -> types_pb2.SignedBytes:
    return Tickets(pki.issue(Role.SESSIOND, "sessiond")).sign_head(INFO, time.time_ns())


def test_a_signed_head_says_whose_log_it_is_and_when_and_who_signed(
    pki: Pki, signed: types_pb2.SignedBytes
) -> None:
    said, signer = verify_head(signed, pki.ca_pem)
    assert (said.session_id, said.chain_id, said.head) == ("sesn_2", "sesn_1", INFO.head)
    assert signer.uri == "spiffe://carpal.internal/sessiond/sessiond"
    assert abs(said.time.ToDatetime(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_session_with_its_own_chain_says_so(pki: Pki) -> None:
    tickets = Tickets(pki.issue(Role.SESSIOND, "sessiond"))
    signed = tickets.sign_head(types_pb2.SessionInfo(session_id="sesn_1"), time.time_ns())
    assert verify_head(signed, pki.ca_pem)[0].chain_id == "sesn_1"


def test_a_head_still_proves_something_when_its_certificate_has_expired(pki: Pki) -> None:
    then = datetime.now(UTC) - timedelta(days=9)
    pki.authority = ca.new_authority(new_key(), pki.trust_domain, then - timedelta(hours=2))
    files = pki.issue(
        Role.SESSIOND,
        "sessiond",
        not_before=then - timedelta(hours=1),
        not_after=then + timedelta(hours=1),
    ).load()
    said = types_pb2.SignedHead(session_id="sesn_1", head=INFO.head)
    said.time.FromDatetime(then)
    signed = sign(files.key, files.chain, said.SerializeToString())
    assert verify_head(signed, pki.ca_pem)[0] == said
    said.time.FromDatetime(then + timedelta(hours=2))
    signed = sign(files.key, files.chain, said.SerializeToString())
    with pytest.raises(CarpalError, match="not chain to an authority that is trusted"):
        verify_head(signed, pki.ca_pem)


@pytest.mark.parametrize(
    "forge",
    [
        lambda signed: signed.payload.replace(b"sesn_2", b"sesn_3"),
        lambda signed: b"",
        lambda signed: b"\xff",
        lambda signed: types_pb2.SignedHead(
            session_id="sesn_2", time=Timestamp(seconds=-(2**60))
        ).SerializeToString(),
    ],
)
def test_a_payload_that_was_changed_proves_nothing(
    pki: Pki, signed: types_pb2.SignedBytes, forge: Callable[[types_pb2.SignedBytes], bytes]
) -> None:
    signed.payload = forge(signed)
    with pytest.raises(CarpalError) as raised:
        verify_head(signed, pki.ca_pem)
    assert raised.value.reason is Reason.IDENTITY_INVALID


def test_a_head_by_another_role_or_another_ca_proves_nothing(
    pki: Pki, signed: types_pb2.SignedBytes, tmp_path: Path
) -> None:
    brain = pki.issue(Role.BRAIN, "brain-1").load()
    with pytest.raises(CarpalError, match="signed by a brain"):
        verify_head(sign(brain.key, brain.chain, signed.payload), pki.ca_pem)
    with pytest.raises(CarpalError, match="not chain to an authority that is trusted"):
        verify_head(signed, Pki(tmp_path / "other").ca_pem)


def test_a_certificate_that_is_gone_stops_no_signing_and_its_return_is_noticed(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    files = pki.issue(Role.SESSIOND, "sessiond")
    tickets = Tickets(files)
    files.certificate.unlink()
    for _ in range(3):
        tickets.sign_head(INFO, time.time_ns())
    assert [record.message for record in caplog.records] == ["identity not reloaded"]
    renewed = pki.issue(Role.SESSIOND, "sessiond").identity()
    _, signer = verify_head(tickets.sign_head(INFO, time.time_ns()), pki.ca_pem)
    assert signer.serial == renewed.serial
