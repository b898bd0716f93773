"""Nobody is served before it is known who is revoked; and what is known is believed for long."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import brain.app
import sessiond.app
from carpal import trust_watch
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.status import Reason
from carpal.trust_watch import REVOCATIONS, following
from tests.pace import SCALE
from tests.trust import Trust, trust
from tests.vault.test_rollover import servers_renew, trusts
from vault import setup
from vault.authority.ca import Claims
from vault.commands import rollover

WAIT = 20.0 * SCALE
NOBODY = "127.0.0.1:1"


@pytest.fixture
async def domain(tmp_path: Path) -> AsyncIterator[Trust]:
    async with trust(tmp_path / "state") as served:
        yield served


def sessiond_at(domain: Trust, vault: str, stop: asyncio.Event) -> "asyncio.Task[None]":
    config = sessiond.app.SessiondConfig(listen="127.0.0.1:0", vault=vault)
    return asyncio.create_task(sessiond.app.run(config, domain.files.state, stop, None))


def brain_at(domain: Trust, vault: str, stop: asyncio.Event) -> "asyncio.Task[None]":
    config = brain.app.BrainConfig(listen="127.0.0.1:0", enroll_listen="127.0.0.1:0", vault=vault)
    return asyncio.create_task(brain.app.run(config, domain.files.state, stop, None))


def never_heard(domain: Trust) -> None:
    """As where identities were carried to another machine, without what lay beside them."""
    for kept in domain.files.state.rglob(REVOCATIONS):
        kept.unlink()


@pytest.mark.parametrize("start", [sessiond_at, brain_at])
async def test_who_never_heard_who_is_revoked_serves_nobody_and_says_what_it_waits_for(
    domain: Trust, monkeypatch: pytest.MonkeyPatch, start: object
) -> None:
    assert callable(start)
    never_heard(domain)
    monkeypatch.setattr(trust_watch, "_FIRST", 0.2)
    with pytest.raises(CarpalError, match="start the vault") as caught:
        async with asyncio.timeout(WAIT):
            await start(domain, NOBODY, asyncio.Event())
    assert caught.value.reason is Reason.VAULT_UNAVAILABLE


async def test_one_that_waits_for_its_first_list_stops_when_it_is_told_to(domain: Trust) -> None:
    never_heard(domain)
    stop = asyncio.Event()
    running = sessiond_at(domain, NOBODY, stop)
    stop.set()
    async with asyncio.timeout(WAIT):
        await running


async def test_the_kept_list_is_believed_after_the_authority_was_replaced(
    domain: Trust, tmp_path: Path
) -> None:
    """The vault may be away when it starts again: what it knew must be by who is trusted then."""
    daemon = domain.issue(Claims(Role.DAEMON, "d", "default"))
    setup.revoke(domain.files, Role.DAEMON, "d", "", domain.clock)
    files, kept = domain.identity(Role.BRAIN, "brain-1"), tmp_path / REVOCATIONS

    async def until(what: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT):
            while not what():  # noqa: ASYNC110 - files
                await asyncio.sleep(0.05)

    async with following(domain.vault_address, files, kept):
        await until(kept.exists)
        before = kept.read_bytes()
        rollover.prepare(domain.files, domain.clock)
        await until(lambda: len(trusts(files.directory)) == 2)
        rollover.switch(domain.files)
        servers_renew(domain)
        rollover.retire(domain.files, domain.clock, anyway=True, servers_too=True)
        await until(lambda: len(trusts(files.directory)) == 1)
        await until(lambda: kept.read_bytes() != before)
    async with following(NOBODY, files, kept) as again:
        assert await again.first(asyncio.Event())
        with pytest.raises(CarpalError) as caught:
            again.revocations.check(daemon.identity())
        assert caught.value.reason is Reason.IDENTITY_REVOKED
