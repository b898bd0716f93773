"""A link lasts no longer than the daemon's certificate is good: dates and revocation."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.revocations import Revocations, is_server
from carpal.status import Reason
from carpal.tls import IdentityFiles
from carpal.v1 import orchestrator_pb2 as pb
from carpal.v1 import orchestrator_pb2_grpc
from tests.brain.serving import Daemon, brain, linked
from tests.brain.stage import WAIT
from tests.hands.place import until
from tests.pace import SCALE
from tests.sessiond.serving import Serving
from tests.test_revocations import LATER, listed
from tests.world import World, world

CUT = 5.0 * SCALE
"""Seconds from a revocation to the end of what it ends."""


async def test_a_certificate_that_expires_while_connected_ends_the_link_and_refuses_the_next(
    sessions: Serving,
) -> None:
    """L25: at notAfter, on the connection that TLS let in."""
    soon = datetime.now(UTC) + timedelta(seconds=2 * SCALE)
    files = sessions.pki.issue(Role.DAEMON, "d1", not_after=soon)
    async with brain(sessions) as one, dial(one.address, Role.BRAIN, files) as channel:
        stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
        hello = pb.Hello(daemon_id="d1", protocol_min=1, protocol_max=1)
        daemon = Daemon(stub.Connect())
        await daemon.say(hello=hello)
        async with asyncio.timeout(WAIT):
            await daemon.welcomed.wait()
        for again in (daemon, Daemon(stub.Connect())):
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await again.ended()
            assert caught.value.reason is Reason.CERTIFICATE_EXPIRED
            assert datetime.now(UTC) >= soon.replace(microsecond=0)
        await one.sees(lambda fleet: not fleet.has("d1"))


async def test_a_revoked_daemons_link_is_cut_with_the_reason_and_not_made_again(
    sessions: Serving,
) -> None:
    held = Revocations()
    async with brain(sessions, revocations=held) as one, linked(one) as daemon:
        who = "spiffe://carpal.internal/daemon/d1"
        held.take(listed(sessions.pki, LATER, who), sessions.pki.ca_pem)
        async with asyncio.timeout(CUT):
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await daemon.ended()
        assert (caught.value.reason, "stolen" in str(caught.value)) == (
            Reason.IDENTITY_REVOKED,
            True,
        )
        await one.sees(lambda fleet: not fleet.has("d1"))
        async with dial(one.address, Role.BRAIN, revoked_files(sessions)) as channel:
            again = Daemon(orchestrator_pb2_grpc.OrchestratorStub(channel).Connect())
            with pytest.raises(CarpalError) as caught, rpc_errors("the brain"):
                await again.ended()
            assert caught.value.reason is Reason.IDENTITY_REVOKED


def revoked_files(sessions: Serving) -> IdentityFiles:
    """An identity that was issued before the list was made."""
    earlier = datetime.now(UTC) - timedelta(minutes=6)
    return sessions.pki.issue(Role.DAEMON, "d1", not_before=earlier)


@pytest.mark.slow
async def test_a_daemon_that_an_operator_revokes_ends_within_five_seconds_and_says_why(
    tmp_path: Path,
) -> None:
    async with world(tmp_path / "state") as it:
        daemon = it.running["daemon"]
        vault = it.running["vault"].facts["address"]
        sessiond = it.running["sessiond"].facts["address"]
        where = ("--state-dir", str(it.state), "--vault", vault, "--sessiond", sessiond)
        await it.run("fleet", "revoke", "daemon-1", "--reason", "sold", *where)
        async with asyncio.timeout(CUT):
            code = await daemon.process.wait()
        assert code == 78
        assert "is revoked (sold)" in daemon.log.read_text()


@pytest.mark.slow
async def test_a_stolen_machine_that_is_revoked_right_after_a_switch_ends_within_five_seconds(
    tmp_path: Path,
) -> None:
    """As the how-to has it for a key in wrong hands: it knows only the authority before."""
    async with world(tmp_path / "state") as it:
        daemon = it.running["daemon"]
        await replace_authority(it)
        await it.run("vault", "revoke", "daemon", "daemon-1", "--state-dir", str(it.state))
        async with asyncio.timeout(CUT):
            assert await daemon.process.wait() == 78


@pytest.mark.slow
async def test_who_is_cut_off_by_a_retirement_loses_its_link_within_five_seconds_and_is_told_why(
    tmp_path: Path,
) -> None:
    """The operator who typed it goes on, and so do the servers."""
    async with world(tmp_path / "state") as it:
        daemon = it.running["daemon"]
        assert "connected" in await fleet(it)
        await replace_authority(it)
        where = ("--state-dir", str(it.state))
        said = await it.run("vault", "ca", "retire", "--yes", *where)
        assert "spiffe://carpal.internal/daemon/daemon-1 is cut off" in said
        assert "spiffe://carpal.internal/operator/operator anew" in said

        def log() -> str:
            return daemon.log.read_text()

        async with asyncio.timeout(CUT):
            await until(lambda: "by an authority that was retired" in log(), "it is still linked")
        assert "connected" not in await fleet(it)
        await until(lambda: "carpal hand diagnose" in log(), "it is not told what to look at")
        assert daemon.child.is_alive()


async def replace_authority(it: World) -> None:
    """Prepare, switch, and wait until the servers have renewed."""
    where = ("--state-dir", str(it.state))
    await it.run("vault", "ca", "prepare", *where)
    await it.run("vault", "ca", "switch", *where)
    async with asyncio.timeout(CUT):
        while True:
            told = json.loads(await it.run("vault", "ca", "status", "--json", *where))
            if not any(is_server(uri) for uri in told["still_to_renew"]):
                return


async def fleet(it: World) -> str:
    """What the operator sees of the daemons."""
    sessiond = it.running["sessiond"].facts["address"]
    return await it.run("fleet", "ls", "--state-dir", str(it.state), "--sessiond", sessiond)
