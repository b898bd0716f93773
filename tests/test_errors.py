"""A refusal is the same on the other side, whatever was in it, and fits its trailers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carpal.errors import (
    Broken,
    CarpalError,
    Denied,
    Exhausted,
    NotBuilt,
    Unreachable,
    from_status,
    invalid,
    refuse,
    to_status,
)
from carpal.rpc import error_details_pb2, status_pb2
from carpal.status import SPECS, Code, Reason

TRAILERS = 8192
"""Bytes of a status that leave room for all else in HTTP/2 trailers."""


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_comes_back_as_itself(reason: Reason) -> None:
    sent = refuse(reason, "what is wrong", session_id="s", action="do this")
    came = from_status(to_status(sent))
    assert type(came) is type(sent)
    assert (came.reason, came.message, came.fields) == (reason, "what is wrong", sent.fields)
    assert str(came) == "what is wrong: do this"
    assert came.exit_code == sent.exit_code


@pytest.mark.parametrize("reason", list(Reason))
def test_a_reason_alone_says_what_to_do(reason: Reason) -> None:
    assert refuse(reason, "m").action == SPECS[reason].action != ""


@given(st.text(max_size=3000), st.dictionaries(st.text(max_size=40), st.text(max_size=3000)))
def test_no_text_is_too_long_or_too_odd_for_a_status(message: str, fields: dict[str, str]) -> None:
    fields = {key.encode("utf-8", "replace").decode(): value for key, value in fields.items()}
    error = CarpalError(Reason.SESSION_NOT_FOUND, message)
    error.fields = fields
    status = to_status(error)
    assert status.ByteSize() < TRAILERS
    came = from_status(status_pb2.Status.FromString(status.SerializeToString()))
    assert came.reason is Reason.SESSION_NOT_FOUND
    assert message.encode("utf-8", "replace").decode("utf-8").startswith(came.message)


def test_a_long_message_is_cut_between_characters() -> None:
    came = from_status(to_status(refuse(Reason.INTERNAL, "€" * 5000)))
    assert set(came.message) == {"€"}
    assert len(came.message.encode()) <= 1024


def test_fields_that_do_not_fit_are_left_out_and_the_reason_stays() -> None:
    fields = {f"field{n}": "x" * 300 for n in range(100)}
    came = from_status(to_status(refuse(Reason.STALE_EPOCH, "m", **fields)))
    assert (came.reason, came.fields) == (Reason.STALE_EPOCH, {})


def test_a_retry_is_said_where_it_is_sensible() -> None:
    retry = error_details_pb2.RetryInfo()
    for reason, spec in SPECS.items():
        details = to_status(refuse(reason, "m")).details
        found = [d for d in details if d.Is(retry.DESCRIPTOR) and d.Unpack(retry)]
        assert bool(found) == (spec.retry_after is not None)
        if found:
            assert retry.retry_delay.ToMilliseconds() == int((spec.retry_after or 0) * 1000)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.UNAVAILABLE, Unreachable),
        (Code.DEADLINE_EXCEEDED, Unreachable),
        (Code.CANCELLED, Unreachable),
        (Code.PERMISSION_DENIED, Denied),
        (Code.UNIMPLEMENTED, NotBuilt),
        (Code.RESOURCE_EXHAUSTED, Exhausted),
        (Code.INTERNAL, Broken),
    ],
)
def test_a_status_of_anyone_elses_has_the_class_of_its_code(
    code: Code, kind: type[CarpalError]
) -> None:
    came = from_status(status_pb2.Status(code=int(code), message="theirs"))
    assert type(came) is kind
    assert came.message == "theirs"


def test_a_newer_peers_reason_has_the_class_of_its_code() -> None:
    status = status_pb2.Status(code=int(Code.PERMISSION_DENIED), message="new")
    info = error_details_pb2.ErrorInfo(reason="FROM_THE_FUTURE", domain="carpal")
    status.details.add().Pack(info)
    assert isinstance(from_status(status), Denied)


def test_a_code_nobody_knows_is_a_broken_server() -> None:
    came = from_status(status_pb2.Status(code=99))
    assert isinstance(came, Broken)
    assert came.message == "UNKNOWN"


def test_a_bad_field_is_named() -> None:
    error = invalid("ttl", "is negative")
    assert (error.exit_code, error.fields) == (2, {"field": "ttl"})
    assert str(error).startswith("ttl: is negative")


def test_what_a_peer_says_is_clamped_and_names_nothing_of_ours() -> None:
    info = error_details_pb2.ErrorInfo(reason="HAND_GONE", domain="carpal")
    info.metadata.update({"message": "x" * 5000, "reason": "y", "self": "z"})
    status = status_pb2.Status(code=9, message="m" * 2_000_000)
    status.details.add().Pack(info)
    came = from_status(status)
    assert came.reason is Reason.HAND_GONE
    assert len(str(came)) < 2000
    assert max(map(len, came.fields.values())) < 300


def test_details_that_cannot_be_read_leave_the_code() -> None:
    status = status_pb2.Status(code=5, message="gone")
    status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=b"\xff")
    assert from_status(status).message == "gone"


@pytest.mark.parametrize("code", [code for code in Code if code is not Code.OK])
def test_a_status_without_a_reason_is_called_by_its_code_and_not_by_a_reason_of_ours(
    code: Code,
) -> None:
    came = from_status(status_pb2.Status(code=int(code), message="theirs"))
    assert (came.name, came.code) == (code.name, code)
    assert came.action
    assert came.action != SPECS[Reason.INTERNAL].action or code in (
        *(Code.UNKNOWN, Code.INTERNAL, Code.DATA_LOSS),
    )
    again = refuse(Reason.HAND_GONE, "m")
    assert (again.name, again.code) == ("HAND_GONE", Code.FAILED_PRECONDITION)
