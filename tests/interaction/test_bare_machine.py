"""A bare Debian with no way in and one way out, to a brain: from a token to its end.

Its files are Debian's own, it has a network namespace with a route to the brain's address and no
other, and Carpal is installed there from the package, with no registry.
"""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.tls import IdentityFiles
from hands.inside import tree
from tests import debian_root
from tests.command import SECONDS, Command, Ended
from tests.pace import SCALE
from tests.packaging.bundles import Made
from tests.pki import Pki
from tests.world import World, world
from vault.files import VaultFiles
from vault.opened import authority_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STATE = "var/lib/carpal"


@dataclass
class Network:
    """A namespace with one neighbour: this machine, at `brain`."""

    name: str
    brain: str


@contextmanager
def network() -> Iterator[Network]:
    """Make it, and take it away."""
    name, third = f"carpal-{secrets.token_hex(3)}", secrets.randbelow(254) + 1
    here, there = f"10.213.{third}.1", f"10.213.{third}.2"
    _ip("netns", "add", name)
    try:
        _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("address", "add", f"{here}/30", "dev", name)
        _ip("link", "set", name, "up")
        _ip("-n", name, "address", "add", f"{there}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", name, "link", "set", device, "up")
        yield Network(name, here)
    finally:
        _ip("netns", "delete", name)  # and both ends of the cable


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=30, capture_output=True)


@dataclass
class Machine:
    """The bare machine, while it is on."""

    root: Path
    network: Network
    init: int = 0
    """A process of it, as this machine counts."""

    async def __call__(self, *words: str, stdin: str = "") -> Ended:
        """Run a command there to its end."""
        command = debian_root.inside(self.init, *words)
        async with _process(command) as process, asyncio.timeout(SECONDS * 3):
            out, err = await process.communicate(stdin.encode())
        return Ended(process.returncode or 0, out.decode(), err.decode())

    @asynccontextmanager
    async def on(self) -> AsyncIterator[None]:
        """Switch it on; at the end everything on it is gone, as by a power cut."""
        words = ("sh", "-c", "echo; exec sleep infinity")
        async with _process(
            debian_root.command(self.root, *words, network=self.network.name)
        ) as running:
            assert running.stdout is not None
            async with asyncio.timeout(SECONDS):
                await running.stdout.readline()
            self.init = tree.descendants(running.pid)[-1].pid
            yield

    @asynccontextmanager
    async def daemon(self) -> AsyncIterator[None]:
        """Run the daemon there; it ends with the machine, or when it is told to."""
        words = ("sh", "-c", "exec carpal hand run >/var/log/carpal.log 2>&1")
        async with _process(debian_root.inside(self.init, *words)):
            yield

    def listens(self) -> list[str]:
        """The sockets of its network on which something listens."""
        enter = ("ip", "netns", "exec", self.network.name)
        said = subprocess.run(
            [*enter, "cat", "/proc/net/tcp", "/proc/net/tcp6"],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return [line for line in said.stdout.splitlines() if line.split()[3] == "0A"]

    async def linked(self) -> None:
        """Wait until its daemon says so."""
        async with asyncio.timeout(60 * SCALE):
            while (await self("carpal", "hand", "status")).code:
                pass  # asking takes its time


@asynccontextmanager
async def _process(command: list[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        async with asyncio.timeout(SECONDS):
            await process.communicate()


@pytest.fixture
def machine(made: Made, tmp_path: Path) -> Iterator[Machine]:
    """One with Carpal's package, and nothing else beyond Debian's own."""
    if os.geteuid() != 0:
        pytest.skip("a bare Debian and a network of its own need root")
    if not shutil.which("ip"):
        pytest.skip("no `ip` here: Debian's package `iproute2` brings it")
    root = debian_root.make(tmp_path / "root")
    done = debian_root.run(
        root, "dpkg", "-i", "/tmp/carpal.deb", bound={"/tmp/carpal.deb": made.deb}
    )
    assert done.returncode == 0, done.stderr
    with network() as its:
        yield Machine(root, its)
    shutil.rmtree(root)


async def brain_at(it: World, name: str, address: str) -> None:
    """A brain that listens where the machine reaches it, and no other."""
    await it.running["daemon"].kill()
    await it.running["b1"].kill()
    await it.start(
        name,
        *("brain", "run", "--state-dir", str(it.state), "--name", name),
        *("--listen", f"{address}:7441", "--enroll-listen", f"{address}:7442"),
        *("--sessiond", it.running["sessiond"].facts["address"]),
        *("--vault", it.running["vault"].facts["address"], "--lease-term", str(it.term)),
    )


async def test_a_bare_machine_goes_from_a_token_to_its_end_by_the_page_alone(
    machine: Machine, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with world(state, spare=("b2",)) as it:
        await brain_at(it, "b2", machine.network.brain)
        operator = Command(
            tmp_path,
            {
                "CARPAL_STATE": str(state),
                "CARPAL_SESSIOND": it.running["sessiond"].facts["address"],
                "CARPAL_VAULT": it.running["vault"].facts["address"],
            },
        )
        token = await operator("fleet", "token", "--name", "bare-1", "--pool", "bare")
        assert token.code == 0, token.stderr
        kept = machine.root / "etc/carpal/hand.toml"
        kept.parent.mkdir(exist_ok=True)
        kept.write_text("hands_max = 9\n")

        async with machine.on():
            enrolled = await machine(
                *("carpal", "hand", "enroll", "--token-file", "-"), stdin=token.stdout
            )
            assert enrolled.code == 0, enrolled.stderr
            assert "next: carpal hand doctor" in enrolled.stdout
            looked = await machine("carpal", "hand", "doctor")
            assert looked.code == 0, looked.stdout
            async with machine.daemon():
                await machine.linked()
                assert not machine.listens(), "something listens for the network"
                await assert_a_session_runs_there(operator)
        # It comes back as the same daemon, and renews its certificate, of which too little is left.
        shorten(state, machine.root / STATE / "hand/identity")
        async with machine.on(), machine.daemon():
            await machine.linked()
            await assert_a_session_runs_there(operator)
            await assert_renewed(machine.root / STATE / "hand/identity")
            drained = await machine("carpal", "hand", "drain", "--wait", "--timeout", "1s")
            assert (drained.code, "idle" in drained.stdout) == (1, True), drained.stderr
            gone = await machine("carpal", "hand", "uninstall", "--yes", "--now")
            assert gone.code == 0, gone.stdout + gone.stderr
            assert (await machine("carpal", "--version")).code == 0, "the package stays"
        assert "revoked the identity of bare-1" in gone.stdout
        assert kept.read_text() == "hands_max = 9\n"
        assert not (machine.root / STATE).exists()
        listed = await operator("fleet", "ls", "--json")
        rows = [json.loads(line) for line in listed.stdout.splitlines()]
        left = [one for one in rows if one["daemon_id"] == "bare-1"]
        assert all(one["revoked"] or one["state"] == "gone" for one in left), left


async def assert_a_session_runs_there(operator: Command) -> None:
    """An agent's call runs on the bare machine, and says so."""
    ran = await operator("run", "$ cat /etc/debian_version; ls /opt")
    assert ran.code == 0, ran.stdout + ran.stderr
    assert "carpal" in ran.stdout


def shorten(state: Path, identity: Path) -> None:
    """Give the daemon a certificate that is over soon, as after a day."""
    now = datetime.now(UTC)
    pki = Pki(state)
    pki.authority = authority_of(VaultFiles(state))
    pki.issue(
        Role.DAEMON,
        "bare-1",
        pool="bare",
        not_before=now - timedelta(hours=20),
        not_after=now + timedelta(hours=4),
        directory=identity,
    )


async def assert_renewed(identity: Path) -> None:
    """The daemon has a certificate of a whole day again."""
    async with asyncio.timeout(60 * SCALE):
        while True:
            left = IdentityFiles(identity).load().identity.not_after - datetime.now(UTC)
            if left > timedelta(hours=20):
                return
            await asyncio.sleep(0.2)
