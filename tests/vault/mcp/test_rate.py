"""How often a session may call."""

from vault.mcp.rate import Rates


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_minute_has_so_many_calls_and_they_come_back_one_by_one() -> None:
    clock = Clock()
    rates = Rates(clock)
    assert [rates.take("s", "a", 3) for _ in range(4)] == [True, True, True, False]
    clock.now += 19
    assert not rates.take("s", "a", 3)
    clock.now += 1
    assert [rates.take("s", "a", 3) for _ in range(2)] == [True, False]
    clock.now += 1_000
    assert [rates.take("s", "a", 3) for _ in range(4)] == [True, True, True, False]


def test_sessions_and_servers_have_their_own() -> None:
    rates = Rates(Clock())
    assert rates.take("s", "a", 1)
    assert not rates.take("s", "a", 1)
    assert rates.take("s", "b", 1)
    assert rates.take("t", "a", 1)


def test_who_is_quiet_for_a_minute_is_not_kept() -> None:
    clock = Clock()
    rates = Rates(clock)
    for number in range(50):
        assert rates.take(f"s{number}", "a", 1)
    clock.now += 61
    assert rates.take("s", "a", 1)
    assert len(rates._left) == 1
