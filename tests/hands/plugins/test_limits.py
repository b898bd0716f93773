"""What a plugin takes of the machine is bounded by the hand's control groups."""

from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.isolation import cgroups
from tests.hands.plugins.written import Plugins, Steady, probe

GREEDY = """
class It(HandType):
    'Takes all.'

    @tool()
    def memory(self) -> str:
        'All memory.'
        held = []
        while True:
            held.append(bytes(b'x' * 8_000_000))

    @tool()
    def processes(self) -> str:
        'All processes.'
        while True:
            try:
                if os.fork() == 0:
                    time.sleep(600)
            except OSError as error:
                return f'no more: {error.strerror}'
"""
_LACKING = {"memory", "pids"} - set(cgroups.bases())
needs_groups = pytest.mark.skipif(
    bool(_LACKING), reason=f"no control group of {', '.join(sorted(_LACKING))} can be made here"
)


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    return Plugins(tmp_path / "plugins", monkeypatch)


@needs_groups
async def test_one_that_takes_all_memory_loses_its_own_hand_and_is_told_of_its_limit(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("it", GREEDY)) as place, Steady().serving(place):
        hand = await place.hand(type="it", limits={"memory_bytes": 200 * 1024 * 1024})
        result = await place.run(hand, "memory")
        assert result.outcome == pb.OUTCOME_LOST
        assert "its process died by SIGKILL" in result.content
        assert result.content.endswith("[out of memory: limit 200 MiB]")


@needs_groups
async def test_one_that_takes_all_processes_has_no_more_than_its_own(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("it", GREEDY)) as place, Steady().serving(place):
        hand = await place.hand(type="it", limits={"processes": 40})
        assert "no more" in (await place.run(hand, "processes")).content
        assert await place.release(hand)


async def test_a_limit_that_cannot_be_kept_is_refused_and_named(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("it", GREEDY)) as place:
        assert "disk_bytes" in (await probe(place, "it")).not_enforceable
        with pytest.raises(CarpalError) as caught:
            await place.hand(type="it", limits={"disk_bytes": 2**28})
        assert caught.value.reason is Reason.LIMIT_NOT_ENFORCEABLE
        assert "limits.disk_bytes" in str(caught.value)
