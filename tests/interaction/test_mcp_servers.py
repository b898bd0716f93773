"""Sessions use somebody's MCP server through the vault: real processes, real TLS, a real token."""

import asyncio
import base64
import json
import os
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from carpal.v1 import session_pb2
from tests.interaction.mcp_world import Notes, memory, notes
from tests.interaction.play import SECONDS, Session
from tests.vault.mcp.world import CANARY

pytestmark = pytest.mark.timeout(180)
PAGE = Path(__file__).parents[2] / "docs/how-to/use-an-mcp-server.md"


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    async with notes(tmp_path_factory.mktemp("mcp")) as made:
        yield made


def spellings() -> Iterator[bytes]:
    token = CANARY.encode()
    yield from (token, token.hex().encode(), quote(CANARY).encode())
    for before in (b"", b" ", b"  "):
        coded = base64.b64encode(before + token)
        yield coded[4:-4]


async def idle(made: Session, after: int = 0) -> dict[str, object]:
    event = await made.until_type("session.status_idle", after)
    return made.data("session.status_idle")[-1] | {"position": event.position}


async def test_v10_the_token_that_a_call_is_made_with_is_in_no_log_event_environment_or_memory(
    there: Notes,
) -> None:
    async with there.session("add one") as made:
        await idle(made)
        (call,), (result,) = made.data("agent.tool_use"), made.data("agent.tool_result")
        assert (call["name"], call["hand"], call["mcp_server_name"]) == ("add", "notes", "notes")
        assert (result["outcome"], result["content"][0]["text"]) == ("ok", "note 1")
        assert there.effects() == ["one"]
        assert there.seen() == {f"Bearer {CANARY}"}
        assert [e for e in made.data("context.tools") if e["hand"] == "notes"]
        told = b"".join(event.data for event in made.log)
    assert not [each for each in spellings() if each in told]
    for path in there.it.state.rglob("*"):
        if path.is_file() and os.access(path, os.R_OK):
            data = path.read_bytes()
            assert not [each for each in spellings() if each in data], path
    for name, running in there.it.running.items():
        place = Path(f"/proc/{running.pid}")
        said = (place / "environ").read_bytes() + (place / "cmdline").read_bytes()
        said += b"" if name == "vault" else memory(running.pid)
        assert not [each for each in spellings() if each in said], name


async def test_a_person_is_asked_unless_the_agent_says_that_nobody_is(there: Notes) -> None:
    before = there.effects()
    async with there.session("add one", {}) as made:
        stopped = await idle(made)
        assert stopped["stop_reason"]["type"] == "requires_action"  # type: ignore[index]
        assert there.effects() == before
        (call,) = [event for event in made.log if event.type == "agent.tool_use"]
        word = await made.allow(call.id)
        await idle(made, word.position)
        assert made.data("agent.tool_result")[-1]["outcome"] == "ok"
        assert there.effects() == [*before, "one"]


async def test_v39_two_sessions_that_call_at_once_get_each_its_own_answer(there: Notes) -> None:
    before = len(there.effects())
    async with there.session("hold it") as one, there.session("add one") as other:
        await idle(other)
        assert other.results()[0].startswith("note ")
        assert one.results() == []
        await there.began(before + 2)
        await there.go()
        await idle(one)
        assert one.results() == ["held"]


async def test_pictures_data_long_texts_and_errors_come_as_those_of_any_tool(there: Notes) -> None:
    async with there.session("all kinds") as made:
        await idle(made)
        calls = {event.id: event for event in made.log if event.type == "agent.tool_use"}
        names = [made.data("agent.tool_use")[at]["name"] for at in range(len(calls))]
        by_name = dict(zip(names, made.data("agent.tool_result"), strict=True))
        picture = by_name["picture"]
        assert picture["content"][0]["text"] == "here\n[an image, image/png, 70 bytes: attached]"
        assert [each["media_type"] for each in picture["attachments"]] == ["image/png"]
        assert by_name["table"]["content"][0]["text"] == '{"rows": [1, 2]}'
        failed = by_name["fails"]
        assert (failed["outcome"], failed["layer"]) == ("error", "vault")
        assert failed["content"][0]["text"] == "no such note"
        large = by_name["large"]
        assert large["content"][0]["text"].startswith("beginxxx")
        assert [each["size"] for each in large["attachments"]] == [2_000_008]
        assert by_name["files.list"]["content"][0]["text"] == "no files"
        digest = bytes.fromhex(picture["attachments"][0]["blob"].removeprefix("sha256:"))
        kept = made.stub.GetBlob(session_pb2.GetBlobRequest(digest=digest), timeout=SECONDS)
        assert b"".join([part.data async for part in kept]).startswith(b"\x89PNG")


async def test_an_interrupt_ends_the_call_and_the_log_says_that_it_may_have_happened(
    there: Notes,
) -> None:
    before = len(there.effects())
    async with there.session("hold it") as made:
        await there.began(before + 1)
        word = await made.interrupt()
        await idle(made, word.position)
        (result,) = made.data("agent.tool_result")
        assert result["outcome"] == "cancelled"
        assert "may have happened" in result["content"][0]["text"]
        assert "layer" not in result
        await there.go()  # the server's own thread waits for it still
    assert len(there.effects()) == before + 1


async def test_a_session_whose_turn_ended_has_no_grant(there: Notes) -> None:
    async with there.session("add one") as made:
        await idle(made)
        async with asyncio.timeout(SECONDS):
            while (told := await audited(there, made))[-1:] != ["grant.revoke"]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert told.count("grant.give") == 1


async def audited(there: Notes, made: Session) -> list[str]:
    """What the vault did with grants of the session, in order."""
    at = there.it.running["vault"].facts["address"]
    where = ("--state-dir", str(there.it.state), "--vault", at, "--json", "-n", "1000")
    lines = (await there.it.run("vault", "audit", "show", *where)).splitlines()
    told = [json.loads(line) for line in lines]
    return [
        each["action"]
        for each in told
        if each["what"] == "intent"
        and each.get("session") == made.session_id
        and each["action"].startswith("grant.")
    ]


async def test_a_call_of_a_server_and_one_of_a_hand_run_side_by_side(there: Notes) -> None:
    async with there.session("beside a hand") as made:
        await made.until(lambda e: e.type == "agent.tool_result")
        assert made.results() == ["from a hand\n"]
        await there.go()
        await idle(made)
        assert made.results()[1:] == ["held"]


async def test_a_session_without_the_vaults_name_sends_no_credential_and_why_says_so(
    there: Notes,
) -> None:
    async with there.session("add one", vaults=()) as made:
        await made.until(
            lambda e: e.type == "session.error" and b"mcp_authentication_failed_error" in e.data
        )
        await idle(made)
        said = next(e for e in made.data("session.error") if e.get("mcp_server_name"))["error"]
        assert (said["layer"], said["cause"]) == ("vault", "mcp_unauthenticated")
        why = await there.it.run(
            "session", "why", made.session_id, "--state-dir", str(there.it.state),
            "--sessiond", there.it.running["sessiond"].facts["address"],
        )  # fmt: skip
        assert "the server does not take the credential" in " ".join(why.split())


async def test_the_page_on_mcp_servers_does_what_it_says(there: Notes, tmp_path: Path) -> None:
    def here(text: str) -> str:
        return text.replace("https://mcp.example.com/mcp", there.url).replace("tracker", "notes")

    page = PAGE.read_text()
    put_in, start, asking = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    agent, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "with-a-notes.yaml").write_text(here(agent))
    (tmp_path / "notes.token").write_text(CANARY)
    # The vault `default` has one for the server by now: this one is put into another.
    put_in = here(put_in).replace("add notes", "add page --in other")
    await there.it.run(*command(there, put_in, tmp_path, vault=True))
    ask = shlex.split(here(start).replace("add one to the notes", "[notes] add one"))
    out = await there.it.run(*command(there, shlex.join(ask), tmp_path), "--json")
    told = json.loads(out.splitlines()[-1])
    assert told["stop_reason"] == "end_turn"
    assert there.effects()[-1] == "one"
    why, audit = (line.partition("#")[0] for line in asking.splitlines())
    why = why.replace("SESSION", told["session_id"])
    assert "its turn ended" in await there.it.run(*command(there, why, tmp_path))
    shown = await there.it.run(*command(there, audit, tmp_path, vault=True))
    assert "mcp.tools/call" in shown


def command(there: Notes, line: str, place: Path, *, vault: bool = False) -> list[str]:
    """A line of the page as it is run here: where all is, and where its files are."""
    at = there.it.running
    words = [
        str(place / word) if word.endswith(".yaml") else word
        for word in shlex.split(line.replace("token=", f"token={place}/"))[1:]
    ]
    where = ["--state-dir", str(there.it.state), "--vault", at["vault"].facts["address"]]
    if not vault:
        where[2:] = ["--sessiond", at["sessiond"].facts["address"]]
    return [*words, *where]
