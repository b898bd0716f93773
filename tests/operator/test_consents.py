"""What waits for a user's consent is shown, and a person's word on it is sent as one."""

from pathlib import Path

from carpal.operator.waiting import CONSENT, Calls
from tests.command import Command
from tests.operator.log import OPERATOR, Log


def log() -> Log:
    made = Log()
    made.add("session.status_running")
    said = {"mcp_server_name": "mail", "url": "https://m.a.test/mcp", "user": "alice"}
    made.add("session.consent_required", said | {"vault_id": "default"}, event_id="sevt_consent")
    return made


def taken(made: Log) -> Calls:
    calls = Calls()
    for event in made.events:
        calls.take(event)
    return calls


def test_a_consent_waits_until_an_operator_says_what_became_of_it() -> None:
    made = log()
    (waits,) = taken(made).waiting
    assert (waits.call_id, waits.name, waits.is_consent) == ("sevt_consent", CONSENT, True)
    assert waits.text() == "mail: consent of the user alice to https://m.a.test/mcp"
    made.add("user.consent", {"consent_id": "sevt_consent", "result": "given"})
    assert taken(made).waiting  # a brain's word is none
    made.add("user.consent", {"consent_id": "sevt_consent", "result": "given"}, source=OPERATOR)
    assert not taken(made).waiting


def test_an_interrupt_ends_a_consent_that_waits() -> None:
    made = log()
    made.add("user.interrupt", source=OPERATOR)
    assert not taken(made).waiting


async def test_a_user_is_a_word_and_is_looked_at_before_anything_is_sent(tmp_path: Path) -> None:
    carpal = Command(tmp_path)
    state = ("--state-dir", str(tmp_path / "state"))
    assert (await carpal("vault", "init", *state)).code == 0
    done = await carpal("run", *state, "--sessiond", "127.0.0.1:1", "--user", "two words", "hi")
    assert done.code == 2, done.stderr
    assert "--user: must be" in done.stderr
