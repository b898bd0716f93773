"""The term keys: they wrap the key of each sealed value, and are wrapped by the seal's key.

So a rotation of terms wraps small keys anew and no value, and one of the seal the terms alone.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from carpal.errors import refuse
from carpal.status import Reason
from vault.seal.envelope import (
    KEY_SIZE,
    NONCE_SIZE,
    NotSealedSo,
    Place,
    bound,
    seal,
    term_of,
    unseal,
)

WRAPS_MAX = 2**28
"""Keys that one term wraps: random nonces stay apart far beyond it."""
TERM_DAYS = 90


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value at rest."""

    wrapped: bytes
    """Its own key, under a term's."""
    blob: bytes
    """The value, under its own key."""


@dataclass(frozen=True)
class Keyring:
    """The terms that are open."""

    terms: Mapping[int, bytes] = field(repr=False)
    current: int

    def put(self, place: Place, generation: int, policy: bytes, plain: bytes) -> Sealed:
        """Seal a value under a key of its own, under the current term."""
        own = os.urandom(KEY_SIZE)
        value_to = place.bound("vault/v1/value", generation, policy)
        key_to = place.bound("vault/v1/dek", generation, policy)
        return Sealed(
            seal(self.terms[self.current], self.current, os.urandom(NONCE_SIZE), key_to, own),
            seal(own, 0, os.urandom(NONCE_SIZE), value_to, plain),
        )

    def get(self, place: Place, generation: int, policy: bytes, sealed: Sealed) -> bytes:
        """What was sealed. Raises NotSealedSo."""
        own = self._own_key(place, generation, policy, sealed.wrapped)
        return unseal(own, place.bound("vault/v1/value", generation, policy), sealed.blob)

    def wrap_again(self, place: Place, generation: int, policy: bytes, wrapped: bytes) -> bytes:
        """A value's own key under the current term. Raises NotSealedSo."""
        own = self._own_key(place, generation, policy, wrapped)
        to = place.bound("vault/v1/dek", generation, policy)
        return seal(self.terms[self.current], self.current, os.urandom(NONCE_SIZE), to, own)

    def _own_key(self, place: Place, generation: int, policy: bytes, wrapped: bytes) -> bytes:
        term = self.terms.get(term_of(wrapped))
        if term is None:
            raise NotSealedSo("it is of a term that is not there")
        own = unseal(term, place.bound("vault/v1/dek", generation, policy), wrapped)
        if len(own) != KEY_SIZE:
            raise NotSealedSo("its key is none")
        return own


def new_term() -> bytes:
    """A term's key."""
    return os.urandom(KEY_SIZE)


def wrap_term(kek: bytes, term: int, key: bytes) -> bytes:
    """A term's key, under the seal's."""
    return seal(kek, term, os.urandom(NONCE_SIZE), _term_bound(term), key)


def open_term(kek: bytes, term: int, wrapped: bytes) -> bytes:
    """A term's key. VAULT_CORRUPT: the seal's key is the right one, as its canary said."""
    try:
        key = unseal(kek, _term_bound(term), wrapped)
    except NotSealedSo as error:
        raise refuse(
            Reason.VAULT_CORRUPT, f"term {term} of the keyring does not open: {error}"
        ) from None
    return key


def _term_bound(term: int) -> bytes:
    return bound(b"vault/v1/term", str(term).encode())
