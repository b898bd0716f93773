"""A sealed value opens in its own place, version and policy, and nowhere else."""

import random

import pytest

from vault.seal.envelope import (
    NotSealedSo,
    Place,
    bound,
    policy_hash,
    seal,
    term_of,
    unseal,
)
from vault.seal.keyring import Keyring, Sealed, new_term

KEY, NONCE = bytes(range(32)), bytes(12)
HERE = Place("credential", "default", "v1", "c1", "token")
POLICY = policy_hash(b"api.example.com")
RING = Keyring({3: new_term(), 4: new_term()}, 4)
PLAIN = b"canary-secret-of-the-test"


def test_a_value_reads_back_and_its_blob_has_the_documented_shape() -> None:
    sealed = RING.put(HERE, 1, POLICY, PLAIN)
    assert RING.get(HERE, 1, POLICY, sealed) == PLAIN
    assert (sealed.wrapped[:5], term_of(sealed.wrapped)) == (b"AVC1\x01", 4)
    assert PLAIN not in sealed.wrapped + sealed.blob
    assert len(sealed.blob) == 9 + 12 + len(PLAIN) + 16


@pytest.mark.parametrize(
    ("place", "generation", "policy"),
    [
        (Place("token", "default", "v1", "c1", "token"), 1, POLICY),
        (Place("credential", "other", "v1", "c1", "token"), 1, POLICY),
        (Place("credential", "default", "v2", "c1", "token"), 1, POLICY),
        (Place("credential", "default", "v1", "c2", "token"), 1, POLICY),
        (Place("credential", "default", "v1", "c1", "refresh"), 1, POLICY),
        (Place("credential", "defaultv", "1", "c1", "token"), 1, POLICY),
        (HERE, 2, POLICY),
        (HERE, 1, policy_hash(b"api.example.com", b"evil.example")),
    ],
)
def test_v06_no_other_place_generation_or_policy_opens_it(
    place: Place, generation: int, policy: bytes
) -> None:
    sealed = RING.put(HERE, 1, POLICY, PLAIN)
    with pytest.raises(NotSealedSo):
        RING.get(place, generation, policy, sealed)


def test_v02_keys_or_values_that_were_swapped_do_not_open() -> None:
    other = Place("credential", "default", "v1", "c2", "token")
    mine, theirs = RING.put(HERE, 1, POLICY, PLAIN), RING.put(other, 1, POLICY, b"theirs")
    for mixed in (
        Sealed(theirs.wrapped, mine.blob),
        Sealed(mine.wrapped, theirs.blob),
        theirs,
    ):
        with pytest.raises(NotSealedSo):
            RING.get(HERE, 1, POLICY, mixed)


@pytest.mark.parametrize("blob", [PLAIN, b"", b"AVC0" + bytes(60), b"AVC1\x00" + bytes(60)])
def test_v05_plaintext_and_other_formats_are_never_read(blob: bytes) -> None:
    sealed = RING.put(HERE, 1, POLICY, PLAIN)
    for wrong in (Sealed(sealed.wrapped, blob), Sealed(blob, sealed.blob)):
        with pytest.raises(NotSealedSo):
            RING.get(HERE, 1, POLICY, wrong)


def test_v05_an_older_format_byte_or_another_term_is_refused() -> None:
    sealed = RING.put(HERE, 1, POLICY, PLAIN)
    for place in range(9):  # magic, algorithm, term
        wrong = bytearray(sealed.wrapped)
        wrong[place] ^= 1
        with pytest.raises(NotSealedSo):
            RING.get(HERE, 1, POLICY, Sealed(bytes(wrong), sealed.blob))


def test_v04_no_flip_and_no_cut_of_a_value_gives_another() -> None:
    chance = random.Random(4)
    sealed = RING.put(HERE, 1, POLICY, PLAIN)
    for _ in range(200):
        wrong = bytearray(sealed.blob)
        wrong[chance.randrange(len(wrong))] ^= 1 << chance.randrange(8)
        with pytest.raises(NotSealedSo):
            RING.get(HERE, 1, POLICY, Sealed(sealed.wrapped, bytes(wrong)))
        cut = sealed.blob[: chance.randrange(len(sealed.blob))]
        with pytest.raises(NotSealedSo):
            RING.get(HERE, 1, POLICY, Sealed(sealed.wrapped, cut))


def test_a_key_wrapped_again_opens_by_the_new_term_alone() -> None:
    old = Keyring({3: RING.terms[3]}, 3)
    sealed = old.put(HERE, 1, POLICY, PLAIN)
    again = Sealed(RING.wrap_again(HERE, 1, POLICY, sealed.wrapped), sealed.blob)
    assert Keyring({4: RING.terms[4]}, 4).get(HERE, 1, POLICY, again) == PLAIN
    with pytest.raises(NotSealedSo):
        old.get(HERE, 1, POLICY, again)


def test_no_two_lists_of_fields_are_bound_alike() -> None:
    lists = [
        (b"a", b"bc"),
        (b"ab", b"c"),
        (b"abc",),
        (b"abc", b""),
        (b"", b"abc"),
        (b"a", b"b", b"c"),
    ]
    assert len({bound(*each) for each in lists}) == len(lists)


def test_what_is_not_bound_would_open_elsewhere() -> None:
    """Why all this: the same key and nothing bound opens whatever is put in its place."""
    mine, theirs = (seal(KEY, 0, NONCE, b"", text) for text in (b"mine", b"theirs"))
    assert unseal(KEY, b"", theirs) == b"theirs"
    assert unseal(KEY, b"", mine) == b"mine"
