"""A person in a container hand: the same ways in, through what the container lets out."""

import asyncio
import io
import tarfile

import pytest

from hands.contract import Bytes, Entrance, Inside, Left
from tests.hands.container.conftest import box
from tests.hands.place import PATIENCE, Place


async def _to_the_end(inside: Inside) -> tuple[bytes, Left]:
    data = b""
    async with asyncio.timeout(PATIENCE):
        while isinstance(came := await inside.take(192 * 1024), Bytes):
            data += came.data
    assert isinstance(came, Left)
    return data, came


@pytest.mark.slow
async def test_a_person_has_a_terminal_copies_and_ports_in_a_container(boxes: Place) -> None:
    hand = await box(boxes)
    keeper = boxes.inventory.keepers[hand]
    assert "tunnel" in boxes.inventory.types["container"].describe().capabilities
    options = {"tty": True, "rows": 20, "columns": 70, "term": "xterm"}
    async with keeper.enter(Entrance("t1", "shell", options)) as inside:
        await inside.give(b"(:); echo $LINES x $COLUMNS; echo kept > f; exit 4\n")
        data, left = await _to_the_end(inside)
    assert b"20 x 70\r\n" in data
    assert left.exit_code == 4
    async with keeper.enter(Entrance("t2", "copy", {"from": "f"})) as inside:
        data, left = await _to_the_end(inside)
    assert left.problem == ""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        [member] = tar.getmembers()
        content = tar.extractfile(member)
        assert content is not None
        assert content.read() == b"kept\n"
    async with keeper.enter(Entrance("t3", "forward", {"port": 9})) as inside:
        _, left = await _to_the_end(inside)
    assert "port 9" in left.problem
    assert (await boxes.sh(hand, "cat f")).content == "kept\n"
