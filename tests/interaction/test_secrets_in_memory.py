"""Where a credential's secret is while it is used, and where not; and what a crash leaves."""

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from tests.interaction.mcp_world import memory, notes
from tests.interaction.play import SECONDS
from tests.interaction.test_mcp_servers import idle, spellings

pytestmark = pytest.mark.timeout(180)


def found(pid: int) -> int:
    """How often a process's memory has the secret, however it is spelled."""
    data = memory(pid)
    assert len(data) > 1_000_000, "it could be read"
    return sum(data.count(each) for each in spellings())


async def test_v10_while_a_call_goes_on_the_vault_alone_has_its_secret_and_a_crash_leaves_no_core(
    tmp_path: Path,
) -> None:
    """That it is found in the vault shows that the same look would find it elsewhere."""
    async with notes(tmp_path) as there, there.session("hold it") as made:
        await there.began()
        seen = {
            name: await asyncio.to_thread(found, running.pid)
            for name, running in there.it.running.items()
        }
        assert {"vault", "sessiond", "b1", "daemon"} <= seen.keys()
        assert [name for name, times in seen.items() if times] == ["vault"]
        await there.go()
        await idle(made)
        vault = there.it.running["vault"]
        here = Path(f"/proc/{vault.pid}/cwd").readlink()
        # Whoever may start it may raise the limit of cores: it has lowered its own for good.
        assert resource.prlimit(vault.pid, resource.RLIMIT_CORE) == (0, 0)
        before = set(here.iterdir())
        os.kill(vault.pid, signal.SIGABRT)
        async with asyncio.timeout(SECONDS):
            await vault.child.process.wait()
        assert vault.child.process.returncode == -signal.SIGABRT
        assert not [each for each in set(here.iterdir()) - before if "core" in each.name]
        left = [
            path for path in tmp_path.rglob("*") if path.is_file() and "notes" not in path.parts
        ]
        assert not [path for path in left if any(each in path.read_bytes() for each in spellings())]
