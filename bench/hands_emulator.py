"""The emulator hand's pace: frames a second, each of them drawn, asked for as a model asks."""

import statistics
import time
from pathlib import Path

from hands.emulator.machine import Machine
from tests.cartridge import cartridge
from tests.hands.place import Place

SECONDS = 100
"""Of the console, in one call: as many as a call may take."""
_FRAMES = 60 * SECONDS


async def ticks_per_s(place: Place, folder: Path, calls: int) -> float:
    """The median over so many calls; what PyBoy does by itself is printed beside it.

    The two take turns. What of the machine's processors others had meanwhile counts against both:
    keep it quiet.
    """
    game = folder / "game.gb"
    game.write_bytes(cartridge())
    hand = await place.hand(type="emulator", cartridge=str(game))
    alone = Machine(cartridge())
    await place.run(hand, "wait", duration=1)
    through, direct, busy = [], [], []
    for _ in range(calls):
        began = time.perf_counter()
        result = await place.run(hand, "wait", duration=SECONDS)
        through.append(_FRAMES / (time.perf_counter() - began))
        if not result.content.startswith(f"Waited {SECONDS}s."):
            raise RuntimeError(result.content)
        began, used = time.perf_counter(), time.process_time()
        alone.run(_FRAMES)
        direct.append(_FRAMES / (time.perf_counter() - began))
        busy.append(_FRAMES / (time.process_time() - used))
    alone.stop()
    await place.release(hand)
    rate = statistics.median(through)
    print(
        f"an emulator hand: {rate:.0f} frames a second; PyBoy by itself "
        f"{statistics.median(direct):.0f}, and {statistics.median(busy):.0f} in a processor's own",
        flush=True,
    )
    return rate
