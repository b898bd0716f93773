"""`carpal dev` brings everything up for real, survives a brain's death, and leaves nothing."""

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from carpal import children
from tests import engine as engines
from tests import images
from tests.command import Command
from tests.faults import kill_tree
from tests.hands.hand_server import Least, serving
from tests.model_endpoint import endpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
SECONDS = 60.0
"""Starting seven Python processes on a loaded machine takes a while."""


@dataclass
class Up:
    """A `carpal dev` that serves."""

    process: asyncio.subprocess.Process
    facts: dict[str, Any]
    carpal: Command

    async def says(self, words: bytes) -> None:
        """Wait for a line on stderr."""
        assert self.process.stderr is not None
        async with asyncio.timeout(SECONDS):
            while words not in await self.process.stderr.readline():
                assert not self.process.stderr.at_eof()

    async def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            await self.process.communicate()


@asynccontextmanager
async def dev(tmp_path: Path, *flags: str, sandbox: str = "auto") -> AsyncIterator[Up]:
    """Run it on `tmp_path` until the block ends. In a sandbox a hand sees nothing of that."""
    state, ready = tmp_path / "state", tmp_path / "ready.json"
    environ = {"CARPAL_STATE": str(state), "ANTHROPIC_API_KEY": "", "CARPAL_SANDBOX": sandbox}
    carpal = Command(tmp_path, environ)
    async with carpal.start("dev", "--ready-file", str(ready), *flags) as process:
        up = Up(process, {}, carpal)
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            while b"Ctrl-C ends it all" not in (line := await process.stdout.readline()):
                assert line, (await process.stderr.read()).decode() if process.stderr else ""
        up.facts = json.loads(ready.read_text())
        try:
            yield up
        finally:
            try:
                if process.returncode is None:
                    await up.stop()
            finally:  # a `carpal dev` that failed, or was killed, ends no hands
                kill_tree(state / "hand" / "hands")


async def test_it_brings_everything_up_and_runs_a_session_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async with dev(tmp_path) as up:
        assert up.facts["state_dir"] == str(tmp_path / "state")
        assert [brain["name"] for brain in up.facts["brains"]] == ["brain-1"]
        fleet = await up.carpal("fleet", "ls", "--json")
        daemon = json.loads(fleet.stdout)
        assert (daemon["daemon_id"], daemon["state"], daemon["brain"]) == (
            "dev",
            "connected",
            "brain-1",
        )
        assert "process" in daemon["types"]
        ran = await up.carpal("run", "$ echo side-effect >> note; cat note", "--json")
        assert ran.code == 0, ran.stderr
        report = json.loads(ran.stdout)
        assert report["stop_reason"] == "end_turn"
        shown = await up.carpal("session", "show", report["session_id"], "--json")
        (hand,) = json.loads(shown.stdout)["hands"]
        assert (hand["state"], hand["daemon"]) == ("provisioned", "dev")
        tail = await up.carpal("session", "tail", report["session_id"], "--no-follow", "--json")
        events = [json.loads(line) for line in tail.stdout.splitlines()]
        (result,) = [event for event in events if event["type"] == "agent.tool_result"]
        assert "side-effect" in result["data"]["content"][0]["text"]
        assert report["events"] == len(events)
        pids = list(up.facts["pids"].values())
        ours = [pid for pid in children.all_pids() if str(tmp_path) in named_by(pid)]
        assert set(ours) - set(pids), "the hand's supervisor is another"
        assert up.process.stdout is not None
        up.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(SECONDS):
            last, _ = await up.process.communicate()
        assert last.decode() == f"stopped; state kept in {tmp_path / 'state'}\n"
        assert up.process.returncode == 0
        assert [pid for pid in children.all_pids() if str(tmp_path) in named_by(pid)] == []
    assert not (tmp_path / "ready.json").exists()


async def test_output_is_live_and_the_timeline_comes_after(tmp_path: Path) -> None:
    async with dev(tmp_path, sandbox="off") as up:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        async with up.carpal.start("run", f"$ echo first; cat {gate}; echo last") as running:
            assert running.stdout is not None
            seen = b""
            async with asyncio.timeout(SECONDS):
                while b"\nfirst\n" not in seen:
                    line = await running.stdout.readline()
                    assert line, seen
                    seen += line
                # The tool waits at the gate, so what we saw came before its result.
                await asyncio.to_thread(gate.write_text, "through\n")
                rest, _ = await running.communicate()
        assert running.returncode == 0
        assert rest.startswith(b"through\nlast\n")
        assert (seen + rest).count(b"\nfirst\n") == 1
        assert b"timeline of sesn_" in rest


async def test_a_dead_brain_is_said_in_one_line_and_the_other_finishes_its_session(
    tmp_path: Path,
) -> None:
    async with dev(tmp_path, "--brains", "2", "--lease-term", "1", sandbox="off") as up:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        task = f"$ echo once >> {tmp_path / 'effects'}; cat {gate}"
        async with up.carpal.start("run", task) as running:
            assert running.stdout is not None
            # Opening the gate for writing succeeds once the tool reads it.
            writing = await asyncio.to_thread(gate.open, "w")
            session_id = (await running.stdout.readline()).decode().split()[1]
            shown = await up.carpal("session", "show", session_id, "--json")
            driver = json.loads(shown.stdout)["lease"]["holder"].rpartition("/")[2]
            os.kill(up.facts["pids"][driver], signal.SIGKILL)
            await up.says(f"{driver} was killed by SIGKILL; the rest goes on".encode())
            writing.write("true output\n")
            writing.close()
            async with asyncio.timeout(SECONDS):
                rest, _ = await running.communicate()
        assert running.returncode == 0
        assert b"takeover" in rest
        assert b"true output" in rest
        assert (tmp_path / "effects").read_text() == "once\n"


async def test_a_second_start_keeps_ports_identities_and_sessions(tmp_path: Path) -> None:
    async with dev(tmp_path) as up:
        first = up.facts
        ran = await up.carpal("run", "hello", "--json")
        certificate = (tmp_path / "state" / "hand" / "identity" / "cert.pem").read_bytes()
    async with dev(tmp_path) as up:
        assert up.facts["sessiond"] == first["sessiond"]
        assert up.facts["brains"][0]["address"] == first["brains"][0]["address"]
        listed = await up.carpal("session", "ls", "--json")
        assert json.loads(ran.stdout)["session_id"] in listed.stdout
        assert (tmp_path / "state" / "hand" / "identity" / "cert.pem").read_bytes() == certificate
        again = await up.carpal("run", "$ echo again", "--json")
        assert again.code == 0, again.stderr


async def test_after_a_kill_of_dev_itself_the_next_one_cleans_up_and_serves(
    tmp_path: Path,
) -> None:
    async with dev(tmp_path) as up:
        up.process.kill()
        await up.process.wait()
        left = list(up.facts["pids"].values())
        assert all(children.start_time(pid) for pid in left)
    async with dev(tmp_path) as up:
        assert not any("carpal" in command_line(pid) for pid in left)
        assert (await up.carpal("run", "hello", "--json")).code == 0


async def test_a_container_that_it_made_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := engines.missing():
        pytest.skip(why)
    with engines.engine() as engine, short_folder() as folder:
        images.add_shell(engine.client)
        monkeypatch.setenv("DOCKER_HOST", engine.url)
        agent = folder / "agent.yaml"
        box = {"type": "container", "config": {"image": images.SHELL}}
        agent.write_text(json.dumps({"name": "boxed", "hands": {"box": box}}))
        async with dev(folder) as up:
            ran = await up.carpal("run", "$ echo in a box", "--agent", str(agent), "--json")
            assert ran.code == 0, (ran.stdout, ran.stderr)
            (there,) = engine.containers()
            await up.stop()
            assert engine.containers() == [], f"{there} is left"
        async with dev(folder) as up:
            session_id = json.loads(ran.stdout)["session_id"]
            again = await up.carpal("session", "send", session_id, "$ echo again", "--wait")
            assert again.code == 0, (again.stdout, again.stderr)
            up.process.kill()
            await up.process.wait()
        async with dev(folder) as up:
            pass
        assert engine.containers() == [], "of a run that was killed"


@contextmanager
def short_folder() -> Iterator[Path]:
    """One that a container's user may reach, of a short path."""
    folder = Path(tempfile.mkdtemp(prefix="carpal-dev-", dir="/tmp"))
    try:
        folder.chmod(0o711)
        yield folder
    finally:
        shutil.rmtree(folder)


async def test_its_brains_ask_the_models_that_a_brain_toml_says_and_an_agent_is_held_against_them(
    tmp_path: Path,
) -> None:
    async with endpoint() as service:
        service.answers = [service.says("from the gateway")]
        settings = tmp_path / "brain.toml"
        settings.write_text(
            'provider = "gateway"\n[providers.gateway]\nkind = "anthropic"\n'
            f'base_url = "{service.url}"\n[providers.gateway.headers]\nx-api-key = "k"\n'
        )
        async with dev(tmp_path, "--config", str(settings)) as up:
            ran = await up.carpal("run", "hi")
            assert "from the gateway" in ran.stdout, ran.stderr
            text = "name: odd\nprovider: nowhere\nhands: {shell: {type: teapot}}\n"
            kept = await up.carpal("agent", "create", "-", stdin=text)
            more = text + "model: m\n"
            edited = await up.carpal("agent", "edit", "odd", "--file", "-", stdin=more)
            up.carpal.environ["EDITOR"] = "sed -i s/teapot/kettle/"
            in_editor = await up.carpal("agent", "edit", "odd")
    assert len(service.asked) == 1
    for version, ended, kind in (
        (1, kept, "teapot"),
        (2, edited, "teapot"),
        (3, in_editor, "kettle"),
    ):
        assert (ended.code, ended.stdout) == (0, f"odd version {version}\n"), ended.stderr
        missing = f"hands.shell.type: no daemon that is linked now offers '{kind}'; there is"
        assert missing in ended.stderr
        assert (
            "provider: the brain that was asked has no provider 'nowhere'; it has" in ended.stderr
        )


async def test_its_brains_reach_its_vault_for_mcp_servers_and_why_says_what_came_of_it(
    tmp_path: Path,
) -> None:
    agent = tmp_path / "agent.yaml"
    # The vault dials no address of its own machine: that it refuses is its answer.
    agent.write_text("mcp_servers: [{name: nobody, url: 'https://127.0.0.1:9/mcp'}]\n")
    async with dev(tmp_path) as up:
        ran = await up.carpal("run", "--json", "--agent", str(agent), "hi")
        assert ran.code == 0, ran.stderr
        session_id = json.loads(ran.stdout.splitlines()[-1])["session_id"]
        why = await up.carpal("session", "why", session_id)
    assert "What MCP server nobody offers was not learned" in why.stdout
    assert "the vault does not reach the server" in why.stdout


async def test_a_mistake_in_that_brain_toml_is_one_line_that_names_it(tmp_path: Path) -> None:
    settings = tmp_path / "brain.toml"
    settings.write_text('nonsense = "x"\n')
    carpal = Command(tmp_path, {"CARPAL_STATE": str(tmp_path / "state")})
    async with carpal.start("dev", "--config", str(settings)) as process:
        async with asyncio.timeout(SECONDS):
            _, said = await process.communicate()
    assert process.returncode
    assert f"{settings}: unknown key 'nonsense'" in said.decode()


async def test_a_second_dev_on_the_same_state_is_refused(tmp_path: Path) -> None:
    async with dev(tmp_path) as up:
        second = await up.carpal("dev")
        assert second.code == 2
        assert second.stderr.count("\n") == 1
        assert "already runs" in second.stderr


async def test_a_process_that_cannot_start_is_one_line_and_the_rest_is_ended(
    tmp_path: Path,
) -> None:
    async with dev(tmp_path):
        pass
    (tmp_path / "state" / "sessiond" / "sessions.db").write_bytes(b"not a database" * 100)
    carpal = Command(tmp_path, {"CARPAL_STATE": str(tmp_path / "state")})
    ended = await carpal("dev")
    assert ended.code == 1
    assert ended.stderr.count("\n") == 1
    assert ended.stderr.startswith("carpal: sessiond ended with exit code")
    assert [pid for pid in children.all_pids() if str(tmp_path) in command_line(pid)] == []


def command_line(pid: int) -> str:
    return " ".join(children.arguments_of(pid))


def named_by(pid: int) -> str:
    """All that may tell whose a process is: a hand in a sandbox has its mark in its environment."""
    return " ".join([command_line(pid), *children.environment_of(pid)])


async def test_a_hand_server_that_its_daemons_settings_name_is_a_type_of_its_daemon(
    tmp_path: Path,
) -> None:
    at, settings = tmp_path / "hand.sock", tmp_path / "hand.toml"
    settings.write_text(f'[sockets]\necho = "{at}"\n')
    async with serving(at, Least()), dev(tmp_path, "--daemon-config", str(settings)) as up:
        shown = await up.carpal("fleet", "show", "dev")
    assert shown.code == 0, shown.stderr
    assert "echo" in shown.stdout
