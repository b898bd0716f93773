"""Sessions that use an MCP server in a user's name wait for their consent, and go on by it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.interaction.mcp_world import Notes, notes
from tests.interaction.play import Session
from tests.pace import SCALE
from tests.vault.mcp.world import CANARY

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Notes]:
    async with notes(tmp_path_factory.mktemp("consent"), term=2.0 * SCALE) as made:
        yield made


async def idle(made: Session, after: int = 0) -> str:
    """Why it is idle."""
    await made.until_type("session.status_idle", after)
    return str(made.data("session.status_idle")[-1]["stop_reason"]["type"])


async def asked(made: Session, after: int = 0) -> tuple[str, dict[str, str]]:
    """What it waits for: the id, and what is said of it; the session is idle for that alone."""
    assert await idle(made, after) == "requires_action"
    event = [each for each in made.log if each.type == "session.consent_required"][-1]
    assert made.data("session.status_idle")[-1]["stop_reason"]["event_ids"] == [event.id]
    return event.id, json.loads(event.data)


async def test_a_session_waits_for_its_user_s_consent_before_the_model_is_asked_and_goes_on_by_it(
    there: Notes,
) -> None:
    before, seen = there.effects(), there.seen()
    async with there.session("add one", user="alice") as made:
        consent, said = await asked(made)
        assert said == {
            "mcp_server_name": "notes", "url": there.url, "user": "alice", "vault_id": "default",
        }  # fmt: skip
        assert not made.data("span.model_request_start")
        assert (there.effects(), there.seen()) == (before, seen)
        await there.credential("alices", owner="alice")
        word = await made.consent(consent, "given")
        assert await idle(made, word.position) == "end_turn"
        assert made.data("agent.tool_result")[-1]["outcome"] == "ok"
        assert there.effects() == [*before, "one"]
        assert len(made.data("session.consent_required")) == 1
    await there.archive("alices")


async def test_a_call_whose_credential_is_gone_waits_and_the_same_call_goes_on_exactly_once(
    there: Notes,
) -> None:
    await there.credential("bobs", owner="bob")
    before = there.effects()
    async with there.session("add one", user="bob") as made:
        assert await idle(made) == "end_turn"
        await there.archive("bobs")
        again = await made.say("[notes] add two")
        consent, said = await asked(made, again.position)
        call = [each for each in made.log if each.type == "agent.tool_use"][-1]
        assert said["tool_use_id"] == call.id
        assert there.effects() == [*before, "one"]
        word = await made.consent(consent, "given")  # there is none: it is asked for again
        consent, _ = await asked(made, word.position)
        await there.credential("bobs-anew", owner="bob")
        word = await made.consent(consent, "given")
        assert await idle(made, word.position) == "end_turn"
        assert there.effects() == [*before, "one", "two"]
        results = [each["tool_use_id"] for each in made.data("agent.tool_result")]
        assert results.count(call.id) == 1
        assert made.data("agent.tool_result")[-1]["outcome"] == "ok"
    await there.archive("bobs-anew")


async def test_the_model_hears_of_a_call_that_its_user_does_not_consent_to(there: Notes) -> None:
    await there.credential("carols", owner="carol")
    before = there.effects()
    async with there.session("add one", user="carol") as made:
        assert await idle(made) == "end_turn"
        await there.archive("carols")
        again = await made.say("[notes] add two")
        consent, _ = await asked(made, again.position)
        word = await made.consent(consent, "denied", "not with my notes")
        assert await idle(made, word.position) == "end_turn"
        result = made.data("agent.tool_result")[-1]
        assert result["outcome"] == "denied"
        assert result["content"][0]["text"].endswith("notes': not with my notes")
        assert there.effects() == [*before, "one"]


async def test_a_session_whose_user_does_not_consent_goes_on_without_the_server_and_asks_once(
    there: Notes,
) -> None:
    async with there.session("say hello", user="dora") as made:
        consent, _ = await asked(made)
        sessiond = there.it.running["sessiond"].facts["address"]
        where = ("--state-dir", str(there.it.state), "--sessiond", sessiond)
        shown = await there.it.run("session", "show", made.session_id, *where)
        assert f"{consent}  notes: consent of the user dora to {there.url}" in shown
        assert f"carpal session consent {made.session_id}" in shown
        why = await there.it.run("session", "why", made.session_id, *where)
        assert "for the user dora to consent" in " ".join(why.split())
        await there.it.run("session", "deny", made.session_id, "--message", "never", *where)
        word = await made.until_type("user.consent")
        assert await idle(made, word.position) == "end_turn"
        again = await made.say("[notes] say hello")
        assert await idle(made, again.position) == "end_turn"
        assert len(made.data("session.consent_required")) == 1
        assert len(made.data("agent.message")) == 2


async def test_a_user_s_credential_is_never_used_in_a_session_of_another_user_or_of_nobody(
    there: Notes,
) -> None:
    await there.credential("erins", owner="erin")
    before, seen = there.effects(), there.seen()
    async with there.session("add one", user="frank") as made:
        _, said = await asked(made)
        assert said["user"] == "frank"
    async with there.session("say hello", user="") as made:
        assert await idle(made) == "end_turn"
        errors = [e for e in made.data("session.error") if e.get("mcp_server_name") == "notes"]
        assert errors[0]["error"]["cause"] == "mcp_unauthenticated"
    assert (there.effects(), there.seen()) == (before, seen)
    at = there.it.running["vault"].facts["address"]
    where = ("--state-dir", str(there.it.state), "--vault", at, "--json", "-n", "1000")
    shown = (await there.it.run("vault", "audit", "show", *where)).splitlines()
    told = [json.loads(line) for line in shown]
    denied = [e for e in told if e["what"] == "denied" and e.get("user") == "frank"]
    assert {e["reason"] for e in denied} == {"CONSENT_REQUIRED"}
    assert not [e for e in told if e.get("credential") == "erins" and e.get("session")]
    await there.archive("erins")


async def test_an_interrupt_ends_what_waits_for_consent_and_it_is_asked_for_anew(
    there: Notes,
) -> None:
    await there.credential("ginas", owner="gina")
    async with there.session("add one", user="gina") as made:
        await idle(made)
        await there.archive("ginas")
        again = await made.say("[notes] add two")
        first, _ = await asked(made, again.position)
        word = await made.interrupt()
        assert await idle(made, word.position) == "end_turn"
        result = made.data("agent.tool_result")[-1]
        text = result["content"][0]["text"]
        assert text == "[cancelled] interrupted before its user consented"
        again = await made.say("[notes] add one")
        second, _ = await asked(made, again.position)
        assert first != second


async def test_a_brain_that_dies_while_consent_is_waited_for_is_replaced(tmp_path: Path) -> None:
    async with (
        notes(tmp_path, brains=("b1", "b2"), term=2.0 * SCALE) as there,
        there.session("add one", user="alice") as made,
    ):
        consent, _ = await asked(made)
        await kill_driver(there, made)
        await there.credential("alices", owner="alice")
        word = await made.consent(consent, "given")
        assert await idle(made, word.position) == "end_turn"
        assert there.effects() == ["one"]
        assert there.seen() == {f"Bearer {CANARY}"}


async def test_a_brain_that_dies_while_a_call_waits_for_consent_leaves_one_effect(
    tmp_path: Path,
) -> None:
    async with notes(tmp_path, brains=("b1", "b2"), term=2.0 * SCALE) as there:
        await there.credential("alices", owner="alice")
        async with there.session("add one", user="alice") as made:
            await idle(made)
            await there.archive("alices")
            again = await made.say("[notes] add two")
            consent, _ = await asked(made, again.position)
            await kill_driver(there, made)
            await there.credential("alices-anew", owner="alice")
            word = await made.consent(consent, "given")
            assert await idle(made, word.position) == "end_turn"
            assert there.effects() == ["one", "two"]
            assert made.data("agent.tool_result")[-1]["outcome"] == "ok"


async def kill_driver(there: Notes, made: Session) -> None:
    """The brain that went idle last."""
    source = [each for each in made.log if each.type == "session.status_idle"][-1].source
    await there.it.running[source.rpartition("/")[2]].kill()
