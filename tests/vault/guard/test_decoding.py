"""What a server compressed comes out as it was, or not at all, and never as more than allowed."""

import gzip
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vault.guard.decoding import Decoder
from vault.guard.errors import Malformed, TooLarge
from vault.guard.limits import MIB, Limits

LIMITS = Limits()
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "deflate": zlib.compress,
}


def decoded(encoding: str, data: bytes, cuts: list[int], limits: Limits = LIMITS) -> bytes:
    decoder = Decoder(encoding, limits)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    out = [piece for a, b in pairwise(edges) for piece in decoder.feed(data[a:b])]
    decoder.end()
    assert decoder.given == sum(map(len, out))
    return b"".join(out)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(sorted(COMPRESS)),
    st.binary(max_size=2000),
    st.integers(1, 400),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_it_comes_out_as_it_was_however_it_is_cut(
    encoding: str, some: bytes, often: int, cuts: list[int]
) -> None:
    data = some * often
    assert decoded(encoding, COMPRESS[encoding](data), cuts) == data


@pytest.mark.parametrize("size", [65535, 65536, 65537, 131072, 200_000])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_fills_its_pieces_exactly_comes_out_whole(encoding: str, size: int) -> None:
    for data in (bytes(size), b"abc" * size):
        assert decoded(encoding, COMPRESS[encoding](data), []) == data


def test_a_file_of_several_comes_out_as_all_of_them() -> None:
    assert decoded("gzip", gzip.compress(b"one ") + gzip.compress(b"two"), [3, 30]) == b"one two"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_what_is_cut_or_followed_by_something_else_is_malformed(encoding: str) -> None:
    whole = COMPRESS[encoding](b"some text that is long enough")
    for wrong in (whole[:-1], whole[:5], whole + b"x", b"no compression at all", whole[::-1]):
        with pytest.raises(Malformed):
            decoded(encoding, wrong, [])


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "gzip, gzip", "gzip;q=1", "x"])
def test_another_compression_is_malformed(encoding: str) -> None:
    with pytest.raises(Malformed):
        Decoder(encoding, LIMITS)


def test_a_bomb_ends_at_its_ratio_and_never_becomes_memory_v42() -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join(compressor.compress(bytes(MIB)) for _ in range(256)) + compressor.flush()
    tracemalloc.start()
    with pytest.raises(TooLarge) as refused:
        for _ in Decoder("gzip", Limits(reply_bytes=1024 * MIB)).feed(bomb):
            pass
    assert refused.value.fields["limit"] == "ratio"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MIB
    with pytest.raises(TooLarge) as refused:
        decoded("gzip", bomb, [], Limits(ratio=10_000))
    assert refused.value.fields == {"limit": "reply_bytes", "allowed": 10 * MIB}
