"""A process with an engine: for each line it reads it does one thing, and says how it went.

`python -m tests.vault.oauth.refresher FOLDER PORT BUNDLE NAME`
"""

import asyncio
import json
import sys
from pathlib import Path

from carpal.errors import CarpalError
from tests.vault.oauth.kept import KEY
from tests.vault.oauth.world import desk
from vault.oauth.engine import Engine


async def _answer(engine: Engine, asked: str) -> dict[str, object]:
    try:
        if asked == "state":
            return {"state": await engine.state(KEY)}
        held = await engine.fresh(KEY)
    except CarpalError as error:
        return {"reason": str(error.reason)}
    return {"access": held.tokens.access.reveal().decode(), "generation": held.generation}


async def main(folder: str, port: str, bundle: str, name: str) -> None:
    """Until the end of its input."""
    async with desk(Path(folder), int(port), Path(bundle).read_text(), name) as made:
        print("ready", flush=True)  # noqa: T201
        while line := await asyncio.to_thread(sys.stdin.readline):
            answer = await _answer(made.engine, line.strip())
            print(json.dumps(answer), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
