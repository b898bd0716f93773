"""A request reserves the most it may take; what it is charged is what it took, or all of that."""

from typing import Any

import pytest

from brain.budget import Budget, cost, estimate, outcome, read_amounts, reservation

RESERVED = {"model_requests": 1, "input_tokens": 50, "output_tokens": 100}
REQUEST = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "x" * 300}]}


def test_a_request_reserves_itself_its_input_and_all_the_output_it_may_have() -> None:
    reserved = reservation(REQUEST, 360)
    assert reserved["model_requests"] == 1
    assert reserved["output_tokens"] == 100
    assert 100 <= reserved["input_tokens"] <= 150


def test_an_image_counts_as_an_image_and_not_by_its_bytes() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    request = {"messages": [{"role": "user", "content": [{"type": "image", "source": source}]}]}
    assert 2_000 <= estimate(request, 1_000_100) < 2_100


def test_what_was_read_from_a_cache_counts_as_input() -> None:
    usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 10,
        "cache_creation_input_tokens": 100,
        "output_tokens": 7,
        "service_tier": "standard",
        "cache_creation": None,
    }
    assert cost(usage, RESERVED) == {"model_requests": 1, "input_tokens": 111, "output_tokens": 7}


@pytest.mark.parametrize(
    ("end", "charged"),
    [
        ({"model_usage": {"input_tokens": 5, "output_tokens": 2}}, (1, 5, 2)),
        ({"is_error": True, "error": {"type": "model_overloaded_error"}}, (1, 0, 0)),
        ({"is_error": True, "error": {"type": "interrupted"}}, (1, 50, 100)),
        ({"is_error": True, "error": {"type": "model_stream_cut_error"}}, (1, 50, 100)),
        (
            {
                "is_error": True,
                "error": {"type": "model_stream_cut_error"},
                "model_usage": {"input_tokens": 5, "output_tokens": 2},
            },
            (1, 5, 2),
        ),
    ],
)
def test_a_request_is_charged_what_it_took_or_what_it_may_have_taken(
    end: dict[str, Any], charged: tuple[int, int, int]
) -> None:
    reserved = {"model_requests": 1, "input_tokens": 50, "output_tokens": 100}
    taken = outcome(end, reserved)
    names = ("model_requests", "input_tokens", "output_tokens")
    assert tuple(taken.get(name, 0) for name in names) == charged


@pytest.mark.parametrize(
    ("usage", "charged"),
    [
        ({}, (50, 100)),
        ({"input_tokens": -1, "output_tokens": -1}, (50, 100)),
        ({"input_tokens": "7", "output_tokens": None}, (50, 100)),
        ({"input_tokens": True, "output_tokens": 1e308}, (50, 100)),
        ({"input_tokens": float("nan"), "output_tokens": 1.5}, (50, 100)),
        ({"input_tokens": 10**300, "output_tokens": 10**300}, (50, 100)),
        ({"input_tokens": 5, "output_tokens": 2, "cache_read_input_tokens": -9}, (50, 2)),
        ({"input_tokens": 70, "output_tokens": 2, "cache_creation_input_tokens": "x"}, (70, 2)),
        ({"cache_read_input_tokens": 60, "output_tokens": 200}, (60, 200)),
        ({"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 0}, (0, 0)),
    ],
)
@pytest.mark.parametrize("is_error", [False, True])
def test_what_nobody_knows_is_charged_all_it_had_reserved_and_never_less_than_is_known(
    usage: dict[str, Any], charged: tuple[int, int], is_error: bool
) -> None:
    end = {"is_error": is_error, "error": {"type": "x"}, "model_usage": usage}
    taken = outcome(end, RESERVED)
    assert (taken["input_tokens"], taken["output_tokens"]) == charged
    assert taken["model_requests"] == 1


def test_a_limit_is_reached_when_a_request_does_not_fit_whole() -> None:
    budget = Budget({"model_requests": 2, "output_tokens": 250})
    reserve = {"model_requests": 1, "input_tokens": 10**9, "output_tokens": 100}
    assert budget.reached(reserve) == ""
    budget.reserve(reserve)
    assert budget.reached(reserve) == ""
    budget.reserve(reserve)
    assert budget.reached(reserve) == "model_requests"
    budget.change({"model_requests": None})
    assert budget.reached(reserve) == "output_tokens"
    budget.settle({"model_usage": {"input_tokens": 1, "output_tokens": 40}}, reserve)
    assert budget.spent == {"model_requests": 2, "input_tokens": 10**9 + 1, "output_tokens": 140}
    assert budget.reached(reserve) == ""
    assert Budget().reached(reserve) == ""


def test_a_limit_is_raised_by_itself_and_a_mistake_in_it_changes_nothing() -> None:
    budget = Budget()
    budget.agree({"model_requests": 2, "output_tokens": 250})
    budget.change({"output_tokens": 500})
    assert budget.limits == {"model_requests": 2, "output_tokens": 500}
    with pytest.raises(ValueError, match="whole number"):
        budget.change({"output_tokens": "lots"})
    assert budget.limits == {"model_requests": 2, "output_tokens": 500}
    wrong: list[Any] = [{"output_tokens": "lots"}, [], "none", False]
    for nonsense in wrong:
        budget.agree(nonsense)
        assert budget.limits == {"model_requests": 2, "output_tokens": 500}
    budget.agree(None)
    assert budget.limits == {}


def test_amounts_of_a_log_are_whole_numbers_and_a_name_not_known_is_left_out() -> None:
    assert read_amounts({"model_requests": 2, "cents": 5, "input_tokens": None}) == {
        "model_requests": 2
    }
    for data in ({"model_requests": "2"}, {"model_requests": -1}, {"model_requests": True}, [1]):
        with pytest.raises((ValueError, TypeError)):
            read_amounts(data)
