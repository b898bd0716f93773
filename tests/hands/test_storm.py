"""Daemons that lose their brain in one instant do not come back in one instant."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

import hands.daemon
from carpal.identity import Role
from hands.daemon import Daemon
from tests.hands.fake_brain import brain
from tests.hands.place import Place, until
from tests.pace import SCALE
from tests.pki import Pki

DAEMONS = 60
SPREAD = 4.0 * SCALE
"""Seconds over which they spread here, where all of them are one busy process: longer than it
takes to end sixty links."""


def daemon(pki: Pki, name: str, address: str, place: Place, dials: list[float]) -> Daemon:
    """One that knows one brain; when it dials is noted."""
    shown = pki.issue(Role.DAEMON, name)

    def brains() -> list[str]:
        dials.append(time.monotonic())
        return [address]

    return Daemon(
        lambda: shown,
        place.service,
        place.inventory,
        labels={},
        brains=brains,
        on_brains=lambda _: None,
        welcomed=lambda _: None,
    )


@pytest.mark.slow
async def test_daemons_of_a_killed_brain_dial_anew_spread_out_from_the_first_attempt_on_l03(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hands.daemon, "_FIRST_WAIT", SPREAD)
    pki = Pki(tmp_path / "pki")
    dials: list[list[float]] = [[] for _ in range(DAEMONS)]
    async with brain(pki, "brain-1") as one:
        running = [
            asyncio.create_task(daemon(pki, f"d{n}", one.address, place, noted).run())
            for n, noted in enumerate(dials)
        ]
        links = [(await one.link()).link for _ in dials]
        linked = time.monotonic()
    # The block's end closed the port: all lost it in one instant.
    try:
        await until(lambda: all(noted[-1] > linked for noted in dials), "not all dialled anew")
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert not any(link.open for link in links)
    first = [next(at for at in noted if at > linked) for noted in dials]
    per_tenth = Counter(int((at - min(first)) / (SPREAD / 10)) for at in first)
    assert max(per_tenth.values()) / (DAEMONS / 10) < 3
