"""What of a turn explains how its session stands: the model, a person, the budget, hands. Pure."""

import re
from collections.abc import Iterator

from carpal.layers import OWNER_STOPPED, Layer
from carpal.operator.events import object_in, text_in
from carpal.operator.story import Fact, Story
from carpal.operator.why_words import (
    BY_OWNER,
    ERRORS,
    MODEL_FAILURES,
    UNANSWERED,
    Finding,
    cause_words,
    plain,
    when,
)
from carpal.v1 import types_pb2

_ROWS_MAX = 5
"""Failed calls that are told of one by one, the newest."""
_NAMES_MAX = 20
"""Tools that are named in a sentence."""
_TRIES = re.compile(r"(\d{1,3}) tries")
_NOT_REACHED = "APIConnectionError"
"""How the log's words begin of a service to which no connection came about."""
_RAN = ("out_of_memory", "output_freed", "mcp_refused")
"""Causes of an error of a call that ran, or may have."""
_ENDED = {
    "interrupted": "was interrupted, and may have partly happened",
    "lost": "was lost with its hand",
    "timed_out": "ran out of its time and was ended",
    "error": "did not run",
}


def doing(told: Story) -> Iterator[Finding]:
    """What a driven session is at."""
    if told.asked is not None:
        since = told.asked.time
        text = f"The model was asked at {when(since)} and has not answered yet."
        yield Finding("model_asked", text, since=since)
    for call_id, call in list(told.open_calls.items())[:_ROWS_MAX]:
        if not _needs_person(call, told):
            text = f"Call {plain(call_id)} of {_tool(call)} is under way since {when(call.time)}."
            yield Finding("call_open", text, since=call.time)


def idle(fact: Fact, told: Story) -> Finding:
    """Why a session is idle."""
    reason, since = object_in(fact.data, "stop_reason"), fact.time
    ago = f"It is idle since {when(since)}"
    match reason.get("type"):
        case "end_turn":
            if object_in(fact.data, "stop_details").get("type") == "empty_reply":
                text = f"{ago}: the model answered with nothing, twice."
                return Finding("empty_reply", text, "model", since,
                               next="send it a message that says more", wrong=True)  # fmt: skip
            if told.interrupted is not None:
                text = f"{ago}: a person interrupted it at {when(told.interrupted.time)}."
                return Finding("interrupted", text, since=since)
            return Finding("idle", f"{ago}: its turn ended.", since=since)
        case "refusal":
            return Finding(
                "refusal",
                f"{ago}: the model refused to go on.",
                "model",
                since,
                next="say the task in another way with `carpal session send`, or fork it from "
                "before with `carpal session fork`",
                wrong=True,
            )
        case "requires_action":
            return _for_a_person(reason, told, fact)
        case "budget_reached":
            limits = object_in(reason, "limits")
            name = plain(reason.get("limit"))
            most, spent = limits.get(name), object_in(fact.data, "spent").get(name)
            said = f" of {most}" if isinstance(most, int) else ""
            used = f", of which {spent} are spent" if isinstance(spent, int) else ""
            return Finding(
                "budget",
                f"{ago}: its limit{said} on {name} is reached{used}.",
                "model",
                since,
                next=f"raise it with `carpal session limits --{name.replace('_', '-')} N`",
                wrong=True,
            )
        case "retries_exhausted":
            text = f"{ago}: its turn was given up after what could be tried was tried."
            step = "send it a message to try again, once the cause is gone"
            return Finding("gave_up", text, _last_layer(told), since, next=step, wrong=True)
    return Finding("idle", f"{ago}, for {plain(reason.get('type'))}.", since=since)


def parked(info: types_pb2.SessionInfo, told: Story) -> Finding:
    """Why a session is parked: who drove it failed again and again."""
    last = next((each for each in reversed(told.errors) if "attempts" in each.data), None)
    error = object_in(last.data, "error") if last else {}
    tries = last.data.get("attempts") if last else None
    if not isinstance(tries, int):
        match = _TRIES.match(info.parked_reason)
        tries = int(match[1]) if match else "several"
    words, step = cause_words(error.get("cause"))
    layer = _layer(error)
    text = (
        f"It is parked{f' since {when(last.time)}' if last else ''}: {tries} tries at driving it "
        f"{'in a row failed' if last and last.data.get('progress') else 'made no progress'}. "
        f"The last failed in the {layer or 'brain'}: {words}."
    )
    step += "; then send it a message: that gives it another three tries"
    return Finding("parked", text, layer, last.time if last else None, next=step, wrong=True)


def of_people(told: Story) -> Iterator[Finding]:
    """Who is in a hand, and what waits for them to leave."""
    for fact in told.people.values():
        who = plain(str(fact.data.get("by")).rpartition("/")[2])
        where = f"Operator {who} is in hand {_name(fact)} since {when(fact.time)}"
        if fact.data.get("control") is not True:
            yield Finding("person_inside", f"{where}, beside its calls.", since=fact.time)
            continue
        hand = fact.data.get("name")
        waits = any(call.data.get("hand") == hand for call in told.open_calls.values())
        yield Finding(
            "hand_taken",
            f"{where} and has control of it: calls that had not begun wait until they leave.",
            since=fact.time,
            next="wait until they leave, or ask them to" if waits else None,
        )


def of_turn(told: Story, status: str) -> Iterator[Finding]:
    """What went wrong in the turn, the model first."""
    yield from _of_model(told, status)
    for fact in told.errors:
        if finding := _of_error(fact):
            yield finding
    for fact in told.not_made:
        words, step = cause_words(fact.data.get("reason"))
        text = f"Hand {_name(fact)} could not be made at {when(fact.time)}: {words}."
        yield Finding("hand_not_made", text, _layer(fact.data), fact.time, next=step, wrong=True)
    for hand, fact in told.forbidden.items():
        names = ", ".join(map(plain, fact.data["forbidden"][:_NAMES_MAX]))
        text = (
            f"The owner of the machine that has hand {plain(hand)} forbids these tools there, so "
            f"the model is not offered them: {names}."
        )
        step = (
            "if they are missed, ask the machine's owner to allow them, or place the hand elsewhere"
        )
        yield Finding("tools_forbidden", text, since=fact.time, next=step)
    for fact in told.losses:
        words, step = cause_words(fact.data.get("cause"))
        if _by_owner(fact.data.get("reason")):
            words, step = BY_OWNER[0].format(it="it"), BY_OWNER[1]
        text = f"Hand {_name(fact)} was lost at {when(fact.time)}: {words}."
        yield Finding("hand_lost", text, _layer(fact.data), fact.time, next=step)
    for fact in told.not_saved:
        words, step = cause_words(fact.data.get("reason"))
        text = f"Hand {_name(fact)} was not saved at {when(fact.time)}: {words}."
        yield Finding("not_saved", text, _layer(fact.data), fact.time, next=step)
    yield from _of_calls(told)
    for (before, _), (after, since) in zip(told.drivers, told.drivers[1:], strict=False):
        text = f"Brain {plain(after)} took it over from {plain(before)} at {when(since)}."
        yield Finding("taken_over", text, since=since)


def _of_model(told: Story, status: str) -> Iterator[Finding]:
    if told.fallback is not None:
        text = f"Its fallback model answers since {when(told.fallback.time)}."
        yield Finding("fallback", text, "model", told.fallback.time)
    if not told.model_failures:
        return
    last = told.model_failures[-1]
    error = object_in(last.data, "error")
    kind = plain(error.get("type"))
    words, step = MODEL_FAILURES.get(kind, (f"it was {kind}", "send it a message to try again"))
    code = error.get("status")
    if code is None and str(error.get("message")).startswith(_NOT_REACHED):
        words, step = UNANSWERED
    status_said = f" (HTTP {code})" if isinstance(code, int) else ""
    times = len(told.model_failures)
    often = f"{times} times in a row, last" if times > 1 else "once,"
    again = status == "running" and told.idle is None
    text = f"The model's call failed {often} at {when(last.time)}: {words}{status_said}."
    if again:
        text += " It is tried again."
    first = told.model_failures[0].time
    yield Finding("model_failed", text, "model", first, next=step, wrong=not again)


def _of_error(fact: Fact) -> Finding | None:
    """What an error says that no other event of the turn says better."""
    error = object_in(fact.data, "error")
    kind = plain(error.get("type"))
    layer, wrong = _layer(error), kind == "agent_invalid_error"
    if kind in MODEL_FAILURES or "attempts" in fact.data:
        return None
    if kind in ERRORS:
        words, step = ERRORS[kind]
        return Finding(kind, words, layer, fact.time, next=step, wrong=wrong)
    words, step = cause_words(error.get("cause"))
    if kind.startswith("mcp_"):
        server = plain(fact.data.get("mcp_server_name"))
        text = f"What MCP server {server} offers was not learned at {when(fact.time)}: {words}."
        return Finding("mcp_unavailable", text, layer, fact.time, next=step)
    if kind == "hand_unavailable_error":
        hand = plain(fact.data.get("hand"))
        text = f"What hand {hand} offers could not be learned at {when(fact.time)}: {words}."
        return Finding("hand_unavailable", text, layer, fact.time, next=step)
    status = object_in(error, "retry_status").get("type")
    again = " It is tried again." if status == "retrying" else ""
    text = f"The {layer or 'harness'} failed at {when(fact.time)} ({kind}): {words}.{again}"
    return Finding("error", text, layer, fact.time, next=step, wrong=not again)


def _of_calls(told: Story) -> Iterator[Finding]:
    plainly: list[str | None] = []
    rows: list[Finding] = []
    for call, result in told.results:
        outcome, cause = plain(result.data.get("outcome")), result.data.get("cause")
        if outcome == "error" and cause is None:
            # The tool ran and said so: that is the model's to deal with.
            plainly.append(_layer(result.data))
            continue
        ended = "failed" if outcome == "error" and cause in _RAN else _ENDED.get(
            outcome, f"ended as {outcome}"
        )  # fmt: skip
        words, step = cause_words(cause) if cause else ("", None)
        if outcome in ("interrupted", "lost") and _by_owner(text_in(result.data)):
            words, step = BY_OWNER[0].format(it="its hand, which is gone"), BY_OWNER[1]
        text = f"Call {plain(call.id)} of {_tool(call)} {ended}, at {when(result.time)}"
        text += f": {words}." if words else "."
        kind = f"call_{outcome}"
        rows.append(Finding(kind, text, _layer(result.data), result.time, next=step))
    yield from rows[-_ROWS_MAX:]
    if len(rows) > _ROWS_MAX:
        yield Finding("calls", f"{len(rows) - _ROWS_MAX} calls before those failed too.")
    if plainly:
        calls = "1 call" if len(plainly) == 1 else f"{len(plainly)} calls"
        text = f"{calls} ran and ended in an error of the tool itself; the model was told."
        yield Finding("tool_errors", text, plainly[0] if len(set(plainly)) == 1 else None)
    if told.late:
        text = f"Of {told.late} calls the true end became known later; the model was told."
        yield Finding("late_results", text)


def _for_a_person(reason: dict[str, object], told: Story, fact: Fact) -> Finding:
    ids = reason.get("event_ids")
    ids = [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []
    left = [each for each in ids if each not in told.decided] or ids
    wanted = [told.consents[each] for each in left if each in told.consents]
    if wanted:
        return Finding(
            "consent",
            f"It waits since {when(fact.time)} for the user {plain(wanted[0].data.get('user'))} to "
            f"consent to the use of the MCP server "
            f"{plain(wanted[0].data.get('mcp_server_name'))}.",
            since=fact.time,
            next="`carpal session consent`, or refuse it with `carpal session deny`",
        )
    named = ", ".join(
        f"{plain(each)} ({_tool(told.calls[each])})" if each in told.calls else plain(each)
        for each in left[:_ROWS_MAX]
    )
    return Finding(
        "person",
        f"It waits for a person since {when(fact.time)}, to allow or deny {len(left)} "
        f"{'call' if len(left) == 1 else 'calls'}: {named}.",
        since=fact.time,
        next="`carpal session approve` or `carpal session deny`",
    )


def _needs_person(call: Fact, told: Story) -> bool:
    return call.data.get("evaluated_permission") == "ask" and call.id not in told.decided


def _by_owner(said: object) -> bool:
    """Whether a daemon says that its machine's owner ended the hand."""
    return isinstance(said, str) and OWNER_STOPPED in said


def _last_layer(told: Story) -> str | None:
    if told.model_failures:
        return "model"
    return _layer(object_in(told.errors[-1].data, "error")) if told.errors else None


def _layer(data: dict[str, object]) -> str | None:
    layer = data.get("layer")
    return layer if isinstance(layer, str) and layer in list(Layer) else None


def _tool(call: Fact) -> str:
    name, server = plain(call.data.get("name")), call.data.get("mcp_server_name")
    if isinstance(server, str):
        return f"{name} of MCP server {plain(server)}"
    return f"{name} on hand {plain(call.data.get('hand'))}"


def _name(fact: Fact) -> str:
    return plain(fact.data.get("name"))
