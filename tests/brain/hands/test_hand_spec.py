"""What a session asks of a hand: what no hand could be is refused by its field."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brain.hands.hand_spec import LIMITS, asked
from carpal.errors import CarpalError
from carpal.link_terms import ORPHAN_DEADLINE
from carpal.v1 import hand_pb2

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANY = PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.sampled_from(list(LIMITS)), PLAIN)


def test_what_is_left_out_has_its_default() -> None:
    assert asked("h", {"type": "process"}) == {
        "config": {},
        "resources": [],
        "limits": {},
        "orphan_deadline": ORPHAN_DEADLINE,
    }


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"config": []}, "hands.h.config"),
        ({"resources": [["text:x"]]}, "hands.h.resources"),
        ({"limits": 3}, "hands.h.limits"),
        ({"limits": {"memory": 1}}, "hands.h.limits.memory"),
        ({"limits": {"memory_bytes": 0}}, "hands.h.limits.memory_bytes"),
        ({"limits": {"memory_bytes": True}}, "hands.h.limits.memory_bytes"),
        ({"limits": {"memory_bytes": 2**63}}, "hands.h.limits.memory_bytes"),
        ({"limits": {"processes": 2**31}}, "hands.h.limits.processes"),
        ({"limits": {"cpus": float("nan")}}, "hands.h.limits.cpus"),
        ({"limits": {"cpus": float("inf")}}, "hands.h.limits.cpus"),
        ({"orphan_deadline": float("inf")}, "hands.h.orphan_deadline"),
        ({"orphan_deadline": 1e300}, "hands.h.orphan_deadline"),
        ({"orphan_deadline": "60"}, "hands.h.orphan_deadline"),
    ],
)
def test_what_no_hand_can_be_is_refused_by_its_field(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(CarpalError) as caught:
        asked("h", spec)
    assert caught.value.fields["field"] == field


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(asked("h", {}), ANY)))
def test_what_is_not_refused_can_be_asked_for(spec: dict[str, Any]) -> None:
    try:
        wish = asked("h", spec)
    except CarpalError:
        return
    hand_pb2.Limits(**wish["limits"])
    hand_pb2.ProvisionRequest().orphan_deadline.FromMilliseconds(
        int(wish["orphan_deadline"] * 1000)
    )
