"""For each reason of the proxy's the log says what is known: not run, or may have happened."""

import re
from pathlib import Path

import pytest

from brain.mcp import outcomes
from brain.mcp.wire import Refused
from brain.session.entries import Call
from carpal.layers import CAUSES
from carpal.status import Reason

PAGE = (Path(__file__).parents[3] / "docs/reference/mcp-proxy.md").read_text()
REASONS = re.findall(r"^\| `([A-Z_]+)` \| -\d+", PAGE, re.MULTILINE)
CALL = Call("sevt_1", 1, "add", "notes", {}, "r", server="notes")


@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_is_not_run_or_may_have_happened_and_never_both(reason: str) -> None:
    data = outcomes.refused(CALL, Refused(reason, data={"outcome": "unknown"})).data
    text, cause = data["content"][0]["text"], data["cause"]
    assert data["is_error"]
    ran = "may have happened" in text or reason in outcomes._REFUSED
    assert ("not run" in text) != ran
    assert cause in CAUSES or cause in Reason.__members__
    assert data["layer"] == ("model" if cause == Reason.INPUT_INVALID else "vault")


def test_the_page_has_all_that_the_proxy_says_of_a_call() -> None:
    known = {*outcomes._NOT_RUN, *outcomes._MAYBE, *outcomes._REFUSED}
    assert known <= {*REASONS}


@pytest.mark.parametrize(
    ("known", "outcome", "says"),
    [
        ("ok", "ok", "the server did it; its answer was lost"),
        ("error", "error", "the server said that it failed; its answer was lost"),
        ("refused", "error", "the server refused it"),
        ("asked", "interrupted", "may have happened, and is not sent again"),
        ("unknown", "interrupted", "may have happened, and is not sent again"),
        ("anything", "interrupted", "may have happened, and is not sent again"),
    ],
)
def test_of_a_call_that_was_sent_before_the_log_says_what_the_vault_knows(
    known: str, outcome: str, says: str
) -> None:
    data = outcomes.refused(CALL, Refused("CALL_SENT", data={"outcome": known})).data
    assert data["outcome"] == outcome
    assert says in data["content"][0]["text"]


def test_a_credentials_own_reason_is_the_cause_if_it_is_one() -> None:
    for told, cause in (
        ("CREDENTIAL_NEEDS_CONSENT", "CREDENTIAL_NEEDS_CONSENT"),
        ("somebody's words", "mcp_unauthenticated"),
    ):
        refusal = Refused("CREDENTIAL_UNAVAILABLE", data={"credential": told})
        assert outcomes.refused(CALL, refusal).data["cause"] == cause


def test_a_call_that_is_interrupted_may_have_happened_only_if_it_was_sent() -> None:
    for sent, says in ((True, "may have happened"), (False, "before it was sent")):
        data = outcomes.cancelled(CALL, sent=sent).data
        assert says in data["content"][0]["text"]
        assert (data["outcome"], "layer" in data) == ("cancelled", False)
