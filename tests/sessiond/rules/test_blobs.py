"""sessiond.rules.blobs: what is kept of what comes, when a blob is whole, and what is dropped."""

from hashlib import sha256
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import types_pb2
from sessiond.clock import SECOND
from sessiond.rules import blobs
from sessiond.rules.blobs import BLOB_BYTES, BLOB_CAP, Wanted
from sessiond.store_blobs import BlobRow, BlobState
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, BRAIN, Desk, refused

DATA = b"0123456789" * 10


def wanted(data: bytes = DATA, workspace: str = "default", size: int | None = None) -> Wanted:
    return Wanted(workspace, sha256(data).digest(), len(data) if size is None else size, "a/b")


def put(desk: Desk, want: Wanted, start: int, data: bytes, cap: int = BLOB_CAP) -> BlobRow:
    return desk.run(lambda tx: blobs.put(tx, want, start, data, cap))


def held(desk: Desk, want: Wanted) -> int:
    reader = desk.store.reader()
    try:
        return blobs.held(reader.blobs.find(want.workspace, want.digest), want)
    finally:
        reader.close()


def settle(desk: Desk, row: BlobRow) -> tuple[BlobRow | None, CarpalError | None]:
    """What a stream does when the last byte is here."""
    reader = desk.store.reader()
    reading = blobs.Reading(row)
    try:
        while not reading.step(reader):
            pass
    finally:
        reader.close()
    problem = reading.problem()
    return desk.run(lambda tx: blobs.settle(tx, row, problem)), problem


def read(desk: Desk, want: Wanted, offset: int = 0) -> bytes:
    reader = desk.store.reader()
    try:
        row = blobs.find(reader, want.workspace, want.digest)
        data = b""
        while offset + len(data) < row.size:
            data += reader.blobs.piece(row, offset + len(data))
        return data
    finally:
        reader.close()


def stored(desk: Desk, data: bytes = DATA, workspace: str = "default") -> Wanted:
    want = wanted(data, workspace)
    row, problem = settle(desk, put(desk, want, 0, data))
    assert (row is not None, problem) == (True, None)
    return want


def test_a_blob_grows_is_settled_and_is_read_from_any_offset(desk: Desk) -> None:
    want = wanted()
    assert put(desk, want, 0, DATA[:30]).held == 30
    with refused(Reason.BLOB_NOT_FOUND):
        read(desk, want)
    row = put(desk, want, 30, DATA[30:])
    assert (row.held, row.state) == (100, BlobState.UNFINISHED)
    with refused(Reason.BLOB_NOT_FOUND):
        read(desk, want)
    settled, _ = settle(desk, row)
    assert settled is not None
    assert settled.state is BlobState.COMPLETE
    for offset in (0, 1, 29, 30, 31, 99, 100):
        assert read(desk, want, offset) == DATA[offset:]


def test_bytes_that_are_held_are_skipped_and_a_gap_is_refused(desk: Desk) -> None:
    want = wanted()
    put(desk, want, 0, DATA[:50])
    assert put(desk, want, 0, DATA[:20]).held == 50
    assert put(desk, want, 40, DATA[40:60]).held == 60
    with refused(Reason.INVALID_FIELD):
        put(desk, want, 61, DATA[61:])
    with refused(Reason.INVALID_FIELD):
        put(desk, want, 50, DATA[50:] + b"!")
    settle(desk, put(desk, want, 0, DATA))
    assert read(desk, want) == DATA


def test_a_blob_begins_at_its_first_byte(desk: Desk) -> None:
    with refused(Reason.INVALID_FIELD):
        put(desk, wanted(), 1, DATA[1:])
    assert held(desk, wanted()) == 0


def test_bytes_without_the_digest_are_dropped_and_can_be_sent_again(desk: Desk) -> None:
    want = wanted()
    row, problem = settle(desk, put(desk, want, 0, b"!" + DATA[1:]))
    assert row is None
    assert problem is not None
    assert problem.reason is Reason.DIGEST_MISMATCH
    assert held(desk, want) == 0
    stored(desk)
    assert read(desk, want) == DATA


def test_the_dropped_goes_in_steps_and_its_number_is_not_given_anew_before(desk: Desk) -> None:
    want = wanted()
    for start in range(0, 100, 10):
        row = put(desk, want, start, b"!" * 10)
    settle(desk, row)
    again = put(desk, want, 0, DATA)
    assert again.number != row.number
    left = [desk.run(lambda tx: tx.blobs.purge(4)) for _ in range(4)]
    assert left == [True, True, False, False]
    settle(desk, again)
    assert read(desk, want) == DATA


def test_a_complete_blob_takes_no_more_and_answers_what_it_is(desk: Desk) -> None:
    want = stored(desk)
    again = put(desk, want._replace(size=7, media_type="other/type"), 3, b"????")
    assert (again.size, again.media_type, again.state) == (100, "a/b", BlobState.COMPLETE)
    assert read(desk, want) == DATA


def test_of_two_sizes_for_one_digest_the_one_that_begins_anew_counts(desk: Desk) -> None:
    liar, honest = wanted(size=5), wanted()
    put(desk, liar, 0, DATA[:5])
    assert held(desk, honest) == 0
    with refused(Reason.INVALID_FIELD):
        put(desk, honest, 5, DATA[5:])
    put(desk, honest, 0, DATA[:50])
    with refused(Reason.INVALID_FIELD):
        put(desk, liar, 3, DATA[3:5])
    settle(desk, put(desk, honest, 50, DATA[50:]))
    assert read(desk, honest) == DATA
    assert desk.run(lambda tx: tx.blobs.total("default")) == 100


def test_two_that_finish_at_once_settle_one_blob(desk: Desk) -> None:
    row = put(desk, wanted(), 0, DATA)
    first, _ = settle(desk, row)
    second, _ = settle(desk, row)
    assert first == second
    problem = CarpalError(Reason.DIGEST_MISMATCH, "late")
    assert desk.run(lambda tx: blobs.settle(tx, row, problem)) == first


def test_what_was_dropped_and_begun_anew_meanwhile_is_not_settled(
    desk: Desk, clock: FakeClock
) -> None:
    row = put(desk, wanted(), 0, b"!" * 100)
    settle(desk, row)
    clock.advance(1)
    again = put(desk, wanted(), 0, DATA)
    with refused(Reason.INVALID_FIELD):
        settle(desk, row)
    assert held(desk, wanted()) == again.held == 100


def test_a_workspace_has_so_many_bytes_and_each_its_own(desk: Desk) -> None:
    stored(desk)
    more = wanted(b"x" * 50)
    with refused(Reason.STORE_FULL):
        put(desk, more, 0, b"x", cap=149)
    put(desk, more._replace(workspace="other"), 0, b"x", cap=149)
    put(desk, more, 0, b"x", cap=150)
    assert put(desk, more, 1, b"x" * 49, cap=0).held == 50  # it has its room already


def test_what_is_dropped_gives_its_room_back(desk: Desk, clock: FakeClock) -> None:
    def total() -> int:
        return desk.run(lambda tx: tx.blobs.total("default"))

    settle(desk, put(desk, wanted(), 0, b"!" * 100))
    assert total() == 0
    put(desk, wanted(), 0, DATA[:1])
    assert total() == 100
    clock.advance(10)
    assert desk.run(lambda tx: tx.blobs.drop_unfinished(tx.wall, 10)) == 1
    assert total() == 0


def test_unfinished_blobs_without_progress_are_dropped_and_no_others(
    desk: Desk, clock: FakeClock
) -> None:
    done = stored(desk)
    old = [wanted(bytes([n]) * 9) for n in range(3)]
    for want in old:
        put(desk, want, 0, want.digest[:1])
    slow = wanted(b"slow")
    put(desk, slow, 0, b"sl")
    clock.advance(3600)
    put(desk, slow, 2, b"o")
    before = clock.wall() - 10 * SECOND
    assert desk.run(lambda tx: tx.blobs.drop_unfinished(before, 2)) == 2
    assert desk.run(lambda tx: tx.blobs.drop_unfinished(before, 2)) == 1
    assert desk.run(lambda tx: tx.blobs.drop_unfinished(before, 2)) == 0
    assert [held(desk, want) for want in old] == [0, 0, 0]
    assert (held(desk, slow), read(desk, done)) == (3, DATA)
    while desk.run(lambda tx: tx.blobs.purge(100)):
        pass
    assert (held(desk, slow), read(desk, done)) == (3, DATA)


def test_a_blob_is_its_workspaces(desk: Desk) -> None:
    want = stored(desk)
    theirs = want._replace(workspace="elsewhere")
    with refused(Reason.BLOB_NOT_FOUND):
        read(desk, theirs)
    assert held(desk, theirs) == 0
    stored(desk, workspace="elsewhere")
    assert read(desk, theirs) == DATA


def test_an_empty_blob_is_a_blob(desk: Desk) -> None:
    want = stored(desk, b"")
    assert read(desk, want) == b""


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": b""},
        {"digest": bytes(31)},
        {"digest": bytes(33)},
        {"size": BLOB_BYTES + 1},
        {"size": 2**64 - 1},
        {"media_type": "é"},
        {"media_type": "a\nb"},
        {"media_type": "x" * 256},
    ],
)
def test_a_malformed_description_is_refused(fields: dict[str, object]) -> None:
    info = types_pb2.BlobInfo(**{"digest": bytes(32), "size": 1, **fields})  # type: ignore[arg-type]
    with refused(Reason.INVALID_FIELD):
        blobs.wanted(ADA, "", info)


def test_an_operator_has_a_workspace_and_a_brain_names_one() -> None:
    info = types_pb2.BlobInfo(digest=bytes(32), size=BLOB_BYTES)
    assert blobs.wanted(ADA, "", info).workspace == "default"
    assert blobs.wanted(BRAIN, "w", info).workspace == "w"
    for who, workspace in [(ADA, "elsewhere"), (BRAIN, ""), (BRAIN, "No Name")]:
        with refused(Reason.INVALID_FIELD):
            blobs.wanted(who, workspace, info)


_salts = count()


@settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cuts=st.lists(st.tuples(st.integers(0, 110), st.integers(0, 60)), max_size=12))
def test_however_it_is_cut_what_is_held_is_a_prefix_and_the_whole_is_true(
    desk: Desk, cuts: list[tuple[int, int]]
) -> None:
    data = sha256(str(next(_salts)).encode()).digest() * 3
    want = wanted(data)
    have = 0
    for start, length in cuts:
        piece = data[start : start + length]
        if start > have:
            with refused(Reason.INVALID_FIELD):
                put(desk, want, start, piece)
        else:
            have = max(have, start + len(piece))
            assert put(desk, want, start, piece).held == have
        assert held(desk, want) == have
    settle(desk, put(desk, want, have, data[have:]))
    assert read(desk, want) == data
