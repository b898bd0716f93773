"""The window is cut where it may be, whoever dies on the way, and nothing is paid twice."""

from dataclasses import replace
from typing import Any

import pytest

from brain.context.asking import stands_for
from brain.context.cuts import Cut
from brain.effects import CallModel, Failed, Replied
from brain.session.entries import COMPACTED, Entry
from tests.brain.context.chats import log_with
from tests.brain.logs import Log
from tests.brain.playing import Died, Mind, Player, log_of, runs, says

COMPACT: dict[str, Any] = {"policy": "compact", "at_tokens": 6000, "keep_tokens": 1500}
OVERLONG = Failed("model_context_exceeded_error", "prompt is too long", retryable=False)


def worker(rounds: int, *, size: int = 1500, calls: int = 2, summary: Replied | Failed) -> Mind:
    """A model that runs things for so many replies, and is done; it sums up as it is told."""

    def mind(effect: CallModel, player: Player) -> Replied | Failed:
        if effect.purpose == "compaction":
            return summary
        made = sum(e.type == "agent.tool_use" for e in player.log.entries) // calls
        if made >= rounds:
            return says("all done")
        return runs(*(f"{made}.{n} " + "x" * size for n in range(calls)), thinks=f"round {made}")

    return mind


def cuts(log: Log) -> list[Entry]:
    """The events that say the window was cut."""
    return [entry for entry in log.entries if entry.type == COMPACTED]


def kinds_after(log: Log, start: int) -> list[str]:
    """The types of events from a position on."""
    return [entry.type for entry in log.entries[start - 1 :]]


def summaries_paid(log: Log) -> int:
    """Questions for a summary that were answered."""
    asked = [r for r in log.transcript.requests.values() if r.purpose == "compaction"]
    ids = {e.id for e in log.entries if e.data.get("purpose") == "compaction"}
    ended = [e for e in log.entries if e.data.get("model_request_start_id") in ids]
    assert len(asked) <= len(ids)
    return sum(e.type == "span.model_request_end" and not e.data["is_error"] for e in ended)


def test_a_window_that_is_nearly_full_is_summarised_and_its_newest_stays() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    player = Player(log, worker(20, summary=says("SUMMARY"))).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    assert len(cuts(log)) >= 2
    for cut in cuts(log):
        assert cut.data["kind"] == "summary"
        assert "SUMMARY" in cut.data["text"]
        assert f"positions 1 to {cut.data['through']} " in cut.data["text"]
        assert cut.data["tokens_before"] > COMPACT["at_tokens"]
    request = player.asked[-1].request
    assert "SUMMARY" in request["messages"][0]["content"][0]["text"]
    assert len(str(request)) < 40_000, "and not all of 20 rounds"


def test_no_cut_is_inside_a_tool_batch() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    Player(log, worker(20, calls=3, summary=says("SUMMARY"))).run()
    assert cuts(log)
    results = {e.data["tool_use_id"]: e.position for e in log.entries if "tool_use_id" in e.data}
    for cut in cuts(log):
        for entry in log.entries:
            if entry.type == "agent.tool_use" and entry.position <= cut.data["through"]:
                assert results[entry.id] <= cut.data["through"]


def test_the_question_for_a_summary_begins_with_what_was_cached() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    player = Player(log, worker(12, summary=says("SUMMARY"))).run()
    index = next(n for n, each in enumerate(player.asked) if each.purpose == "compaction")
    before, asked = player.asked[index - 1].request, player.asked[index].request
    assert asked["system"] == before["system"]
    shared = [a for a, b in zip(before["messages"], asked["messages"], strict=False) if a == b]
    assert len(shared) >= len(asked["messages"]) - 3
    assert asked["messages"][-1]["content"][-1]["text"].startswith("The conversation has grown")


def test_a_brain_that_dies_at_any_step_pays_at_most_the_call_in_flight_again() -> None:
    def begun() -> Log:
        log = log_with(**COMPACT)
        log.say("do the thing")
        return log

    mind = worker(9, summary=says("SUMMARY"))
    whole = Player(begun(), mind).run().log
    assert len(cuts(whole)) >= 1
    steps = [e.position for e in whole.entries if e.position > 3]
    for step in steps:
        log = begun()
        with pytest.raises(Died):
            Player(log, mind, dies_at=step).run()
        again = log_of(log.entries)
        in_flight = again.transcript.open_request() is not None
        died_at = again.transcript.head
        player = Player(again, mind).run()
        assert player.finished is not None
        assert player.finished.stop_reason == "end_turn"
        assert again.entries[-3].data.get("content", [{}])[0].get("text") == "all done"
        assert [c.data["through"] for c in cuts(again)][:1], "it is cut all the same"
        asked = sum(e.type == "span.model_request_start" for e in again.entries)
        usual = sum(e.type == "span.model_request_start" for e in whole.entries)
        assert asked <= usual + in_flight + (len(cuts(again)) - len(cuts(whole))), died_at
        assert summaries_paid(again) == len(cuts(again)), "each summary that was paid is used"


def test_an_answer_whose_cut_is_missing_is_used_and_not_paid_again() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    mind = worker(9, summary=says("SUMMARY"))
    whole = Player(log, mind).run().log
    (cut, *_) = cuts(whole)
    again = log_of(whole.entries[: cut.position - 1])
    player = Player(again, worker(9, summary=OVERLONG)).run()
    assert again.entries[cut.position - 1].type == COMPACTED
    assert again.entries[cut.position - 1].data["text"] == cut.data["text"]
    assert player.asked[0].purpose == "reply"


def test_an_interrupt_while_the_summary_is_written_ends_the_turn_and_the_next_asks_again() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    player = Player(log, worker(9, summary=says("SUMMARY")))
    interrupted: list[int] = []

    def interrupt(effect: CallModel) -> None:
        if effect.purpose == "compaction" and not interrupted:
            interrupted.append(log.transcript.head)
            log.add("user.interrupt")

    player.before_end = interrupt
    player.run()
    assert interrupted
    assert not cuts(log)
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    log.say("go on")
    Player(log, worker(9, summary=says("SUMMARY"))).run()
    assert cuts(log)
    assert "session.error" not in [entry.type for entry in log.entries]


def test_a_message_that_comes_while_the_summary_is_written_is_answered_as_it_was_said() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    player = Player(log, worker(9, summary=says("SUMMARY")))
    said: list[str] = []

    def speak(effect: CallModel) -> None:
        if effect.purpose == "compaction" and not said:
            said.append(log.say("and paint it green"))

    player.before_end = speak
    player.run()
    index = next(n for n, each in enumerate(player.asked) if each.purpose == "compaction")
    after = player.asked[index + 1]
    last = after.request["messages"][-1]["content"]
    assert last[-1]["text"] == "and paint it green"


def test_a_reset_begins_anew_with_the_note_and_what_was_asked_after_the_last_word() -> None:
    log = log_with(policy="reset", at_tokens=4000)
    log.say("the first task")
    Player(log, worker(1, summary=says("NOTE"))).run()
    log.say("WORD FOR WORD " + "x" * 9000)
    player = Player(log, worker(1, summary=says("NOTE"))).run()
    (cut,) = cuts(log)
    assert cut.data["kind"] == "note"
    assert [each.purpose for each in player.asked] == ["compaction", "reply"]
    (turn,) = player.asked[1].request["messages"]
    note, asked = (block["text"] for block in turn["content"])
    assert note.endswith("NOTE")
    assert asked.startswith("WORD FOR WORD")


def test_what_was_said_while_tools_ran_is_kept_word_for_word_by_a_cut_after_them() -> None:
    log = log_with(policy="reset", at_tokens=5000)
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("one",))
    log.say("and hurry")
    log.result(call, "x" * 20_000)
    player = Player(log, worker(1, summary=says("NOTE"))).run()
    (cut,) = cuts(log)
    assert cut.data["text"].endswith("NOTE\n\nWhat was asked last, word for word:\n\nand hurry")
    assert len(player.asked[1].request["messages"]) == 1
    assert not log.transcript.wants_model(), "it was answered, and only once"


def test_a_request_that_is_too_long_for_the_model_has_the_window_cut() -> None:
    log = log_with(policy="compact")
    log.say("do the thing")
    work = worker(6, summary=says("SUMMARY"))

    def mind(effect: CallModel, player: Player) -> Replied | Failed:
        limit = 12_000
        return work(effect, player) if len(str(effect.request)) < limit else OVERLONG

    player = Player(log, mind).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    assert cuts(log)
    assert "session.error" not in [entry.type for entry in log.entries], "nothing went wrong"


@pytest.mark.parametrize(
    "answer",
    [
        Failed("model_request_failed_error", "no", retryable=False),
        OVERLONG,
        says(""),
        Replied("refusal", [{"type": "text", "text": "I will not"}]),
        runs("not asked for"),
    ],
)
def test_a_summary_that_cannot_be_had_is_done_without_and_the_text_says_so(
    answer: Replied | Failed,
) -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    player = Player(log, worker(9, summary=answer)).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    assert {cut.data["kind"] for cut in cuts(log)} == {"omitted"}
    assert "nobody summarised it" in cuts(log)[0].data["text"]
    assert "do the thing" in cuts(log)[0].data["text"]


def test_a_picture_that_nobody_answered_before_a_cut_is_told_by_where_it_stands() -> None:
    log = log_with(**COMPACT)
    data = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    content = [{"type": "image", "source": data}, {"type": "text", "text": "what is this?"}]
    log.add("user.message", {"content": content})
    asked = log.transcript.head
    text = stands_for(log.transcript, Cut(asked, "summary"), "SUMMARY")
    assert text.endswith(
        f"word for word:\n\n[an image, left out here; it is at position {asked} of the session's "
        "log]\n\nwhat is this?"
    )


def test_a_summary_whose_service_is_busy_is_waited_for_and_no_context_is_lost() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    busy = Failed("model_overloaded_error", "busy", retryable=True)
    player = Player(log, worker(9, summary=busy)).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "retries_exhausted"
    assert not cuts(log)
    log.say("again")
    Player(log, worker(9, summary=says("SUMMARY"))).run()
    assert [cut.data["kind"] for cut in cuts(log)][:1] == ["summary"]


def test_with_the_whole_policy_a_request_that_is_too_long_ends_the_turn_with_its_reason() -> None:
    log = log_with(policy="whole")
    log.say("do the thing")
    player = Player(log, lambda effect, player: OVERLONG).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "retries_exhausted"
    (error,) = [e for e in log.entries if e.type == "session.error"]
    assert error.data["error"]["type"] == "model_context_exceeded_error"


def test_a_task_that_alone_is_too_long_comes_to_an_end() -> None:
    log = log_with(policy="compact", window_tokens=4000)
    log.say("x" * 40_000)
    player = Player(log, lambda effect, player: OVERLONG).run()
    assert player.finished is not None
    assert len(player.asked) < 12


@pytest.mark.parametrize("policy", ["trim", "retrieve", "reset", "compact"])
def test_every_policy_that_cuts_ends_a_conversation_many_times_its_window(policy: str) -> None:
    limits: dict[str, Any] = {"at_tokens": 5000, "window_tokens": 8000}
    log = log_with(policy=policy, **limits)
    log.say("do the thing")
    player = Player(log, worker(60, summary=says("SUMMARY"))).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "end_turn"
    largest = max(len(str(each.request)) for each in player.asked if each.purpose == "reply")
    assert largest < 60_000, "the log has some 180,000"


def test_a_summary_whose_service_is_busy_is_told_and_waited_for_like_a_reply() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    busy = [Failed("model_overloaded_error", "busy", retryable=True, retry_after=2.0)] * 2
    work = worker(9, summary=says("SUMMARY"))

    def mind(effect: CallModel, player: Player) -> Replied | Failed:
        return busy.pop() if effect.purpose == "compaction" and busy else work(effect, player)

    player = Player(log, mind).run()
    errors = [e.data["error"] for e in log.entries if e.type == "session.error"]
    assert [error["retry_status"]["type"] for error in errors] == ["retrying"] * 2
    assert len(player.slept) == 2
    assert [cut.data["kind"] for cut in cuts(log)][:1] == ["summary"]


def test_a_summary_is_erased_by_redacting_its_cut_and_the_answer_it_was_made_of() -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    whole = Player(log, worker(9, summary=says("SUMMARY"))).run().log
    asked = [cut.data["model_request_start_id"] for cut in cuts(whole)]
    gone = {cut.position for cut in cuts(whole)} | {
        e.position
        for e in whole.entries
        if e.type == "span.model_request_end" and e.data["model_request_start_id"] in asked
    }
    assert len(gone) == 2 * len(cuts(whole)) > 0
    erased = [
        replace(e, data={}, redacted=True) if e.position in gone else e for e in whole.entries
    ]
    again = log_of(erased)
    again.say("and now?")
    first = Player(again, worker(9, summary=says("ANEW"))).run().asked[0]
    assert "SUMMARY" not in str(first.request)
    assert first.purpose == "compaction", "what the cut had taken is there again, and too large"
    assert "do the thing" in str(first.request)


@pytest.mark.parametrize(
    "kind",
    [
        "authentication_error",
        "billing_error",
        "permission_error",
        "model_not_found_error",
        "model_provider_error",
    ],
)
def test_a_key_or_provider_that_fails_ends_the_turn_and_no_context_is_lost(kind: str) -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    refused = Failed(kind, "no", retryable=False)
    player = Player(log, worker(9, summary=refused)).run()
    assert player.finished is not None
    assert player.finished.stop_reason == "retries_exhausted"
    (error,) = [e.data["error"] for e in log.entries if e.type == "session.error"]
    assert (error["type"], error["retry_status"]["type"]) == (kind, "exhausted")
    assert sum(each.purpose == "compaction" for each in player.asked) == 1, "not asked in vain"
    assert not cuts(log)
    log.say("the key is mended: go on")
    Player(log, worker(9, summary=says("SUMMARY"))).run()
    assert [cut.data["kind"] for cut in cuts(log)][:1] == ["summary"]


@pytest.mark.parametrize(
    "nothing", [says(""), Failed("model_empty_reply_error", "empty", retryable=True)]
)
def test_a_model_that_says_nothing_once_is_asked_for_the_summary_again(
    nothing: Replied | Failed,
) -> None:
    log = log_with(**COMPACT)
    log.say("do the thing")
    answers = [nothing]
    work = worker(9, summary=says("SUMMARY"))

    def mind(effect: CallModel, player: Player) -> Replied | Failed:
        return answers.pop() if effect.purpose == "compaction" and answers else work(effect, player)

    Player(log, mind).run()
    assert {cut.data["kind"] for cut in cuts(log)} == {"summary"}
