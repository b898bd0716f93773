"""A session's user consents at a real authorization server, by the command, and it goes on."""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from carpal.v1 import vault_pb2 as pb
from tests.command import Command
from tests.interaction.mcp_world import Notes, notes
from tests.interaction.play import SECONDS, Session
from tests.interaction.test_consent import asked, idle
from tests.vault.oauth.server import Login, login_server
from tests.vault.oauth.test_enrol import consented

pytestmark = pytest.mark.timeout(180)


@dataclass
class Telling(Login):
    """It tells the MCP server of its tokens."""

    told: Path = field(default=Path())

    def access_token(self) -> str:
        token = super().access_token()
        with self.told.open("a") as file:
            file.write(token + "\n")
        return token


@dataclass
class There:
    notes: Notes
    login: Login
    port: int

    async def consent(self, made: Session, *more: str) -> tuple[int, str]:
        """The command, and a person who consents elsewhere and pastes; its code and its words."""
        at = self.notes.it.running
        where = ("--state-dir", str(self.notes.it.state), "--no-browser")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.interaction.consenting"),
            *(f"{self.notes.port},{self.port}", str(self.notes.authority.bundle)),
            *("session", "consent", made.session_id, *more, *where),
            *("--sessiond", at["sessiond"].facts["address"]),
            *("--vault", at["vault"].facts["address"]),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**Command(self.notes.folder).environ, **self.notes.it.environ},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(SECONDS):
                said = ""
                async for line in process.stdout:
                    said += line.decode()
                    if line.strip().startswith(b"https://"):
                        world = SimpleNamespace(port=self.port, login=self.login)
                        back = await consented(world, line.decode().strip())  # type: ignore[arg-type]
                        process.stdin.write(f"{back}\n".encode())
                return await process.wait(), said
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[There]:
    async with notes(tmp_path) as made:
        login = Telling(told=made.folder / "tokens")
        async with login_server(made.authority, login) as (_, port):
            (made.folder / "login").write_text(login.named)
            yield There(made, login, port)


async def test_the_command_has_the_user_consent_and_the_session_goes_on_by_their_token(
    there: There,
) -> None:
    async with there.notes.session("add one", user="alice") as made:
        consent, _ = await asked(made)
        code, said = await there.consent(made)
        assert code == 0, said
        assert f"given {consent}" in said
        assert await idle(made, (await made.until_type("user.consent")).position) == "end_turn"
        assert there.notes.effects() == ["one"]
        assert there.notes.seen() == {f"Bearer {there.login.access[-1]}", "none"}
        log = b"".join(event.data for event in made.log)
    for secret in (*there.login.access, *there.login.live):
        assert secret.encode() not in log
        assert secret not in said


async def test_a_call_whose_token_the_server_takes_no_more_goes_on_once_after_another_consent(
    there: There,
) -> None:
    async with there.notes.session("add one", user="alice") as made:
        await asked(made)
        await there.consent(made)
        first = await made.until_type("user.consent")
        await idle(made, first.position)
        (there.notes.folder / "tokens").write_text("")
        again = await made.say("[notes] add two")
        _, said = await asked(made, again.position)
        call = [each for each in made.log if each.type == "agent.tool_use"][-1]
        assert said["tool_use_id"] == call.id
        code, words = await there.consent(made)
        assert code == 0, words
        word = await made.until_type("user.consent", again.position)
        assert await idle(made, word.position) == "end_turn"
        assert there.notes.effects() == ["one", "two"]
    async with there.notes.it.vault() as stub:
        listed = await stub.ListCredentials(pb.ListCredentialsRequest(), timeout=SECONDS)
    owned = [each for each in listed.credentials if b'"alice"' in each.policy]
    assert sorted(each.state for each in owned) == ["active", "archived"]


async def test_the_command_says_so_where_nothing_waits_for_consent(there: There) -> None:
    async with there.notes.session("say hello") as made:
        await idle(made)
        code, said = await there.consent(made)
        assert code == 5
        assert "no call waits for a person" in said
        assert "Traceback" not in said
