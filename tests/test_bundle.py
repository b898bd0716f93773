"""A new authority is trusted only by the word of one that is trusted already."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from carpal.bundle import trusted
from carpal.identity import Role
from carpal.tls import new_key
from vault.authority import ca

NOW = datetime.now(UTC)


def authority(domain: str = "x.example") -> ca.Authority:
    return ca.new_authority(new_key(), domain, NOW)


OLD, NEXT, LAST, EVIL = authority(), authority(), authority(), authority()


def cross(by: ca.Authority, other: ca.Authority) -> bytes:
    return ca.pem(ca.cross_sign(by, other.certificate, NOW))


def leaf_of(by: ca.Authority) -> bytes:
    issued = ca.issue(
        by,
        ca.Claims(Role.BRAIN, "b"),
        public_key=NEXT.key.public_key(),
        not_before=NOW,
        not_after=NOW + ca.LEAF_LIFETIME,
    )
    return ca.pem(issued)


@dataclass
class Case:
    what: str
    bundle: bytes
    crosses: bytes
    held: bytes
    now: bytes


@pytest.mark.parametrize(
    "case",
    [
        Case("nothing is new", OLD.pem, b"", OLD.pem, OLD.pem),
        Case("prepared", OLD.pem + NEXT.pem, cross(OLD, NEXT), OLD.pem, OLD.pem + NEXT.pem),
        Case("slept through the switch", NEXT.pem + OLD.pem, cross(OLD, NEXT), OLD.pem,
             NEXT.pem + OLD.pem),
        Case("retired", NEXT.pem, b"", OLD.pem + NEXT.pem, NEXT.pem),
        Case("the same in another order", NEXT.pem + OLD.pem, cross(OLD, NEXT),
             OLD.pem + NEXT.pem, OLD.pem + NEXT.pem),
        Case("one vouched for by one vouched for", LAST.pem + NEXT.pem,
             cross(NEXT, LAST) + cross(OLD, NEXT), OLD.pem, LAST.pem + NEXT.pem),
        Case("slept through it all", NEXT.pem, b"", OLD.pem, OLD.pem),
        Case("a brain's own authority", EVIL.pem + OLD.pem, b"", OLD.pem, OLD.pem),
        Case("vouched for by itself", EVIL.pem + OLD.pem, cross(EVIL, EVIL), OLD.pem, OLD.pem),
        Case("by the voucher of another", EVIL.pem + OLD.pem, cross(OLD, NEXT), OLD.pem, OLD.pem),
        Case("by a leaf of ours", EVIL.pem + OLD.pem, leaf_of(OLD), OLD.pem, OLD.pem),
        Case("the retired one again", OLD.pem + NEXT.pem, cross(OLD, NEXT), NEXT.pem, NEXT.pem),
        Case("junk", b"junk", b"junk", OLD.pem, OLD.pem),
        Case("nothing", b"", b"", OLD.pem, OLD.pem),
    ],
    ids=lambda case: case.what,
)  # fmt: skip
def test_what_is_trusted_is_held_already_or_vouched_for(case: Case) -> None:
    assert trusted(case.bundle, case.crosses, case.held) == case.now
