"""What a request says is checked before anything is made."""

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import requests


@pytest.mark.parametrize("cpus", [float("nan"), float("inf"), -1.0, 0.0, 1e300])
def test_a_limit_that_is_no_number_of_anything_is_refused_by_its_name(cpus: float) -> None:
    with pytest.raises(CarpalError) as refused:
        requests.limits(pb.Limits(cpus=cpus))
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == "limits.cpus"


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b'{"env": {"A": NaN}}', "config.env.A"),
        (b'{"env": {"A": "x", "B": -Infinity}}', "config.env.B"),
        (b'{"egress": [{"host": "a"}, {"host": Infinity}]}', "config.egress[1].host"),
        (b'{"cpus": 1e999}', "config.cpus"),
    ],
)
def test_a_config_with_what_is_no_number_is_refused_by_its_field(data: bytes, field: str) -> None:
    with pytest.raises(CarpalError) as refused:
        requests.config(data)
    assert refused.value.reason is Reason.INVALID_FIELD
    assert refused.value.fields["field"] == field


def test_a_text_that_only_looks_like_one_is_a_text_as_every_other() -> None:
    assert requests.config(b'{"env": {"A": "NaN"}}') == {"env": {"A": "NaN"}}


def test_limits_are_those_that_are_set() -> None:
    assert requests.limits(pb.Limits(cpus=0.5, processes=20)) == {"cpus": 0.5, "processes": 20.0}
