"""Kill whoever has a part in a call of an MCP server: it happens once, and the log is true."""

import asyncio
import json
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from carpal.identity import DEFAULT_TRUST_DOMAIN, Role, server_name
from carpal.tls import IdentityFiles
from tests.faults import Points
from tests.interaction.mcp_world import Notes, grants_in, memory, notes
from tests.interaction.play import SECONDS, Session
from tests.pace import SCALE

pytestmark = pytest.mark.timeout(180)
TERM = 2.0 * SCALE
REFUSED = (403, '{"error":{"reason":"GRANT_REFUSED"}}')


@pytest.fixture
async def there(tmp_path: Path) -> AsyncIterator[Notes]:
    environ = Points(tmp_path / "points").environ
    async with notes(tmp_path, brains=("b1", "b2"), term=TERM, environ=environ) as made:
        yield made


async def idle(made: Session, after: int = 0) -> int:
    return (await made.until_type("session.status_idle", after)).position


def said(made: Session, at: int = -1) -> tuple[str, str]:
    result = made.data("agent.tool_result")[at]
    return result["outcome"], result["content"][0]["text"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("mcp_call.before_sent", ("ok", "note 1")),
        ("mcp_call.answered", ("ok", "the call was sent once, and the server did it")),
        ("mcp_result.before_appended", ("ok", "the call was sent once, and the server did it")),
        ("mcp_result.appended", ("ok", "note 1")),
    ],
)
async def test_a_brain_that_is_killed_at_a_step_of_a_call_leaves_one_effect_and_its_true_outcome(
    there: Notes, tmp_path: Path, step: str, told: tuple[str, str]
) -> None:
    points = Points(tmp_path / "points")
    points.arm(f"brain.{step}", "kill")
    async with there.session("add one") as made:
        await idle(made)
        assert points.taken(f"brain.{step}")
        outcome, text = said(made)
        assert outcome == told[0]
        assert told[1] in text
        assert len(made.results()) == 1
    assert there.effects() == ["one"]


async def test_a_brain_killed_in_the_middle_of_a_call_is_replaced_and_it_may_have_happened(
    there: Notes,
) -> None:
    async with there.session("hold it") as made:
        await there.began()
        await there.it.running[await made.driver()].kill()
        await idle(made)
        outcome, text = said(made)
        assert outcome == "interrupted"
        assert "nobody knows what became of it; the call may have happened" in text
        again = await made.say("[notes] add one")
        await idle(made, again.position)
        assert said(made) == ("ok", "note 2")
    assert there.effects() == ["held", "one"]


@pytest.mark.slow
async def test_a_vault_killed_in_the_middle_of_a_call_comes_back_and_the_session_goes_on(
    there: Notes,
) -> None:
    async with there.session("hold it") as made:
        await there.began()
        await there.vault()
        await idle(made)
        outcome, text = said(made)
        assert outcome == "interrupted"
        assert "the call may have happened, and is not sent again" in text
        again = await made.say("[notes] add one")
        await idle(made, again.position)
        assert said(made) == ("ok", "note 2")
    assert there.effects() == ["held", "one"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "told", "effects"),
    [
        ("before_written", ("ok", "note 1"), ["one"]),
        ("written", ("interrupted", "nobody knows what became of it; the call may have"), []),
        ("answered", ("interrupted", "nobody knows what became of it; the call may have"), ["one"]),
    ],
)
async def test_a_vault_that_is_killed_at_a_step_of_a_call_sends_it_once_at_most(
    there: Notes, tmp_path: Path, step: str, told: tuple[str, str], effects: list[str]
) -> None:
    points = Points(tmp_path / "points")
    points.arm(f"vault.mcp_call.{step}", "kill")
    async with there.session("add one") as made:
        async with asyncio.timeout(SECONDS):
            await there.it.running["vault"].process.wait()
        await there.vault()
        await idle(made)
        outcome, text = said(made)
        assert outcome == told[0]
        assert told[1] in text
        assert len(made.results()) == 1
    assert there.effects() == effects


async def test_s15_a_server_that_restarts_fails_one_call_and_the_next_is_taken_with_all_tools(
    there: Notes,
) -> None:
    async with there.session("hold it") as made:
        await there.began()
        await there.kill()
        await idle(made)
        outcome, text = said(made)
        assert outcome == "interrupted"
        assert "the server ended the connection before its answer; the call may have" in text
        away = await made.say("[notes] add one")
        await idle(made, away.position)
        outcome, text = said(made)
        assert (outcome, text) == ("error", "[error] not run: the server cannot be reached")
        await there.serve()
        again = await made.say("[notes] add two")
        await idle(made, again.position)
        assert said(made) == ("ok", "note 2")
        learned = [each for each in made.data("context.tools") if each["hand"] == "notes"]
        assert len(learned) == 1, "its tools stay as they are"
    assert there.effects() == ["held", "two"]


@pytest.mark.slow
async def test_s15_a_call_that_takes_too_long_fails_alone(there: Notes) -> None:
    async with there.session("hold it") as made:
        await there.began()
        assert there.server is not None
        there.server.send_signal(signal.SIGSTOP)
        await made.until_type("agent.tool_result", seconds=120.0)
        there.server.send_signal(signal.SIGCONT)
        outcome, text = said(made)
        assert outcome == "timed_out"
        assert "the server did not answer in time; the call may have happened" in text
        ended = await idle(made)
        await made.say("[notes] add one")
        await idle(made, ended)
        assert said(made) == ("ok", "note 2")
    assert there.effects() == ["held", "one"]


@pytest.mark.slow
async def test_while_the_vault_is_away_tools_stay_and_a_call_says_that_it_does_not_answer(
    there: Notes,
) -> None:
    async with there.session("add one") as made:
        ended = await idle(made)
        await there.it.running["vault"].kill()
        away = await made.say("[notes] add two")
        await idle(made, away.position)
        result = made.data("agent.tool_result")[-1]
        assert said(made) == ("error", "[error] not run: the vault does not answer")
        assert (result["layer"], result["cause"]) == ("vault", "VAULT_UNAVAILABLE")
        await there.vault()
        again = await made.say("[notes] add one")
        await idle(made, again.position)
        assert said(made) == ("ok", "note 2")
        assert ended
    assert there.effects() == ["one", "one"]


@pytest.mark.slow
async def test_v12_a_grant_taken_from_a_brain_is_useless_to_the_other_and_dies_at_the_takeover(
    there: Notes,
) -> None:
    async with there.session("hold it") as made:
        await there.began()
        name = await made.driver()
        (other,) = {"b1", "b2"} - {name}
        before = there.it.running[name]
        before.process.send_signal(signal.SIGSTOP)  # it has its grant, and the connection
        try:
            tokens = grants_in(memory(before.pid))
            assert tokens, "a grant is what a brain has in its memory"
            stolen = [await _list(there, other, token) for token in tokens]
            assert {(each.status_code, each.text) for each in stolen} == {REFUSED}
            own = [await _list(there, name, token) for token in tokens]
            assert 200 in {each.status_code for each in own}, "it was good, and its own brain's"
            await made.until(lambda e: e.type == "agent.tool_result", seconds=SECONDS)
            answers = [await _list(there, name, token) for token in tokens]
            assert {(each.status_code, each.text) for each in answers} == {REFUSED}
            told = await _denied(there)
            assert {brain for brain, _ in told} == {name, other}
            assert len({why for _, why in told}) > 1, "the audit knows why, the callers do not"
        finally:
            before.process.send_signal(signal.SIGCONT)
        await idle(made)
        assert len(made.results()) == 1
    assert there.effects() == ["held"]


@pytest.mark.slow
async def test_v41_a_tool_that_changed_is_asked_about_and_called_once_a_person_agreed(
    there: Notes,
) -> None:
    async with there.session("add one") as made:
        await idle(made)
        (there.folder / "description").write_text("Write a note down, and tell everybody.")
        await there.kill()
        await there.serve()
        again = await made.say("[notes] add two")
        await idle(made, again.position)
        outcome, text = said(made)
        assert outcome == "error"
        assert "describes the tool otherwise than when the session first saw it" in text
        third = await made.say("[notes] add one")
        waits = await idle(made, third.position)
        assert made.data("session.status_idle")[-1]["stop_reason"]["type"] == "requires_action"
        call = [event for event in made.log if event.type == "agent.tool_use"][-1]
        await made.allow(call.id)
        await idle(made, waits)
        assert said(made) == ("ok", "note 2")
    assert there.effects() == ["one", "one"]


async def _list(there: Notes, brain: str, token: str) -> httpx2.Response:
    """As that brain, by its certificate."""
    files = IdentityFiles(there.it.state / "brain" / brain / "identity")
    context = ssl.create_default_context(cadata=files.ca.read_text())
    context.load_cert_chain(files.certificate, files.key)
    url = f"https://{there.it.running['vault'].facts['mcp']}/mcp/notes"
    async with httpx2.AsyncClient(verify=context, trust_env=False, timeout=SECONDS) as client:
        return await client.post(
            url,
            headers={"authorization": f"Bearer {token}"},
            json={"jsonrpc": "2.0", "id": 1, "method": "ping"},
            extensions={"sni_hostname": server_name(Role.VAULT, DEFAULT_TRUST_DOMAIN)},
        )


async def _denied(there: Notes) -> set[tuple[str, str]]:
    """Which brains were refused by their grants, and why."""
    at = there.it.running["vault"].facts["address"]
    where = ("--state-dir", str(there.it.state), "--vault", at, "--json", "-n", "1000")
    told = [
        json.loads(each)
        for each in (await there.it.run("vault", "audit", "show", *where)).splitlines()
    ]
    return {
        (each["actor"].rpartition("/")[2], each["reason"])
        for each in told
        if each["what"] == "denied" and each["action"] == "grant.check"
    }
