"""When a session is runnable, and what ends a try: progress, backoff, parking (S06, S14)."""

import json

import pytest

from sessiond.clock import SECOND
from sessiond.rows import NewEvent, SessionRow
from sessiond.rules import sessions
from sessiond.rules.runnable import BACKOFF_CAP, BACKOFF_FIRST, Try, due_in, settle
from tests.sessiond.desk import ADA, OTHER, SELF, Desk, message, reply

WALL, STEADY = 1_700_000_000 * SECOND, 500 * SECOND


def session(**fields: object) -> SessionRow:
    row = {"session_id": "s", "workspace": "w", "request": b"", "created": 0, "hash": b""}
    return SessionRow(**(row | fields))  # type: ignore[arg-type]


def worst(low: float, high: float) -> float:
    return high


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"wake": 3, "processed": 3}, None),
        ({"wake": 4, "processed": 3}, 0),
        ({"wake": 4, "driven": True}, None),
        ({"wake": 4, "archived": 1}, None),
        ({"wake": 4, "parked": "why"}, None),
        ({"wake": 4, "not_before": STEADY + 7}, 7),
        ({"wake": 4, "not_before": STEADY - 7}, 0),
        ({"wake_at": WALL + 9}, 9),
        ({"wake_at": WALL - 9}, -9),
        ({"wake_at": WALL + 9, "driven": True}, None),
        ({"wake_at": WALL - 9, "not_before": STEADY + 7}, 7),
        ({"wake_at": WALL + 9, "wake": 1}, 0),
    ],
)
def test_when_a_session_is_runnable(fields: dict[str, object], expected: int | None) -> None:
    assert due_in(session(**fields), WALL, STEADY) == expected


def test_a_clean_release_with_the_work_done_leaves_nothing(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", reply("b"), epoch=epoch)
    desk.release("session/sesn_1", epoch, 1)
    assert _due(desk) is None
    assert desk.session().attempts == 0


def test_a_message_that_came_while_driving_makes_it_runnable_at_once(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", message("b"), wake=True)
    assert _due(desk) is None
    desk.release("session/sesn_1", epoch, 1)
    assert _due(desk) == 0


def test_a_brain_that_dies_before_doing_anything_delays_by_one_term_s06(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    desk.acquire("session/sesn_1")
    desk.clock.advance(10)
    desk.expire()
    assert _due(desk) == 0  # no backoff on top
    assert desk.session().attempts == 1


def test_three_tries_without_progress_park_it_with_the_reason_in_the_log(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for attempt in range(1, 4):
        desk.acquire("session/sesn_1")
        desk.clock.advance(10)
        desk.expire()
        assert desk.session().attempts == attempt
    assert _due(desk) is None
    parked = desk.session().parked
    assert parked.startswith("3 tries without progress")
    error, idle = desk.log()[-2:]
    assert (error.type, error.source) == ("session.error", SELF)
    assert json.loads(error.data)["error"] == {
        "type": "unknown_error",
        "message": parked,
        "retry_status": {"type": "exhausted"},
        "layer": "harness",
        "cause": "driver_lost",
    }
    assert (json.loads(error.data)["attempts"], json.loads(error.data)["progress"]) == (3, False)
    assert idle.type == "session.status_idle"
    assert json.loads(idle.data) == {"stop_reason": {"type": "retries_exhausted"}}


def test_an_endless_failure_is_cut_before_it_becomes_an_event(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for _ in range(3):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.release("session/sesn_1", epoch, failure="\0" * 3_000_000)
        desk.clock.advance(60)
    error = desk.log()[-2]
    assert error.type == "session.error"
    assert len(error.data) < 10_000
    assert b"\\u0000" not in error.data  # a store may hold no such text


def test_a_new_wake_gives_a_parked_session_another_three_tries(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    _park(desk)
    desk.append("sesn_1", message("not a wake"))
    assert _due(desk) is None
    desk.append("sesn_1", message("b"), wake=True)
    assert _due(desk) == 0
    assert (desk.session().parked, desk.session().attempts) == ("", 0)
    _park(desk)
    assert desk.session().parked


def test_a_resend_that_adds_a_wake_wakes_but_only_for_what_was_not_processed(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), message("b"))
    assert _due(desk) is None
    desk.append("sesn_1", message("a"), wake=True)
    assert (_due(desk), desk.session().wake) == (0, 1)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1)
    desk.append("sesn_1", message("a"), wake=True)
    assert _due(desk) is None
    desk.append("sesn_1", message("a"), message("b"), wake=True)
    assert (_due(desk), desk.session().wake) == (0, 2)
    assert len(desk.log()) == 2


def test_a_resend_with_its_wake_does_not_bring_a_parked_session_back(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    desk.append("sesn_1", message("b"))
    _park(desk)
    desk.append("sesn_1", message("a"), wake=True)
    assert desk.session().parked
    desk.append("sesn_1", message("b"), wake=True)
    assert not desk.session().parked
    assert _due(desk) == 0


def test_a_resend_with_a_wake_to_an_archived_session_is_the_first_answer(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    desk.run(lambda tx: sessions.archive(tx, ADA, "sesn_1"))
    assert desk.append("sesn_1", message("a"), wake=True).first.position == 1
    assert desk.session().wake == 0


def test_what_a_driver_appended_is_progress_whoever_ends_it(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number in range(5):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", reply(f"r{number}"), epoch=epoch)
        desk.clock.advance(10)
        desk.expire()
        assert (desk.session().attempts, _due(desk)) == (0, 0)


def test_notes_errors_and_spans_of_a_driver_that_fails_are_no_progress(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number, kind in enumerate(("context.note", "session.error", "span.model_request_end")):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", NewEvent(f"n{number}", kind, b"{}"), epoch=epoch)
        desk.release("session/sesn_1", epoch, failure="it broke")
        desk.clock.advance(60)
    assert desk.session().parked.endswith("the last: it broke")


@pytest.mark.parametrize(
    "kinds",
    [
        ("span.model_request_start", "span.model_request_end", "span.model_request_start"),
        ("context.note", "session.error", "session.status_running"),
        ("hand.provision_requested", "hand.provision_failed", "hand.provision_requested"),
    ],
)
def test_a_driver_that_is_lost_three_times_without_progress_parks_it_whatever_else_it_appended(
    desk: Desk, kinds: tuple[str, ...]
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number, kind in enumerate(kinds, 1):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", NewEvent(f"n{number}", kind, b"{}"), epoch=epoch)
        desk.clock.advance(10)
        assert not desk.session().parked
        desk.expire()
        assert desk.session().attempts == number
    assert desk.session().parked.startswith("3 tries without progress; the last: ")


@pytest.mark.parametrize("lost", [True, False])
def test_twenty_drives_in_a_row_that_did_not_end_park_it_whatever_they_got_done(
    desk: Desk, lost: bool
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number in range(20):
        assert not desk.session().parked
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", reply(f"r{number}"), epoch=epoch)
        if lost:
            desk.clock.advance(10)
            desk.expire()
        else:
            desk.release("session/sesn_1", epoch, failure="it broke")
            desk.clock.advance(60)
    assert desk.session().parked.startswith("20 tries in a row did not come to their end; the last")
    said = json.loads(desk.log()[-2].data)
    assert (said["attempts"], said["progress"]) == (20, True)


def test_a_drive_that_came_to_its_end_begins_the_count_anew(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number in range(45):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", reply(f"r{number}"), epoch=epoch)
        if number % 15 == 14:
            desk.release("session/sesn_1", epoch)
        else:
            desk.clock.advance(10)
            desk.expire()
        assert not desk.session().parked


def test_what_others_appended_is_no_progress(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for number in range(3):
        desk.acquire("session/sesn_1")
        desk.append("sesn_1", message(f"m{number}"))
        desk.clock.advance(10)
        desk.expire()
    assert desk.session().parked


def test_a_failure_backs_off_longer_each_time_and_parks_without_progress(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    waits = []
    for _ in range(3):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.release("session/sesn_1", epoch, failure="no money")
        waits.append(_due(desk))
        desk.clock.advance(60)
    assert waits == [BACKOFF_FIRST, 2 * BACKOFF_FIRST, None]
    assert desk.session().parked.endswith("the last: no money")


def test_failures_with_progress_back_off_up_to_a_cap_and_never_park(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    waits = []
    for number in range(9):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.append("sesn_1", reply(f"r{number}"), epoch=epoch)
        desk.release("session/sesn_1", epoch, failure="overloaded")
        waits.append(_due(desk))
        desk.clock.advance(60)
    assert waits[:3] == [BACKOFF_FIRST, 2 * BACKOFF_FIRST, 4 * BACKOFF_FIRST]
    assert waits[-1] == BACKOFF_CAP
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1)
    assert desk.session().failures == 0


def test_the_backoff_has_full_jitter() -> None:
    asked = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.0

    failed = settle(session(wake=1, driven=True), Try(0, failure="x"), WALL, STEADY, uniform)
    assert asked == [(0.0, float(BACKOFF_FIRST))]
    assert due_in(failed, WALL, STEADY) == 0


def test_giving_a_session_back_undone_is_a_try(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for _ in range(3):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.release("session/sesn_1", epoch)
        desk.clock.advance(60)
    assert desk.session().parked


def test_a_brain_that_stops_hands_over_at_once_and_it_is_no_try(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for _ in range(5):
        epoch = desk.acquire("session/sesn_1").lease.epoch
        desk.release("session/sesn_1", epoch, wake_at=desk.clock.wall())
        assert (desk.session().attempts, _due(desk)) == (0, 0)


def test_a_sleeper_that_finds_nothing_to_do_is_done(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1, wake_at=desk.clock.wall())
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1)
    assert (desk.session().attempts, _due(desk)) == (0, None)


def test_taking_ones_own_live_lease_again_is_a_try_or_a_crash_loop_would_never_end(
    desk: Desk,
) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    for _ in range(4):
        desk.acquire("session/sesn_1")
    assert desk.session().parked


def test_a_spurious_hold_of_a_session_with_nothing_to_do_is_no_try(desk: Desk) -> None:
    desk.create("sesn_1", message("a"))
    for _ in range(5):
        desk.acquire("session/sesn_1")
        desk.clock.advance(10)
        desk.expire()
    assert (desk.session().attempts, desk.session().parked) == (0, "")


def test_a_sleeping_session_is_runnable_when_its_time_comes(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1, wake_at=desk.clock.wall() + 30 * SECOND)
    assert _due(desk) == 30 * SECOND
    desk.clock.advance(30)
    assert _due(desk) == 0


def test_the_time_to_wake_is_kept_until_a_driver_used_it(desk: Desk) -> None:
    desk.create("sesn_1", message("a"), wake=True)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, 1, wake_at=desk.clock.wall())
    desk.acquire("session/sesn_1", who=OTHER)
    desk.clock.advance(10)
    desk.expire()
    assert _due(desk) is not None  # died: to be woken still
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.release("session/sesn_1", epoch, failure="no luck")
    assert _due(desk) == BACKOFF_FIRST
    desk.clock.advance(60)
    epoch = desk.acquire("session/sesn_1").lease.epoch
    desk.append("sesn_1", reply("b"), epoch=epoch)
    desk.release("session/sesn_1", epoch, 1)
    assert _due(desk) is None


def test_driving_a_parked_session_with_progress_unparks_it() -> None:
    parked = session(wake=1, parked="why", driven=True, progressed=True)
    assert settle(parked, Try(1), WALL, STEADY, worst).parked == ""
    idle = session(wake=1, parked="why", driven=True)
    assert settle(idle, Try(0), WALL, STEADY, worst).parked == "why"


def _due(desk: Desk) -> int | None:
    due = due_in(desk.session(), desk.clock.wall(), desk.clock.steady())
    return None if due is None else max(due, 0)


def _park(desk: Desk) -> None:
    for _ in range(3):
        desk.acquire("session/sesn_1")
        desk.clock.advance(10)
        desk.expire()
    assert desk.session().parked
