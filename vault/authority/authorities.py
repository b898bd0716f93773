"""The CAs of one trust domain: one signs, and while it is replaced two are trusted. Pure.

prepared   the next CA is published, beside the one that signs; the one vouches for it
switched   the next CA signs; certificates of the one before are still good
settled    there is one; what the one before signed is refused
"""

from dataclasses import dataclass
from enum import StrEnum

from cryptography import x509

from carpal.proof import ca_pin
from vault.authority import ca


class Phase(StrEnum):
    """How far the authority's replacement is."""

    SETTLED = "settled"
    PREPARED = "prepared"
    SWITCHED = "switched"


@dataclass(frozen=True, slots=True)
class Authorities:
    """Who signs, who is trusted, and who vouches for whom."""

    phase: Phase
    signing: ca.Authority
    other: x509.Certificate | None = None
    """The next one while prepared, the one before while switched."""
    cross: x509.Certificate | None = None
    """The next CA's name and key, signed by the one before."""
    before: ca.Authority | None = None
    """The one before, while switched, with its key: some know only that."""

    @property
    def roots(self) -> tuple[x509.Certificate, ...]:
        """Those to trust, the one that signs first."""
        return (self.signing.certificate, *(() if self.other is None else (self.other,)))

    @property
    def bundle(self) -> bytes:
        """Those to trust, PEM."""
        return b"".join(ca.pem(root) for root in self.roots)

    @property
    def crosses(self) -> bytes:
        """The cross-certificate, PEM, while there is one."""
        return b"" if self.cross is None else ca.pem(self.cross)

    @property
    def pins(self) -> list[bytes]:
        """What a token pins, so that it is good through the next phase too."""
        return [ca_pin(ca.der(root)) for root in self.roots]

    def chain(self, leaf: x509.Certificate) -> bytes:
        """What the holder of a leaf shows, PEM.

        Leaf, then CA, so that a machine that enrols can find its pin. After a
        switch also what leads from the CA before, for those who know only that.
        """
        if self.phase is Phase.SWITCHED:
            return ca.pem(leaf) + self.crosses + self.bundle
        return ca.pem(leaf) + self.signing.pem


def settled(authority: ca.Authority) -> Authorities:
    """One that is all there is."""
    return Authorities(Phase.SETTLED, authority)
