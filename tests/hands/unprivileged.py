"""What a daemon of an ordinary user does with process hands; run as one by test_unprivileged.py.

`unprivileged.py STATE SANDBOX`: prints what came of it as JSON.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError
from carpal.v1 import hand_pb2 as pb
from hands.builtin.process import ProcessType
from tests.hands.place import open_place

LIMITS = {
    "memory_bytes": 256 << 20,
    "disk_bytes": 64 << 20,
    "processes": 64,
    "cpus": 0.5,
}


async def use(state: Path, sandbox: str) -> dict[str, Any]:
    """Make a hand, call it, ask for each limit, end it."""
    kind = ProcessType(sandbox=sandbox)
    async with open_place(state, process=kind) as place:
        probed = await place.service.probe(pb.ProbeRequest(type="process"))
        described = (await place.service.describe(pb.DescribeRequest())).types[0]
        told: dict[str, Any] = {
            "uid": os.geteuid(),
            "ready": probed.state == pb.PROBE_STATE_READY,
            "cannot": list(probed.not_enforceable),
            "description": described.description,
            "isolated": "isolated" in described.capabilities,
        }
        hand = await place.hand()
        row = place.journal.hand(hand)
        assert row is not None
        told["not_enforced"] = list(pb.ProvisionResult.FromString(row.result).not_enforced)
        told["said"] = (await place.sh(hand, "id -u; echo hi >f; cat f; pwd")).content
        told["status"] = (await place.sh(hand, "cat /proc/self/status")).content
        told["seen"] = (await place.sh(hand, f"ls {state} /var/lib /root")).content
        told["owner"] = (place.inventory.folder_of(hand) / "workspace/f").stat().st_uid
        told["refused"] = {}
        for name, value in LIMITS.items():
            try:
                limited = await place.hand(limits={name: value})
            except CarpalError as error:
                told["refused"][name] = [str(error.reason), error.fields["field"]]
            else:
                forks = "for i in $(seq 80); do sleep 9 & done; true"
                told[name] = (await place.sh(limited, forks, limit=5.0)).content
                await place.release(limited)
        told["released"] = await place.release(hand)
        told["left"] = [path.name for path in (state / "hands").iterdir()]
    return told


if __name__ == "__main__":
    json.dump(asyncio.run(use(Path(sys.argv[1]), sys.argv[2])), sys.stdout)
