"""What a daemon of an ordinary user does with container hands; run as one by test_podman.py.

`ordinary.py SOCKET STATE`: prints what came of it as JSON.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from hands.builtin.container import ContainerType
from tests import images
from tests.hands.place import open_place


async def use(socket: str, state: Path) -> dict[str, Any]:
    """Make a hand, call it, ask for what cannot be, end it."""
    kind = ContainerType(socket)
    health = await kind.probe()
    told: dict[str, Any] = {"ready": health.ready, "cannot": list(health.not_enforceable)}
    async with open_place(state, more={"container": kind}) as place:
        hand = await place.hand(type="container", image=images.SHELL)
        row = place.journal.hand(hand)
        assert row is not None
        told["not_enforced"] = list(pb.ProvisionResult.FromString(row.result).not_enforced)
        told["said"] = (await place.sh(hand, "whoami; id -u; echo hi >f; cat f")).content
        told["confined"] = (await place.sh(hand, "grep CapBnd /proc/self/status")).content
        told["root"] = (await place.sh(hand, "touch /usr/x")).content
        told["owner"] = (state / "hands" / hand / "workspace/f").stat().st_uid
        try:
            await place.hand(
                type="container", image=images.SHELL, limits={"memory_bytes": 256 << 20}
            )
        except CarpalError as error:
            told["refused"] = [str(error.reason), error.fields["field"]]
        told["released"] = await place.release(hand)
        told["left"] = [path.name for path in (state / "hands").iterdir()]
    return told


if __name__ == "__main__":
    told_why = logging.Formatter("%(message)s: %(why)s", defaults={"why": ""})
    said = logging.StreamHandler()
    said.setFormatter(told_why)
    logging.basicConfig(level=logging.WARNING, handlers=[said])
    json.dump(asyncio.run(use(sys.argv[1], Path(sys.argv[2]))), sys.stdout)
