"""What is remembered of links that are over, and of hellos that were refused."""

import pytest

from brain.daemons.past import (
    LINKS_MAX,
    UNSEEN,
    Past,
    Refused,
    ended,
    history,
    told,
    with_history,
)
from carpal.errors import refuse
from carpal.status import Reason

LINK = Past("brain-1", 100, 200, "LINK_SILENT")


def test_past_links_travel_in_the_attributes_of_the_lease() -> None:
    assert history(with_history({"pool": "gpu"}, [LINK])) == [LINK]


def test_only_the_newest_are_kept_and_only_as_many_as_there_is_room_for() -> None:
    many = [LINK._replace(began=number) for number in range(20)]
    assert history(with_history({}, many)) == many[:LINKS_MAX]
    full = {"labels": "x" * 3_400}
    said = with_history(full, many)
    assert 0 < len(history(said)) < LINKS_MAX
    assert sum(len(k) + len(v) for k, v in said.items()) <= 3_500
    assert with_history({"labels": "x" * 3_600}, many) == {"labels": "x" * 3_600}


@pytest.mark.parametrize("text", ["", "{", "1", "[1]", '[["a"]]', '[["a","x",1,"y"]]'])
def test_a_history_that_cannot_be_read_is_none(text: str) -> None:
    assert history({"links": text}) == []


@pytest.mark.parametrize(
    ("said", "link"),
    [
        ({"since": "5", "ended": "9", "why": "goodbye", "brain": "b"}, Past("b", 5, 9, "goodbye")),
        ({"since": "5", "brain": "b"}, Past("b", 5, 7, UNSEEN)),
        ({}, Past("", 0, 7, UNSEEN)),
    ],
)
def test_a_link_ended_when_its_lease_says_so_else_when_that_was_seen(
    said: dict[str, str], link: Past
) -> None:
    assert ended(said, 7, UNSEEN) == link


def test_an_end_that_nobody_saw_has_no_time() -> None:
    (row,) = told([ended({"since": "5"}, 0, UNSEEN)])
    assert (row.began.seconds, row.HasField("ended"), row.why) == (5, False, UNSEEN)


def test_refused_hellos_are_told_newest_first_and_are_not_kept_without_bound() -> None:
    refused = Refused("brain-1")
    for number in range(LINKS_MAX + 3):
        refused.add("default", "d1", refuse(Reason.DAEMON_QUARANTINED, f"no {number}"))
    rows = refused.of("default", "d1")
    assert [row.message for row in rows] == [f"no {n}" for n in range(LINKS_MAX + 2, 2, -1)]
    assert not refused.of("elsewhere", "d1"), "it is another workspace's"
    for number in range(2_000):
        refused.add("default", f"x{number}", refuse(Reason.NAME_MISMATCH, "no"))
    assert not refused.of("default", "d1")
