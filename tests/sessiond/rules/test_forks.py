"""Forks: a shared prefix that is never copied, and a life of their own above it."""

import pytest

from carpal.chain import genesis
from carpal.status import Reason
from sessiond.rows import Group, SliceQuery
from sessiond.rules import forks, sessions
from sessiond.rules.append import append
from sessiond.rules.runnable import due_in
from tests.sessiond.desk import ADA, BRAIN, EVE, Desk, message, refused, reply
from tests.sessiond.keeping import chained, delete, fork


@pytest.fixture
def source(desk: Desk) -> Desk:
    """A session of four events."""
    desk.create("sesn_1", *(message(id, id.encode()) for id in "abcd"), wake=True)
    return desk


def ids(desk: Desk, session_id: str) -> list[str]:
    return [event.id for event in desk.log(session_id)]


def test_a_fork_reads_as_its_source_up_to_the_position_and_goes_on_by_itself(
    source: Desk,
) -> None:
    made = fork(source, "sesn_1", 2, "f", title="another way")
    assert (made.forked_from, made.inherited, made.head, made.chain_id) == (
        "sesn_1",
        2,
        2,
        "sesn_1",
    )
    assert (made.title, made.workspace) == ("another way", "default")
    assert source.log("f") == source.log("sesn_1")[:2]
    assert made.hash == source.log("f")[-1].hash
    source.append("f", message("x"))
    source.append("sesn_1", message("e"))
    assert ids(source, "f") == ["a", "b", "x"]
    assert ids(source, "sesn_1") == ["a", "b", "c", "d", "e"]
    assert source.session("f").hash == chained(source.log("f"), "sesn_1")


def test_a_fork_of_a_fork_knows_only_those_who_contribute(source: Desk) -> None:
    first = fork(source, "sesn_1", 3, "f1")
    source.append("f1", message("x"), message("y"))
    second = fork(source, "f1", 4, "f2")
    assert second.lineage == ((1, 3), (first.number, 4))
    assert ids(source, "f2") == ["a", "b", "c", "x"]
    low = fork(source, "f2", 2, "f3")
    assert low.lineage == ((1, 2),)
    untouched = fork(source, "f2", 4, "f4")
    assert fork(source, "f4", 4, "f5").lineage == untouched.lineage == second.lineage
    source.append("f5", message("z"))
    assert ids(source, "f5") == ["a", "b", "c", "x", "z"]
    assert source.session("f5").hash == chained(source.log("f5"), "sesn_1")


def test_a_fork_at_zero_shares_nothing_and_begins_a_chain_of_its_own(source: Desk) -> None:
    made = fork(source, "sesn_1", 0, "f")
    assert (made.lineage, made.chain_id, made.hash) == ((), "f", genesis("f"))
    assert (made.forked_from, made.head) == ("sesn_1", 0)
    source.append("f", message("a", b"other content under an id that is free here"))
    assert source.session("f").hash == chained(source.log("f"), "f")


def test_a_fork_is_idle_until_something_wakes_it(source: Desk) -> None:
    made = fork(source, "sesn_1", 4, "f")
    wall, steady = source.clock.wall(), source.clock.steady()
    assert (made.wake, made.processed) == (0, 4)
    assert due_in(made, wall, steady) is None
    assert due_in(source.session("sesn_1"), wall, steady) == 0
    source.append("f", message("d", b"d"), wake=True)  # inherited: said before the fork was
    assert due_in(source.session("f"), wall, steady) is None
    source.append("f", message("x"), wake=True)
    assert due_in(source.session("f"), wall, steady) == 0


def test_the_same_fork_again_answers_with_it_even_without_its_source(source: Desk) -> None:
    made = fork(source, "sesn_1", 2, "f")
    source.append("f", message("x"))
    assert fork(source, "sesn_1", 2, "f").number == made.number
    for position, title in [(1, ""), (2, "other")]:
        with refused(Reason.ID_REUSED):
            fork(source, "sesn_1", position, "f", title=title)
    with refused(Reason.ID_REUSED):
        source.create("f")
    with refused(Reason.ID_REUSED):
        fork(source, "f", 1, "sesn_1")
    delete(source, "sesn_1")
    assert fork(source, "sesn_1", 2, "f").head == 3


def test_what_is_beyond_the_head_or_not_there_is_no_source(source: Desk) -> None:
    with refused(Reason.POSITION_BEYOND_HEAD) as error:
        fork(source, "sesn_1", 5, "f")
    assert error.value.fields["head"] == "4"
    with refused(Reason.SESSION_NOT_FOUND):
        fork(source, "nowhere", 0, "f")
    with refused(Reason.SESSION_NOT_FOUND):
        fork(source, "sesn_1", 1, "f", who=EVE)
    delete(source, "sesn_1")
    with refused(Reason.SESSION_NOT_FOUND):
        fork(source, "sesn_1", 1, "f")


def test_an_archived_session_is_forked_and_the_fork_is_open(source: Desk) -> None:
    source.run(lambda tx: sessions.archive(tx, ADA, "sesn_1"))
    fork(source, "sesn_1", 4, "f")
    source.append("f", message("x"))
    assert ids(source, "f")[-1] == "x"


def test_an_inherited_id_is_known_and_one_above_the_fork_is_free(source: Desk) -> None:
    fork(source, "sesn_1", 2, "f")
    assert source.append("f", message("b", b"b")).first.position == 2
    with refused(Reason.ID_REUSED):
        source.append("f", message("b", b"other"))
    assert source.append("f", message("c", b"other")).first.position == 3
    assert source.log("f")[-1].data == b"other"
    assert source.append("sesn_1", message("c", b"c")).first.position == 3


def test_a_fork_has_a_lease_and_epochs_of_its_own(source: Desk) -> None:
    epoch = source.acquire("session/sesn_1").lease.epoch
    fork(source, "sesn_1", 4, "f")
    with refused(Reason.STALE_EPOCH):
        source.append("f", reply("x"), epoch=epoch)
    own = source.acquire("session/f").lease.epoch
    source.append("f", reply("x"), epoch=own)


def test_a_change_of_the_source_is_none_of_the_forks(source: Desk) -> None:
    """The event of an UpdateSession is inherited; that it changed anything is not."""

    def update(session_id: str) -> sessions.Update:
        request = f"update {session_id}".encode()
        return sessions.Update(session_id, "u", "new title", {}, {}, b"{}", request)

    source.run(lambda tx: sessions.update(tx, ADA, update("sesn_1")))
    made = fork(source, "sesn_1", 5, "f")
    assert made.title == ""
    with refused(Reason.ID_REUSED):
        source.run(lambda tx: sessions.update(tx, ADA, update("f")))
    again = source.run(lambda tx: sessions.update(tx, ADA, update("sesn_1")))
    assert again.head == 5


def test_a_fork_in_the_very_transaction_of_what_it_shares_is_whole(source: Desk) -> None:
    tx = source.store.begin()
    append(tx, ADA, Group("sesn_1", (message("e"), message("f"))))
    new = forks.NewFork("sesn_1", 5, "fork", "", b"request")
    made = forks.fork(tx, ADA, new)
    again = append(tx, ADA, Group("fork", (message("e"), message("x"))))
    assert (again.first.position, again.session.head) == (5, 6)
    append(tx, ADA, Group("sesn_1", (message("g"),)))
    source.store.commit()
    assert made.hash == source.log("sesn_1")[4].hash
    assert ids(source, "fork") == ["a", "b", "c", "d", "e", "x"]
    assert source.session("fork").hash == chained(source.log("fork"), "sesn_1")


def test_a_slice_of_a_fork_crosses_its_segments_in_either_order(source: Desk) -> None:
    fork(source, "sesn_1", 3, "f1")
    source.append("f1", message("x"), message("y"))
    fork(source, "f1", 4, "f2")
    source.append("f2", message("z"))
    reader = source.store.reader()
    try:
        found = reader.session("f2")
        assert found is not None

        def positions(query: SliceQuery) -> tuple[list[int], bool]:
            part = reader.slice(found[0], query)
            return [event.position for event in part.events], part.more

        assert positions(SliceQuery()) == ([1, 2, 3, 4, 5], False)
        assert positions(SliceQuery(newest_first=True)) == ([5, 4, 3, 2, 1], False)
        assert positions(SliceQuery(low=2, limit=2)) == ([3, 4], True)
        assert positions(SliceQuery(high=5, limit=2, newest_first=True)) == ([4, 3], True)
        assert positions(SliceQuery(low=4, high=6)) == ([5], False)
    finally:
        reader.close()


def test_a_brain_forks_in_the_workspace_of_the_source(source: Desk) -> None:
    assert fork(source, "sesn_1", 1, "f", who=BRAIN).workspace == "default"
