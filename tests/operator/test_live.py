"""Live output shows each word once, whichever of log and moments comes first."""

from carpal.operator import live as module
from carpal.operator.live import SETTLED
from carpal.v1 import orchestrator_pb2, types_pb2
from tests.operator.log import BRAIN, OPERATOR, OTHER_BRAIN, Log, finished_turn, text


class Live(module.Live):
    """With a clock that stands still unless a test says the time."""

    def moment(self, moment: orchestrator_pb2.WatchResponse, now: float = 0.0) -> str:
        return super().moment(moment, now)

    def watching(self, now: float = 0.0) -> None:
        super().watching(now)


def delta(request: str, words: str, *, thinking: bool = False) -> orchestrator_pb2.WatchResponse:
    moment = orchestrator_pb2.WatchResponse()
    moment.text.model_request_id = request
    moment.text.text = words
    moment.text.thinking = thinking
    return moment


def asked(live: Live) -> None:
    """The watch sees a model being asked, as it does when it was there before the reply."""
    moment = orchestrator_pb2.WatchResponse()
    moment.phase.name = "model"
    assert live.moment(moment) == ""


def output(call: str, offset: int, data: bytes) -> orchestrator_pb2.WatchResponse:
    moment = orchestrator_pb2.WatchResponse()
    moment.output.call_id = call
    moment.output.chunk.offset = offset
    moment.output.chunk.data = data
    return moment


def said(log: Log, words: str, request: str = "r") -> types_pb2.Event:
    return log.add("agent.message", text(words) | {"model_request_start_id": request})


def result(log: Log, words: str, source: str = BRAIN) -> types_pb2.Event:
    data = text(words) | {"tool_use_id": "c", "outcome": "ok", "exit_code": 0}
    return log.add("agent.tool_result", data, source=source)


def test_without_moments_the_log_says_it_all() -> None:
    live = Live(own=2)
    shown = "".join(live.event(event) for event in finished_turn().events)
    assert shown == (
        "I will run it.\n"
        "[shell: bash  $ make test]\n"
        "3 passed\nok\n"
        "[ok, 1.8 s]\n"
    )  # fmt: skip


def test_text_that_came_as_deltas_is_not_repeated_from_the_log() -> None:
    live, log = Live(), Log()
    asked(live)
    assert live.moment(delta("r", "Hel")) + live.moment(delta("r", "lo")) == "Hello"
    assert live.event(said(log, "Hello")) == "\n"


def test_text_whose_last_deltas_were_missed_is_completed_from_the_log() -> None:
    live, log = Live(), Log()
    asked(live)
    live.moment(delta("r", "Hel"))
    assert live.event(said(log, "Hello")) == "lo\n"
    assert live.moment(delta("r", "lo")) == ""


def test_a_reply_that_was_half_way_when_the_watch_began_is_shown_whole_and_once() -> None:
    live, log = Live(), Log()
    live.watching()
    assert live.moment(delta("r", "lo")) == ""
    assert live.event(said(log, "Hello")) == "Hello\n"


def test_a_reply_that_begins_once_the_watch_has_settled_is_shown_as_it_comes() -> None:
    live, log = Live(), Log()
    live.watching()
    live.event(log.add("span.model_request_start", event_id="r"))
    assert live.moment(delta("r", "Hel"), SETTLED) == "Hel"
    assert live.event(said(log, "Hello")) == "lo\n"


def test_a_reply_under_way_before_the_watch_began_is_not_shown_however_slow_it_is() -> None:
    live, log = Live(), Log()
    live.event(log.add("span.model_request_start", event_id="r"))
    live.watching()
    assert live.moment(delta("r", "lo"), SETTLED * 9) == ""
    assert live.event(said(log, "Hello")) == "Hello\n"


def test_a_watch_that_is_cut_and_begins_again_leaves_the_rest_to_the_log() -> None:
    live, log = Live(), Log()
    live.watching()
    asked(live)
    assert live.moment(delta("r", "He")) == "He"
    live.watching()
    assert live.moment(delta("r", "o")) == ""
    assert live.event(said(log, "Hello")) == "llo\n"


def test_deltas_that_do_not_fit_the_text_are_followed_by_the_whole_of_it() -> None:
    live, log = Live(), Log()
    asked(live)
    assert live.moment(delta("r", "Hlo")) == "Hlo"
    assert live.event(said(log, "Hello")) == "\nHello\n"


def test_deltas_of_two_messages_of_one_request_are_matched_to_both() -> None:
    live, log = Live(), Log()
    asked(live)
    live.moment(delta("r", "one"))
    live.moment(delta("r", "two"))
    assert live.event(said(log, "one")) == "\n"
    assert live.event(said(log, "two")) == ""


def test_what_came_of_a_try_that_failed_stands_apart_from_the_next_trys_text() -> None:
    live, log = Live(), Log()
    asked(live)
    shown = live.moment(delta("r1", "half a rep"))
    ended = {"model_request_start_id": "r1", "is_error": True, "error": {"message": "cut"}}
    shown += live.event(log.add("span.model_request_end", ended))
    shown += live.event(log.add("session.error", {"error": {"message": "cut off"}}))
    asked(live)
    shown += live.moment(delta("r2", "a whole "))
    shown += live.moment(delta("r1", "a late piece"))
    shown += live.moment(delta("r2", "reply"))
    shown += live.event(said(log, "a whole reply", "r2"))
    assert shown == "half a rep\n[error: cut off]\na whole reply\n"


def test_thinking_is_not_shown() -> None:
    live = Live()
    asked(live)
    assert live.moment(delta("r", "hm", thinking=True)) == ""
    assert live.moment(delta("r", "So")) == "So"


def test_output_that_came_live_is_not_repeated_and_the_result_adds_only_what_is_new() -> None:
    live, log = Live(), Log()
    live.moment(output("c", 0, b"1 passed\n"))
    assert live.event(result(log, "1 passed\n[2 background processes running]")) == (
        "[2 background processes running]\n[ok]\n"
    )


def test_output_replayed_by_the_next_driver_is_shown_once() -> None:
    live, log = Live(), Log()
    live.event(log.add("session.status_running"))
    assert live.moment(output("c", 0, b"abc")) == "abc"
    assert live.moment(output("c", 0, b"abc")) == ""
    assert live.moment(output("c", 0, b"abcdef")) == "def"
    assert live.event(result(log, "abcdef", OTHER_BRAIN)) == (
        "\n[brain-2 takes over from brain-1]\n[ok]\n"
    )


def test_output_with_a_gap_is_continued_from_the_result_which_alone_knows_how_long_it_is() -> None:
    live, log = Live(), Log()
    assert live.moment(output("c", 0, b"1\n2")) == "1\n2"
    assert live.moment(output("c", 100, b"9")) == (
        "\n[there is more output; its end comes with the result]\n"
    )
    assert live.moment(output("c", 101, b"9")) == ""
    kept = "".join(f"{number}\n" for number in range(200, 300))
    text = f"1\n2\n[1157823 bytes omitted]\n{kept}"
    shown = live.event(result(log, text))
    assert shown.startswith("[1157823 bytes omitted; 81 more lines in the log]\n280\n")
    assert shown.endswith("\n299\n[ok]\n")


def test_what_a_gap_hid_is_shown_whole_when_it_is_short() -> None:
    live, log = Live(), Log()
    live.moment(output("c", 0, b"1\n"))
    live.moment(output("c", 100, b"9"))
    assert live.event(result(log, "1\n2\n3\n")) == "2\n3\n[ok]\n"


def test_results_of_calls_that_run_together_say_which_they_are() -> None:
    live, log = Live(), Log()
    for call, path in (("c", "a.py"), ("d", "b.py")):
        use = {"name": "read", "input": {"file_path": path}, "hand": "shell"}
        live.event(log.add("agent.tool_use", use, event_id=call))
    assert live.event(result(log, "x")) == "x\n[shell: read  a.py → ok, 0.20 s]\n"
    last = text("y") | {"tool_use_id": "d", "outcome": "ok"}
    assert live.event(log.add("agent.tool_result", last)) == "y\n[ok, 0.20 s]\n"


def test_output_of_calls_that_run_together_does_not_share_a_line() -> None:
    live = Live()
    assert live.moment(output("c", 0, b"half")) == "half"
    assert live.moment(output("d", 0, b"other")) == "\nother"
    assert live.moment(output("d", 5, b" one\n")) == " one\n"


def test_an_interrupted_call_is_said_once() -> None:
    live, log = Live(), Log()
    live.event(log.add("agent.tool_use", {"name": "bash", "hand": "shell"}, event_id="c"))
    live.moment(output("c", 0, b"a\n"))
    assert live.event(log.add("user.interrupt", source=OPERATOR)) == ""
    end = text("a\n[cancelled]") | {"tool_use_id": "c", "outcome": "cancelled", "exit_code": 143}
    assert live.event(log.add("agent.tool_result", end)) == "[cancelled, exit code 143, 0.20 s]\n"


def test_an_interrupt_between_calls_is_said() -> None:
    assert Live().event(Log().add("user.interrupt", source=OPERATOR)) == "[interrupted]\n"


def test_a_hand_that_could_not_be_had_is_said_in_words() -> None:
    error = {"type": "hand_unavailable_error", "message": "hand 'gpu': no daemon offers it"}
    shown = Live().event(Log().add("session.error", {"error": error}))
    assert shown == "[hand 'gpu' could not be had: no daemon offers it]\n"


def test_an_escape_code_cut_between_chunks_does_not_slip_through() -> None:
    live = Live()
    assert live.moment(output("c", 0, b"a\x1b")) == "a"
    assert live.moment(output("c", 2, b"[3")) == ""
    assert live.moment(output("c", 4, b"1mb\r")) == "b"
    assert live.moment(output("c", 8, b"\nc")) == "\nc"
    asked(live)
    assert live.moment(delta("r", "x\x1b[")) == "\nx"
    assert live.moment(delta("r", "2Jy")) == "y"


def test_what_was_held_back_of_an_unfinished_code_is_shown_at_the_end() -> None:
    live, log = Live(), Log()
    live.moment(output("c", 0, b"a\x1b["))
    assert live.event(result(log, "a\x1b[")) == "\\x1b[\n[ok]\n"


def test_a_character_split_between_chunks_comes_out_whole() -> None:
    live = Live()
    assert live.moment(output("c", 0, "é".encode()[:1])) == ""
    assert live.moment(output("c", 1, "é".encode()[1:])) == "é"


def test_output_after_the_result_is_stale() -> None:
    live, log = Live(), Log()
    live.event(result(log, "done"))
    assert live.moment(output("c", 0, b"done")) == ""


def test_a_long_result_is_cut_and_counted() -> None:
    shown = Live().event(result(Log(), "\n".join(str(line) for line in range(100))))
    assert "\n19\n[60 more lines in the log]\n80\n" in shown


def test_bytes_that_are_no_text_do_not_harm_the_terminal() -> None:
    assert Live().moment(output("c", 0, b"\x1b]0;x\x07\xff")) == "\\x1b]0;x\\x07\ufffd"


def test_a_flood_is_shown_up_to_what_its_result_has_of_the_beginning_and_then_its_end() -> None:
    live, log = Live(), Log()
    log.add("agent.tool_use", {"name": "bash", "hand": "shell", "input": {"command": "yes"}})
    flood = b"y\n" * 1_000_000
    shown = live.moment(output("c", 0, flood[:50_000]))
    shown += live.moment(output("c", 50_000, flood[50_000:]))
    assert shown == "y\n" * (module.LIVE // 2) + (
        "[there is more output; its end comes with the result]\n"
    )
    assert live.moment(output("c", len(flood), flood)) == ""
    text_of_it = "y\n" * (module.LIVE // 2) + "[1868928 bytes omitted]\n" + "y\n" * 20
    assert live.event(result(log, text_of_it)) == (
        "[1868928 bytes omitted]\n" + "y\n" * 20 + "[ok]\n"
    )


def test_a_message_that_another_terminal_sends_is_a_line_and_the_viewers_own_is_none() -> None:
    live, log = Live(own=1), Log()
    assert live.event(log.add("user.message", text("fix it"), source=OPERATOR)) == ""
    asked(live)
    live.moment(delta("r", "I will"))
    assert (
        live.event(log.add("user.message", text("in green\nplease"), source=OPERATOR))
        == "\n[message from ann: in green (+1 line)]\n"
    )


def test_the_time_that_a_call_waits_for_a_person_is_none_of_its_own() -> None:
    live, log = Live(), Log()
    call = {"name": "bash", "hand": "shell", "evaluated_permission": "ask"}
    live.event(log.add("agent.tool_use", call, event_id="c"))
    word = {"tool_use_id": "c", "result": "allow"}
    live.event(log.add("user.tool_confirmation", word, source=BRAIN, after=1.0))
    live.event(log.add("user.tool_confirmation", word, source=OPERATOR, after=10.0))
    live.event(log.add("user.tool_confirmation", word, source=OPERATOR, after=0.5))
    shown = live.event(log.add("agent.tool_result", {"tool_use_id": "c"}, after=0.7))
    assert shown.endswith("[ok, 1.2 s]\n")
