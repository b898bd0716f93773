"""`carpal session why`: each way a session can stand, in a sentence, and no word that was said."""

import json
import re
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from brain.session import model_kinds
from carpal.layers import CAUSES, Layer
from carpal.operator.why import report, steps, text
from carpal.operator.why_words import MODEL_FAILURES, cause_words
from carpal.status import Reason
from hands.life.keeper import STOPPED
from hands.results import stopped, to_message
from tests.command import ROOT
from tests.operator.log import OPERATOR
from tests.operator.log import text as said
from tests.operator.standing import (
    CANARY,
    END,
    SHELL,
    Case,
    archived,
    asked,
    at_work,
    call_waits,
    cloned,
    consent,
    draining,
    enters,
    error,
    failed_call,
    fallback,
    forbidden,
    gone,
    had_none,
    had_none_for_a_call,
    hand_event,
    idle,
    interrupted,
    model_fails,
    never,
    no_answer,
    no_brain,
    no_daemon,
    nobody_answers,
    old,
    parked,
    parked_with_progress,
    person,
    quarantined,
    retrying,
    revoked,
    stopped_by_owner,
    taken_over,
    unknown,
    waiting,
    waits_for_one,
    was_down,
    with_daemon,
)

BUDGET = {
    "stop_reason": {
        "type": "budget_reached", "limit": "output_tokens", "limits": {"output_tokens": 900}
    },
    "spent": {"output_tokens": 850},
}  # fmt: skip
BY_OWNER = to_message(stopped(began=True), 1).content
LOST_BY_OWNER = f"hand 'shell' is gone (hand h: {STOPPED}); the call did not run"
EMPTY = {**END, "stop_details": {"type": "empty_reply"}}
TABLE: list[tuple[str, Callable[[Case], None], Layer | None, str, bool]] = [
    ("idle", idle(END), None, "idle since 2027-01-15 08:00:00Z: its turn ended", False),
    ("new", never, None, "never given anything to do", False),
    ("archived", archived, None, "archived since 2027-01-15 08:00:00Z", False),
    ("interrupted", interrupted, None, "a person interrupted it at", False),
    ("refusal", idle({"stop_reason": {"type": "refusal"}}), Layer.MODEL, "the model refused", True),
    ("empty_reply", idle(EMPTY), Layer.MODEL, "answered with nothing", True),
    ("budget", idle(BUDGET), Layer.MODEL, "its limit of 900 on output_tokens is reached", True),
    ("gave_up", model_fails, Layer.MODEL, "given up", True),
    ("model_failed", model_fails, Layer.MODEL, "did not accept the key (HTTP 401)", True),
    ("model_failed", retrying, Layer.MODEL, "2 times in a row, last at", False),
    (
        "model_failed", nobody_answers, Layer.MODEL, "nobody answers at the provider's address.",
        True,
    ),
    ("fallback", fallback, Layer.MODEL, "fallback model answers since", False),
    (
        "tools_forbidden", forbidden, None,
        "The owner of the machine that has hand shell forbids these tools there, so the model is "
        "not offered them: bash, write.", False,
    ),
    (
        "call_error", failed_call("error", "daemon", "POLICY_FORBIDS"), Layer.DAEMON,
        "did not run, at 2027-01-15 08:00:00Z: the policy of the machine's owner forbids it", False,
    ),
    ("person", person, None, "waits for a person since 2027-01-15 08:00:00Z", False),
    ("consent", consent, None, "for the user alice to consent to the use of the MCP", False),
    ("parked", parked, Layer.HARNESS, "3 tries at driving it made no progress", True),
    ("parked", parked_with_progress, Layer.HARNESS, "20 tries at driving it in a row failed", True),
    ("waiting", waiting, Layer.HARNESS, "no brain drives it, since", False),
    ("waiting", no_brain, Layer.HARNESS, "no brain drives it, since", True),
    ("no_brain", no_brain, Layer.HARNESS, "No brain is live", True),
    ("fleet_unknown", no_answer, None, "No brain answered", False),
    ("running", asked, None, "Brain brain-1 drives it, with a lease that is in", False),
    ("model_asked", asked, None, "has not answered yet", False),
    ("call_open", at_work, None, "sevt_call of bash on hand shell is under way since", False),
    ("hand_taken", enters, None, "has control of it: calls that had not begun wait", False),
    ("person_inside", partial(enters, control=False), None, "is in hand shell since", False),
    ("taken_over", taken_over, None, "Brain brain-2 took it over from brain-1 at", False),
    (
        "no_daemon_yet", waits_for_one, Layer.DAEMON,
        "It waits for a daemon that fits hand shell (process), since 2027-01-15 08:00:00Z: "
        "daemon box would, and is in quarantine.", True,
    ),
    (
        "no_daemon_yet", partial(waits_for_one, change=draining), Layer.DAEMON,
        "daemon box would, and is drained.", True,
    ),
    (
        "no_daemon_yet", partial(waits_for_one, change=gone), Layer.DAEMON,
        "daemon box would, and is not linked.", True,
    ),
    (
        "no_daemon_yet", partial(waits_for_one, change=revoked), Layer.DAEMON,
        "daemon box would, and is revoked.", True,
    ),
    (
        "no_daemon_yet", partial(waits_for_one, change=unknown), Layer.DAEMON,
        "of the daemons that are known, none would fit.", True,
    ),
    (
        "no_daemon_yet", call_waits, Layer.DAEMON,
        "It waits for a daemon that fits hand shell (process), since 2027-01-15 08:00:00Z", True,
    ),
    ("no_daemon", had_none, Layer.DAEMON, "box would, and is in quarantine", True),
    ("no_daemon", had_none_for_a_call, Layer.DAEMON, "box would, and is in quarantine", True),
    ("link_down", with_daemon(gone), Layer.LINK, "down since 2027-01-15 08:05:00Z (LINK_", True),
    (
        "link_was_down", with_daemon(was_down), Layer.LINK,
        "was down from 2027-01-15 08:04:00Z to 2027-01-15 08:09:00Z (cut)", False,
    ),
    ("daemon_quarantined", with_daemon(quarantined), Layer.DAEMON, "An operator quaran", True),
    ("daemon_revoked", with_daemon(revoked), Layer.VAULT, "is revoked", True),
    ("daemon_cloned", with_daemon(cloned), Layer.DAEMON, "A second machine came", False),
    ("daemon_draining", with_daemon(draining), None, "Daemon box is drained", False),
    ("daemon_old", with_daemon(old), Layer.DAEMON, "twelve months from release", False),
    ("daemon_unknown", with_daemon(unknown), Layer.DAEMON, "No live brain knows daemon box", True),
    (
        "call_interrupted", failed_call("interrupted", "daemon", "machine_changed"), Layer.DAEMON,
        "was interrupted, and may have partly happened", False,
    ),
    (
        "call_interrupted", failed_call("interrupted", "daemon", "machine_changed"), Layer.DAEMON,
        "its machine was restarted", False,
    ),
    (
        "call_interrupted", failed_call("interrupted", "link", "out_of_reach"), Layer.LINK,
        "out of reach past the orphan deadline", False,
    ),
    (
        "call_interrupted", stopped_by_owner("interrupted", "daemon", "", BY_OWNER), Layer.DAEMON,
        "was interrupted, and may have partly happened, at 2027-01-15 08:00:00Z: the owner of the "
        "machine stopped its hand, which is gone.", False,
    ),
    (
        "call_lost", stopped_by_owner("lost", "hand", "HAND_GONE", LOST_BY_OWNER), Layer.HAND,
        "was lost with its hand, at 2027-01-15 08:00:00Z: the owner of the machine stopped its "
        "hand, which is gone.", False,
    ),
    (
        "hand_lost", stopped_by_owner("lost", "hand", "HAND_GONE", LOST_BY_OWNER), Layer.HAND,
        "Hand shell was lost at 2027-01-15 08:00:00Z: the owner of the machine stopped it.", False,
    ),
    (
        "call_lost", failed_call("lost", "hand", "out_of_memory"), Layer.HAND,
        "the hand was out of memory", False,
    ),
    (
        "call_error", failed_call("error", "hand", "out_of_memory"), Layer.HAND,
        "failed, at 2027-01-15 08:00:00Z: the hand was out of memory", False,
    ),
    ("call_error", failed_call("error", "model", "TOOL_NOT_FOUND"), Layer.MODEL, "not run", False),
    ("call_timed_out", failed_call("timed_out", "hand", ""), Layer.HAND, "ran out of its", False),
    ("tool_errors", failed_call("error", "hand", ""), Layer.HAND, "1 call ran and ended", False),
    (
        "hand_lost", hand_event("hand.lost", layer="hand", cause="supervisor_ended"), Layer.HAND,
        "Hand shell was lost at", False,
    ),
    (
        "hand_not_made",
        hand_event("hand.provision_failed", layer="daemon", reason="AT_CAPACITY"), Layer.DAEMON,
        "every daemon that fits is full", True,
    ),
    (
        "not_saved", hand_event("hand.save_failed", layer="hand", reason="SAVE_FAILED"),
        Layer.HAND, "Hand shell was not saved", False,
    ),
    ("late_results", hand_event("hand.late_result"), None, "Of 1 calls the true end", False),
    (
        "agent_invalid_error", error("agent_invalid_error", layer="harness"), Layer.HARNESS,
        "The agent in its log has a mistake", True,
    ),
    (
        "tool_unknown_error", error("tool_unknown_error", layer="harness"), Layer.HARNESS,
        "name tools that no hand has", False,
    ),
    (
        "malformed_event_error", error("malformed_event_error", layer="harness"), Layer.HARNESS,
        "it is not what its type says", False,
    ),
    (
        "confirmation_moot_error", error("confirmation_moot_error", layer="harness"),
        Layer.HARNESS, "A person's word was passed over", False,
    ),
    (
        "mcp_unavailable",
        error("mcp_connection_failed_error", layer="vault", cause="mcp_unreachable"),
        Layer.VAULT, "offers was not learned at", False,
    ),
    (
        "hand_unavailable",
        error("hand_unavailable_error", layer="daemon", cause="DAEMON_NOT_FOUND"), Layer.DAEMON,
        "What hand shell offers could not be learned", False,
    ),
    (
        "error", error("unknown_error", retry="exhausted", layer="vault", cause=CANARY),
        Layer.VAULT, "The vault failed at", True,
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "happens", "layer", "words", "wrong"),
    TABLE,
    ids=[f"{n}-{row[0]}" for n, row in enumerate(TABLE)],
)  # fmt: skip
def test_each_way_a_session_can_stand_is_a_sentence_with_its_layer_and_nothing_that_was_said(
    kind: str, happens: Callable[[Case], None], layer: Layer | None, words: str, wrong: bool
) -> None:
    case = Case()
    happens(case)
    found = case.found()
    one = next((each for each in found if each.kind == kind), None)
    assert one is not None, [each.kind for each in found]
    assert words in one.text
    assert one.text.endswith(".")
    assert (one.layer, one.wrong) == (layer, wrong)
    assert not wrong or steps(found), "what is wrong has a step that mends it"
    told = text(found) + json.dumps(report(case.info, found))
    assert "4711" not in told
    assert "tell nobody" not in told


def test_every_layer_and_kind_of_finding_is_in_the_table() -> None:
    assert {row[2] for row in TABLE} - {None} == set(Layer)
    sources = (ROOT / "carpal" / "operator").glob("why*.py")
    written = "".join(path.read_text() for path in sources)
    kinds = set(re.findall(r'Finding\(\s*"([a-z_]+)"', written))
    assert kinds - {"calls"} <= {row[0] for row in TABLE}


def test_a_session_that_waits_for_a_daemon_in_quarantine_is_not_told_to_be_well() -> None:
    case = Case()
    waits_for_one(case)
    told = report(case.info, case.found())
    assert not told["healthy"]
    assert "carpal fleet quarantine box --lift" in told["next"][0]


def test_a_session_whose_hand_a_connected_daemon_fits_waits_for_none() -> None:
    case = Case()
    waits_for_one(case, change=lambda _: None)
    assert [each.kind for each in case.found()] == ["running"]


def test_a_session_that_needs_no_hand_now_waits_for_no_daemon() -> None:
    for needs_none in ("span.model_request_start", "agent.message"):
        case = Case()
        waits_for_one(case)
        case.log.add("span.model_request_start")
        if needs_none == "agent.message":
            case.log.add("span.model_request_end", {})
        assert "no_daemon_yet" not in {each.kind for each in case.found()}, needs_none
    case = Case()
    no_daemon(case)
    case.log.add("context.tools", {"hand": "shell", "type": "process", "tools": []})
    case.driven()
    assert "no_daemon_yet" not in {each.kind for each in case.found()}, "its tools are known"


@pytest.mark.parametrize(
    "placement",
    [{"labels": {"os": "plan9"}}, {"pool": "lab"}, {"daemon": "other"}, {"labels": {"gpu": "1"}}],
)
def test_a_daemon_that_the_placement_excludes_is_not_said_to_fit(placement: dict[str, Any]) -> None:
    case = Case()
    waits_for_one(case)
    case.log.add(
        "session.updated", {"hands": {"shell": {**SHELL["shell"], "placement": placement}}}
    )
    (one,) = [each for each in case.found() if each.kind == "no_daemon_yet"]
    assert "none would fit" in one.text
    assert "box" not in one.text


@pytest.mark.parametrize(
    ("happens", "step"),
    [
        (nobody_answers, "`base_url`"),
        (nobody_answers, "`carpal session tail`"),
        (partial(model_fails, kind="model_request_failed_error"), "`carpal session tail`"),
        (stopped_by_owner("interrupted", "daemon", "", BY_OWNER), "ask the machine's owner"),
        (stopped_by_owner("lost", "hand", "HAND_GONE", LOST_BY_OWNER), "ask the machine's owner"),
        (forbidden, "ask the machine's owner to allow them, or place the hand elsewhere"),
        (
            hand_event("hand.provision_failed", layer="hand", reason="PROVISION_FAILED"),
            "read its message, by `carpal session show`, and the daemon's log",
        ),
        (
            hand_event("hand.provision_failed", layer="daemon", reason="LIMIT_NOT_ENFORCEABLE"),
            "leave the limit out, or use a machine that can keep it",
        ),
    ],
)  # fmt: skip
def test_what_to_do_is_what_helps(happens: Callable[[Case], None], step: str) -> None:
    case = Case()
    happens(case)
    told = text(case.found())
    assert step in told.partition("What to do: ")[2], told
    assert "Nothing is wrong" not in told


def test_a_healthy_session_is_told_to_be_one() -> None:
    case = Case()
    case.hand()
    case.log.add("session.status_idle", END)
    assert text(case.found()).splitlines() == [
        "It is idle since 2027-01-15 08:00:00Z: its turn ended.",
        "Nothing is wrong.",
        "What to do: nothing.",
    ]
    told = report(case.info, case.found())
    assert (told["healthy"], told["next"]) == (True, [])


@pytest.mark.parametrize("row", TABLE, ids=[f"{n}-{row[0]}" for n, row in enumerate(TABLE)])
def test_that_nothing_is_wrong_is_never_said_beside_something_to_do(row: tuple[Any, ...]) -> None:
    case = Case()
    row[1](case)
    lines = text(case.found()).splitlines()
    todo = [line for line in lines if line.startswith("What to do: ")]
    assert todo, "it always says what to do"
    asks = any(not line.startswith("What to do: nothing") for line in todo)
    assert ("Nothing is wrong." in lines) is not asks


def test_tools_that_the_owner_forbids_no_more_are_not_told_of() -> None:
    case = Case()
    forbidden(case)
    case.log.add("user.message", said("again"), source=OPERATOR)
    assert "tools_forbidden" in {each.kind for each in case.found()}, "in a later turn too"
    case.log.add("context.tools", {"hand": "shell", "type": "process", "tools": []})
    assert "tools_forbidden" not in {each.kind for each in case.found()}


def test_tools_of_a_hand_itself_that_the_owner_forbids_are_told_of_until_another_has_them() -> None:
    case = Case()
    made: dict[str, object] = {"hand_id": "h1", "name": "shell", "daemon": "box", "tools": []}
    case.log.add("hand.provisioned", {**made, "forbidden": ["act"]})
    (told,) = [each for each in case.found() if each.kind == "tools_forbidden"]
    assert told.text.endswith("the model is not offered them: act.")
    case.log.add("hand.provisioned", {**made, "hand_id": "h2"})
    assert "tools_forbidden" not in {each.kind for each in case.found()}


def test_what_went_wrong_in_an_earlier_turn_is_no_reason_for_this_one() -> None:
    case = Case()
    model_fails(case)
    case.log.add("user.message", said("again"), source=OPERATOR)
    case.log.add("session.status_running")
    case.log.add("session.status_idle", END)
    assert [each.kind for each in case.found()] == ["idle"]


@pytest.mark.parametrize("end", ["hand.left", "hand.lost", "hand.released"])
def test_a_person_who_left_or_whose_hand_is_gone_holds_nothing_up(end: str) -> None:
    case = Case()
    enters(case)
    case.log.add("user.message", said("again"), source=OPERATOR)
    (inside,) = [each for each in case.found() if each.kind == "hand_taken"]
    assert inside.text.startswith("Operator ann is in hand shell since")
    assert "they leave" in text(case.found()).splitlines()[-1]
    case.log.add(end, {"tunnel_id": "t", "hand_id": "h", "name": "shell"})
    assert "hand_taken" not in {each.kind for each in case.found()}


@pytest.mark.parametrize(("seconds", "is_told"), [(0, False), (1, False), (2, True)])
def test_a_link_that_was_soon_back_is_passed_over(seconds: int, is_told: bool) -> None:
    case = Case()
    with_daemon(was_down)(case)
    back = case.box.links[0].ended.ToDatetime() + timedelta(seconds=seconds)
    case.box.linked_since.FromDatetime(back)
    assert ("link_was_down" in {each.kind for each in case.found()}) is is_told


def test_a_hand_that_was_released_asks_for_no_daemon() -> None:
    case = Case()
    case.hand()
    case.log.add("session.status_idle", END)
    case.log.add("hand.released", {"hand_id": "h", "name": "shell"})
    gone(case)
    assert text(case.found()).count("Nothing is wrong.") == 1


def test_a_person_is_waited_for_only_for_calls_that_nobody_decided() -> None:
    case = Case()
    person(case)
    (one,) = case.found()
    assert "1 call: sevt_call (bash on hand shell)" in one.text
    assert one.next == "`carpal session approve` or `carpal session deny`"


def test_every_cause_and_every_failure_of_the_model_has_words() -> None:
    for cause in CAUSES:
        assert not cause_words(cause)[0].startswith("the cause is"), cause
    for reason in Reason:
        assert cause_words(reason)[1], reason
    kinds = {v for k, v in vars(model_kinds).items() if k.isupper() and isinstance(v, str)}
    assert set(MODEL_FAILURES) == kinds - {model_kinds.INTERRUPTED}
