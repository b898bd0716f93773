"""carpal.verified: whatever is done to a log shows; a redaction leaves it whole."""

import copy
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.chain import data_digest, genesis
from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import types_pb2
from carpal.verified import Verified
from tests.logs import chain, head, log, redact

DATAS = [b'{"n":%d}' % number for number in range(6)]
Events = list[types_pb2.Event]


def verify(
    events: Events, end: types_pb2.ChainHead, *noted: types_pb2.ChainHead, chain_id: str = "sesn_1"
) -> Verified:
    verified = Verified(chain_id)
    for each in noted:
        verified.expect(each)
    for event in events:
        verified.take(event)
    verified.end(end)
    return verified


def broken(events: Events, end: types_pb2.ChainHead, *noted: types_pb2.ChainHead) -> CarpalError:
    with pytest.raises(CarpalError) as raised:
        verify(events, end, *noted)
    assert raised.value.reason is Reason.CHAIN_BROKEN
    return raised.value


def test_a_log_as_appended_is_whole() -> None:
    events = log(*DATAS)
    verified = verify(events, head(events), head(events[:3]), head(events))
    assert (verified.position, verified.hash, verified.redacted) == (6, events[-1].hash, 0)


def test_an_empty_log_is_whole() -> None:
    end = types_pb2.ChainHead(position=0, hash=genesis("sesn_1"))
    assert verify([], end, end).position == 0


@given(st.sets(st.integers(0, 5)))
def test_a_log_stays_whole_whichever_of_its_events_are_redacted(positions: set[int]) -> None:
    events = log(*DATAS)
    for index in positions:
        redact(events[index])
    assert verify(events, head(events), head(events[:4])).redacted == len(positions)


TAMPERING: dict[str, Callable[[types_pb2.Event], object]] = {
    "id": lambda event: setattr(event, "id", "sevt_x"),
    "position": lambda event: setattr(event, "position", event.position + 1),
    "seconds": lambda event: setattr(event.time, "seconds", event.time.seconds + 1),
    "nanoseconds": lambda event: setattr(event.time, "nanos", event.time.nanos + 1),
    "no time": lambda event: setattr(event.time, "seconds", 2**62),
    "type": lambda event: setattr(event, "type", "user.interrupt"),
    "source": lambda event: setattr(event, "source", event.source + "a"),
    "must_understand": lambda event: setattr(event, "must_understand", True),
    "data": lambda event: setattr(event, "data", b"{}"),
    "no data": lambda event: setattr(event, "data", b""),
    "data_digest": lambda event: setattr(event, "data_digest", bytes(32)),
    "hash": lambda event: setattr(event, "hash", bytes(32)),
    "no hash": lambda event: setattr(event, "hash", b""),
    "redaction that kept the data": lambda event: setattr(event.redaction, "by", "eve"),
}


@pytest.mark.parametrize("index", range(6))
@pytest.mark.parametrize("change", TAMPERING.values(), ids=TAMPERING)
def test_a_change_of_any_field_is_found_where_it_is(
    change: Callable[[types_pb2.Event], object], index: int
) -> None:
    events = log(*DATAS)
    end = head(events)
    change(events[index])
    assert broken(events, end).fields["position"] == str(index + 1)


def test_data_changed_together_with_its_digest_is_found() -> None:
    events = log(*DATAS)
    end = head(events)
    events[2].data, events[2].data_digest = b"{}", data_digest(b"{}")
    assert broken(events, end).fields["position"] == "3"


@given(st.data())
def test_events_dropped_swapped_repeated_or_cut_off_are_found(data: st.DataObject) -> None:
    events = log(*DATAS)
    end = head(events)
    order = data.draw(st.lists(st.integers(0, 5), max_size=8).filter(lambda o: o != [*range(6)]))
    broken([events[index] for index in order], end)


@given(st.data())
def test_renumbering_does_not_hide_what_was_dropped(data: st.DataObject) -> None:
    events = log(*DATAS)
    end = head(events)
    del events[data.draw(st.integers(0, 5))]
    for position, event in enumerate(events, start=1):
        event.position = position
    broken(events, end)


def test_a_log_made_anew_is_told_only_by_a_head_that_was_noted() -> None:
    events = log(*DATAS)
    noted = head(events[:4])
    forged = copy.deepcopy(events)
    forged[1].data, forged[1].data_digest = b"{}", data_digest(b"{}")
    chain(forged)
    verify(forged, head(forged))
    error = broken(forged, head(forged), noted)
    assert error.message == (
        "the chain breaks at position 4: it is not the head that was noted"
    )  # fmt: skip


def test_a_log_cut_off_before_the_noted_head_is_found() -> None:
    events = log(*DATAS)
    error = broken(events[:3], head(events[:3]), head(events))
    assert error.message == (
        "the chain breaks at position 3: the log ends here, before the noted 6"
    )  # fmt: skip


def test_events_beyond_the_head_are_found() -> None:
    events = log(*DATAS)
    assert broken(events, head(events[:3])).fields["position"] == "6"


def test_two_noted_heads_that_differ_cannot_both_be_true() -> None:
    events = log(*DATAS)
    broken(events, head(events), types_pb2.ChainHead(position=6, hash=bytes(32)), head(events))
    broken(events, head(events), head(events), types_pb2.ChainHead(position=6, hash=bytes(32)))


def test_the_log_of_another_session_is_not_taken_for_this_one() -> None:
    events = log(*DATAS, chain_id="sesn_2")
    assert broken(events, head(events)).fields["position"] == "1"
    verify(events, head(events), chain_id="sesn_2")
