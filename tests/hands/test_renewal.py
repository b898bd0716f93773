"""Certificates renew at half-life, by a brain that answers to the new one."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc

from carpal.identity import Role
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials
from hands.enroll import Links, links_path
from hands.renewal import due, keep_renewed, until_due
from tests.hands.place import PATIENCE, until
from tests.pki import Pki
from tests.trust import trust
from vault.ca import Claims


def test_it_is_due_at_half_life_give_or_take_a_tenth(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    files = Pki(tmp_path).issue(
        Role.DAEMON, "d", not_before=now, not_after=now + timedelta(hours=20)
    )
    me = files.identity()
    assert due(me, now, 0.0) == timedelta(hours=10)
    assert due(me, now, 1.0) == timedelta(hours=11)
    assert due(me, now, -1.0) == timedelta(hours=9)
    assert due(me, now + timedelta(hours=12), 0.0) == timedelta(0)


async def test_time_a_machine_slept_through_counts(tmp_path: Path) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    files = Pki(tmp_path).issue(
        Role.DAEMON, "d", not_before=now, not_after=now + timedelta(hours=20)
    )
    looks = iter([now, now, now + timedelta(hours=12)])
    async with asyncio.timeout(PATIENCE):
        await until_due(files.identity(), lambda: next(looks), look=0.001)


async def test_a_certificate_past_half_life_is_renewed_through_a_brain_that_lives(
    tmp_path: Path,
) -> None:
    def nothing(_server: grpc.aio.Server) -> None:
        """Health is served all the same."""

    async with trust(tmp_path / "state") as domain:
        domain.clock.offset = -timedelta(hours=20)
        issued = domain.issue(Claims(Role.DAEMON, "d", "default"))
        domain.clock.offset = timedelta()
        before = issued.identity()
        brain = domain.identity(Role.BRAIN, "brain-1")
        async with serve("127.0.0.1:0", server_credentials(brain), nothing) as server:
            links = Links(("127.0.0.1:1", server.address), domain.enrollment_address)
            links.save(links_path(issued.directory))
            renewing = asyncio.create_task(keep_renewed(issued))
            await until(lambda: _serial(issued) != before.serial, "it was not renewed")
            renewing.cancel()
        after = issued.load_valid().identity
        assert after.uri == before.uri
        assert after.not_after > before.not_after


def _serial(files: IdentityFiles) -> int:
    return files.identity().serial
