"""After all that a vault's secrets are used for, whoever looks for them finds none: one scenario.

The vault, and the services themselves, have them while they use them. Nobody else ever does.
"""

import asyncio
import base64
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from tests.interaction.canaries import Look, everybody, those_of
from tests.interaction.canary_servers import spelled
from tests.interaction.canary_world import Canaries, canaries
from tests.interaction.play import SECONDS, Session, session
from vault.redact.patterns import spellings
from vault.secret import Secret

pytestmark = pytest.mark.timeout(300)
_GRANT = re.compile(rb"avs_mcp_[a-z2-7]{16}\.[A-Za-z0-9_-]{43}")


@pytest.fixture
async def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Canaries]:
    async with canaries(tmp_path, monkeypatch) as made:
        yield made


async def used(there: Canaries) -> Session:
    """A session whose agent used every server, and a hand."""
    async with session(there.it, "[canaries] use them", agent=there.agent) as made:
        await made.until_type("session.status_idle", seconds=2 * SECONDS)
    names = [each["name"] for each in made.data("agent.tool_use")]
    assert names == ["repeats", "repeats", "repeats", "bash"], made.text()
    results = made.data("agent.tool_result")
    assert [each["outcome"] for each in results] == ["ok"] * 4, made.text()
    assert sum("[REDACTED]" in each["content"][0]["text"] for each in results) == 3
    return made


@pytest.mark.slow
async def test_after_a_whole_scenario_no_secret_is_in_memory_environment_list_log_or_audit(
    there: Canaries,
) -> None:
    made = [await used(there)]
    there.login.access_token()  # the one that is in use is refused from now on
    drivers: set[str] = set()
    while not drivers >= {"b1", "b2"}:
        assert len(made) < 12, f"only {drivers} drove a session"
        made.append(await used(there))
        drivers |= {event.source.rpartition("/")[2] for each in made for event in each.log}
    assert len(there.login.posts) >= 2, "refreshed when it had ended, and when it was refused"
    assert there.front is not None
    assert there.mark.encode() in bytes(there.front.heard), "the model's service had its key"
    signed = set(there.itself.shown)
    assert len(signed) > len(made), "each request has a token of its own"

    look = Look([there.mark, *signed, *(each.rpartition(".")[2] for each in signed)])
    (shown,) = {each for each in there.plain.shown if look.within(each.encode())}
    assert all(look.within(each.encode()) for each in spelled(shown)), "it would be found"
    logged = b"\n".join(event.SerializeToString() for each in made for event in each.log)
    assert look.within(logged) == ""
    assert _GRANT.search(logged) is None
    state = there.it.state
    assert look.files(state) == {}
    grants = [path for path in state.rglob("*") if path.is_file() and has_grant(path)]
    assert grants == []
    looked = {path.name.partition("-")[0] for path in state.rglob("*") if path.is_file()}
    assert looked >= {"vault.db", "audit.log", "b1", "b2", "vault", "sessiond", "daemon"}
    assert look.said_of(everybody()) == {}

    apart = {there.it.running[name].pid for name in ("vault", "practice")}
    ours = set(those_of(state)) | {each.pid for each in there.it.ours}
    assert len(ours) >= 6
    for pid in ours - apart:
        form, size = await asyncio.to_thread(look.memory, pid)
        assert form == "", f"in the memory of {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"
        assert size > 1_000_000, "it could be read"


def has_grant(path: Path) -> bool:
    """Whether a file has a grant in it, which is a brain's and is kept by nobody."""
    return _GRANT.search(path.read_bytes()) is not None


HOLDS = """
import sys
data = bytes.fromhex(sys.stdin.readline())[::-1]
print("ready", flush=True)
sys.stdin.read()
"""


async def test_whatever_way_a_secret_is_coded_the_look_finds_it_in_a_file_a_process_and_its_list(
    tmp_path: Path,
) -> None:
    """Without this a look that is blind would find nothing, too."""
    mark = 'CaNary+/"&0123456789abcdef'
    whole = f"plain-{mark}-1234"
    look = Look([mark])
    assert await blind(Look(["another-CaNary"]), spelled(whole), tmp_path / "no") == set()
    every = [*spelled(whole), *(each.decode() for each in spellings([Secret(mark)]))]
    every += [base64.b64encode(b"x" * more + whole.encode()).decode() for more in range(3)]
    seen = await blind(look, every, tmp_path / "yes")
    assert seen == {(place, each) for each in every for place in ("file", "log", "list", "memory")}


async def blind(look: Look, every: Iterable[str], folder: Path) -> set[tuple[str, str]]:
    """Plant each in each place; where it was found."""
    found = set()
    folder.mkdir()
    for each in every:
        path = folder / "left"
        path.write_bytes(b"\0" * 5000 + each.encode() + b"\0" * 5000)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-S", "-c", HOLDS, each,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            env={"HELD": each} | {"PATH": os.environ["PATH"]},
        )  # fmt: skip
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(each.encode()[::-1].hex().encode() + b"\n")
            async with asyncio.timeout(SECONDS):
                assert await process.stdout.readline() == b"ready\n"
            if look.files(folder):
                found.add(("file", each))
            if look.within(path.read_bytes()):
                found.add(("log", each))
            if set(look.said_of([process.pid])) == {
                f"{what} of {process.pid}" for what in ("environ", "cmdline")
            }:
                found.add(("list", each))
            if look.memory(process.pid)[0]:
                found.add(("memory", each))
        finally:
            process.kill()
            await process.wait()
    return found
