"""A lane's connections are its own, and there are only so many lanes."""

import httpcore2
import pytest

from vault.guard import lanes
from vault.guard.lanes import Lanes


class Noted(httpcore2.AsyncConnectionPool):
    closed = 0

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()


async def test_of_too_many_lanes_the_one_not_used_for_longest_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "_KEPT", 2)
    kept = Lanes(Noted)
    pools = {}
    for name in ("a", "b", "a", "c"):
        async with kept.pool((name,), ()) as pool:
            pools[name] = pool
    assert {name: pool.closed for name, pool in pools.items()} == {"a": 0, "b": 1, "c": 0}  # type: ignore[attr-defined]
    await kept.aclose()
    assert {pool.closed for pool in pools.values()} == {1}  # type: ignore[attr-defined]


async def test_a_lane_that_is_forgotten_while_it_is_used_closes_after_its_last_use() -> None:
    kept = Lanes(Noted)
    async with kept.pool(("a",), ()) as first:
        async with kept.pool(("a",), ()) as second:
            assert first is second
            await kept.forget("a")
            async with kept.pool(("a",), ()) as third:
                assert third is not first
        assert first.closed == 0  # type: ignore[attr-defined]
    assert first.closed == 1  # type: ignore[attr-defined]
    assert third.closed == 0  # type: ignore[attr-defined]


async def test_without_a_lane_nothing_is_kept() -> None:
    kept = Lanes(Noted)
    async with kept.pool(None, ()) as pool:
        pass
    assert pool.closed == 1  # type: ignore[attr-defined]
