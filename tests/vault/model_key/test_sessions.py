"""A session whose brain has no key: real processes, and the practice model behind TLS."""

import asyncio
import ssl
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from carpal import children
from tests.interaction.play import SECONDS, session
from tests.pace import SCALE
from tests.tls_ca import Authority
from tests.vault.guard.upstream import HOST
from tests.world import Running, World, _own_address

KEY = "sk-ant-CANARY-77aa88bb99cc"
SCRIPT = """\
match: Say something long.
turns:
  - text: {words}
    chunk: 8
    delay: {{chunk: 0.05}}
"""
WORDS = "word " * 200
_PARTS = 20
"""Of an answer, after which the brain has its head for long: a second of them."""


@dataclass
class Front:
    """TLS before a plain server, and what was said to it."""

    port: int = 0
    heard: bytearray = field(default_factory=bytearray)
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    """An answer has been coming for a while."""
    parts: int = 0


@asynccontextmanager
async def tls_before(authority: Authority, host: str, port: int) -> AsyncIterator[Front]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(HOST))
    front, tasks = Front(), set[asyncio.Task[None]]()

    async def pass_on(
        source: asyncio.StreamReader, to: asyncio.StreamWriter, *, heard: bool
    ) -> None:
        try:
            while data := await source.read(65536):
                if heard:
                    front.heard += data
                else:
                    front.parts += 1
                    if front.parts >= _PARTS:
                        front.answers.set()
                to.write(data)
                await to.drain()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            to.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, port)
        await asyncio.gather(pass_on(reader, back, heard=True), pass_on(there, writer, heard=False))

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class There:
    """All of it."""

    it: World
    front: Front
    authority: Authority
    patch: pytest.MonkeyPatch

    async def vault(self) -> Running:
        """Start the vault; again, where it was before."""
        before = self.it.running["vault"].facts if "vault" in self.it.running else {}
        listen = before.get("address") or _own_address()
        mcp = before.get("mcp") or _own_address()
        module = "tests.vault.model_key.vault_process"
        run = [sys.executable, "-m", module, str(self.front.port), str(self.authority.bundle)]
        with self.patch.context() as patch:
            patch.setattr(children, "interpreter", lambda: run)
            return await self.it.start(
                "vault", "vault", "run", "--state-dir", str(self.it.state),
                "--listen", listen, "--mcp-listen", mcp,
            )  # fmt: skip

    async def brain(self, config: Path) -> Running:
        facts = {name: each.facts for name, each in self.it.running.items()}
        return await self.it.start(
            "b1", "brain", "run", "--state-dir", str(self.it.state), "--name", "b1",
            "--listen", _own_address(), "--enroll-listen", _own_address(),
            "--sessiond", facts["sessiond"]["address"], "--vault", facts["vault"]["address"],
            "--vault-mcp", facts["vault"]["mcp"], "--config", str(config),
            "--lease-term", str(self.it.term),
        )  # fmt: skip


@pytest.fixture
async def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[There]:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    state, script, config = (tmp_path / name for name in ("state", "long.yaml", "brain.toml"))
    script.write_text(SCRIPT.format(words=WORDS))
    config.write_text('provider = "claude"\n[providers.claude]\nkind = "anthropic"\nvault = "c"\n')
    (tmp_path / "key").write_text(KEY)
    it = World(state, 2.0 * SCALE, environ={"CARPAL_STOP_WAIT": "0"})
    authority = Authority(tmp_path)
    try:
        where = ("--state-dir", str(state))
        await it.run("vault", "init", *where, "--brain", "b1")
        practice = ("practice", "serve", "--listen", "127.0.0.1:0", "--script", str(script))
        url = (await it.start("practice", *practice)).facts["url"]
        host, _, port = url.removeprefix("http://").rpartition(":")
        async with tls_before(authority, host, int(port)) as front:
            at = ("--url", f"https://{HOST}:{front.port}", "--key", str(tmp_path / "key"))
            await it.run("vault", "model", "add", "c", *where, *at)
            made = There(it, front, authority, monkeypatch)
            await made.vault()
            await it.sessiond()
            await made.brain(config)
            yield made
    finally:
        await it.end()


def memory(pid: int) -> bytes:
    """All that a process has in memory and may write to."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb") as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights, *_ = line.split()
            if rights.startswith("rw") and not line.endswith("[vvar]"):
                begin, end = (int(each, 16) for each in place.split("-"))
                file.seek(begin)
                parts.append(file.read(end - begin))
    return b"".join(parts)


async def test_a_brain_drives_a_session_and_has_the_models_key_nowhere(there: There) -> None:
    async with session(there.it, "hello", hands=()) as made:
        idle = await made.until_type("session.status_idle")
        assert made.data("agent.message"), made.text()
        assert idle.position > 0
        pid = there.it.running["b1"].pid
        held = memory(pid)
        assert made.session_id.encode() in held  # what it has is found
        forms = {KEY.encode(), KEY.encode().hex().encode(), b64encode(KEY.encode()).rstrip(b"=")}
        for form in forms:
            assert form not in held
        for name in ("environ", "cmdline"):
            assert KEY.encode() not in Path(f"/proc/{pid}/{name}").read_bytes()
        for path in there.it.state.rglob("*"):
            if path.is_file():
                assert KEY.encode() not in path.read_bytes(), path
    assert f"x-api-key: {KEY}".encode() in bytes(there.front.heard).lower().replace(
        KEY.lower().encode(), KEY.encode()
    )


async def test_a_vault_that_is_killed_in_the_middle_of_an_answer_fails_that_call_alone(
    there: There,
) -> None:
    async with session(there.it, "Say something long.", hands=()) as made:
        async with asyncio.timeout(SECONDS):
            await there.front.answers.wait()
        await there.it.running["vault"].kill()
        await made.until(
            lambda e: e.type == "span.model_request_end" and b'"is_error":true' in e.data
        )
        await there.vault()
        await made.until_type("session.status_idle", seconds=2 * SECONDS)
        ends = made.data("span.model_request_end")
        failed = [each["error"] for each in ends if each["is_error"]]
        assert {each["layer"] for each in failed} == {"vault"}
        assert failed[0]["type"] == "model_stream_cut_error"
        assert {each["error"]["layer"] for each in made.data("session.error")} == {"vault"}
        assert [each["is_error"] for each in ends[-1:]] == [False]
        (said,) = made.data("agent.message")
        assert said["content"][0]["text"] == WORDS.strip()
        starts = made.data("span.model_request_start")
        assert len(starts) == len(ends) == len(failed) + 1
