"""A daemon behind an HTTP proxy links by it, or says why it cannot, and goes no other way."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from carpal.client import dial, rpc_errors
from carpal.errors import CarpalError, Unreachable
from carpal.identity import Role
from carpal.proxy import VARIABLES, Way
from carpal.renewal import Renewal
from carpal.rpc import health_pb2, health_pb2_grpc
from carpal.status import Reason
from carpal.tls import IdentityFiles, Shown
from hands import app
from hands.enroll import asking, enroll
from tests.command import Command
from tests.connect_proxy import ConnectProxy, connect_proxy
from tests.hands.fake_brain import FakeBrain
from tests.hands.machine import Machine
from tests.hands.place import PATIENCE
from tests.trust import trust

NAME = "brain.test:7441"
"""A name that nobody but the proxy knows."""
WHO = "us%40er:p%3Aw"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of this machine's own."""
    for name in (*VARIABLES, "no_proxy", "NO_PROXY", "CARPAL_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def one(one: FakeBrain) -> FakeBrain:
    """A brain, known by a name."""
    one.brains = [NAME]
    return one


@pytest.fixture
async def proxy(one: FakeBrain) -> AsyncIterator[ConnectProxy]:
    """The proxy that leads there, and asks who one is."""
    async with connect_proxy({NAME: one.address}, user="us@er:p:w") as serving:
        yield serving


@pytest.fixture
def machine(machine: Machine) -> Machine:
    """A machine behind it."""
    machine.dials(NAME)
    return machine


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "CARPAL_PROXY"])
async def test_a_daemon_links_by_the_proxy_that_a_variable_names_l08(
    machine: Machine,
    one: FakeBrain,
    proxy: ConnectProxy,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(name, proxy.url(WHO))
    async with machine.daemon():
        await (await one.link()).provision("h")
    assert proxy.asked == [NAME]


async def test_an_exception_only_grpc_would_see_does_not_lead_past_the_proxy_l08(
    machine: Machine, one: FakeBrain, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy.url(WHO))
    monkeypatch.setenv("no_proxy", "rain.test")  # gRPC takes any end of a name
    async with machine.daemon():
        await one.link()
    assert proxy.asked == [NAME]
    assert "no_grpc_proxy" not in os.environ


async def said(machine: Machine, way: Way) -> str:
    """Why a brain cannot be reached that way."""
    files = machine.files.identity
    async with dial(NAME, Role.BRAIN, files, retry=False, proxy=way.to(NAME)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        with pytest.raises(Unreachable) as caught, rpc_errors("the brain"):
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)
    return str(caught.value)


async def test_what_a_proxy_refuses_is_said_in_words_l08(
    machine: Machine, proxy: ConnectProxy
) -> None:
    assert "asks for a user and a password" in await said(machine, Way(proxy.url(), {}))
    proxy.names.clear()
    assert "refuses the way there" in await said(machine, Way(proxy.url(WHO), {}))


async def test_a_daemon_with_a_proxy_it_cannot_use_does_not_start_l08(
    machine: Machine, one: FakeBrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "https://proxy:3128")
    with pytest.raises(CarpalError) as caught:
        async with asyncio.timeout(PATIENCE):
            await app.run(app.HandConfig(state_dir=machine.state), asyncio.Event())
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert one.links.empty()


async def test_a_machine_enrols_and_renews_by_the_proxy_and_is_told_what_it_refuses_l08(
    tmp_path: Path,
) -> None:
    there = "enroll.test:7442"
    folder = tmp_path / "hand" / "identity"

    async def connect(_: Shown) -> None:
        """Whoever is asked welcomes it."""

    async with trust(tmp_path / "state") as domain:
        names = {there: domain.enrollment_address}
        async with connect_proxy(names, user="us@er:p:w") as proxy:
            token = replace(await domain.token("build-1"), address=there)
            with pytest.raises(Unreachable, match="407"):
                await enroll(token, folder, Way(proxy.url(), {}))
            way = Way(proxy.url(WHO), {})
            await enroll(token, folder, way)
            renewal = Renewal(IdentityFiles(folder), asking(lambda: there, way), connect)
            await renewal.renew()
            assert proxy.asked == [there] * 4


async def test_every_command_that_dials_out_goes_by_the_proxy_of_hand_toml_l08(
    tmp_path: Path,
) -> None:
    there = "enroll.test:7442"
    command, given = Command(tmp_path), tmp_path / "hand.toml"
    async with (
        trust(tmp_path / "state") as domain,
        connect_proxy({there: domain.enrollment_address}) as proxy,
    ):
        given.write_text(f'proxy = "{proxy.url()}"\nstate_dir = "{tmp_path / "machine"}"\n')
        token = replace(await domain.token("build-1"), address=there).text() + "\n"
        for name, *more in (("enroll", "--token-file", "-"), ("diagnose",), ("retire", "--yes")):
            ran = await command("hand", name, *more, "--config", str(given), stdin=token)
            assert (name, ran.code) == (name, 0), ran.stderr
        # Enrolling looks first at who is there.
        assert proxy.asked == [there] * 4
