"""Patience counts from the first failure; what hung through its end earns it anew."""

from brain.hands.patience import Patience


def test_it_counts_from_the_first_failure_however_late_that_shows() -> None:
    patience = Patience(30.0)
    assert not patience.over(began=0.0, now=45.0)
    assert not patience.over(began=46.0, now=75.0)
    assert patience.over(began=76.0, now=76.0)


def test_a_question_that_hung_through_its_end_earns_patience_once_more_and_no_more() -> None:
    patience = Patience(30.0)
    assert not patience.over(began=0.0, now=1.0)
    assert not patience.over(began=20.0, now=60.0)
    assert not patience.over(began=61.0, now=89.0)
    assert patience.over(began=89.0, now=130.0)


def test_without_any_the_first_failure_is_the_last() -> None:
    assert Patience(0.0).over(began=5.0, now=5.0)
