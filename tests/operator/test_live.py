"""Live output shows each word once, whichever of log and moments comes first."""

from carpal.operator.live import Live
from carpal.v1 import orchestrator_pb2, types_pb2
from tests.operator.log import BRAIN, OTHER_BRAIN, Log, finished_turn, text


def delta(request: str, words: str, *, thinking: bool = False) -> orchestrator_pb2.WatchResponse:
    moment = orchestrator_pb2.WatchResponse()
    moment.text.model_request_id = request
    moment.text.text = words
    moment.text.thinking = thinking
    return moment


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
    live = Live()
    shown = "".join(live.event(event) for event in finished_turn().events)
    assert shown == (
        "I will run it.\n"
        "[shell: bash  $ make test]\n"
        "3 passed\nok\n"
        "[ok, exit 0, 1.8 s]\n"
    )  # fmt: skip


def test_text_that_came_as_deltas_is_not_repeated_from_the_log() -> None:
    live, log = Live(), Log()
    assert live.moment(delta("r", "Hel")) + live.moment(delta("r", "lo")) == "Hello"
    assert live.event(said(log, "Hello")) == "\n"


def test_text_whose_last_deltas_were_missed_is_completed_from_the_log() -> None:
    live, log = Live(), Log()
    live.moment(delta("r", "Hel"))
    assert live.event(said(log, "Hello")) == "lo\n"
    assert live.moment(delta("r", "lo")) == ""


def test_text_whose_first_deltas_were_missed_is_shown_whole() -> None:
    live, log = Live(), Log()
    live.moment(delta("r", "lo"))
    assert live.event(said(log, "Hello")) == "\nHello\n"


def test_deltas_of_two_messages_of_one_request_are_matched_to_both() -> None:
    live, log = Live(), Log()
    live.moment(delta("r", "one"))
    live.moment(delta("r", "two"))
    assert live.event(said(log, "one")) == "\n"
    assert live.event(said(log, "two")) == ""


def test_thinking_is_not_shown() -> None:
    assert Live().moment(delta("r", "hm", thinking=True)) == ""


def test_output_that_came_live_is_not_repeated_and_the_result_adds_only_what_is_new() -> None:
    live, log = Live(), Log()
    live.moment(output("c", 0, b"1 passed\n"))
    assert live.event(result(log, "1 passed\n[2 background processes running]")) == (
        "[2 background processes running]\n[ok, exit 0]\n"
    )


def test_output_replayed_by_the_next_driver_is_shown_once() -> None:
    live, log = Live(), Log()
    live.event(log.add("session.status_running"))
    assert live.moment(output("c", 0, b"abc")) == "abc"
    assert live.moment(output("c", 0, b"abc")) == ""
    assert live.moment(output("c", 0, b"abcdef")) == "def"
    assert live.event(result(log, "abcdef", OTHER_BRAIN)) == (
        "\n[brain-2 takes over from brain-1]\n[ok, exit 0]\n"
    )


def test_output_that_was_missed_is_counted() -> None:
    live = Live()
    live.moment(output("c", 0, b"ab"))
    assert live.moment(output("c", 10, b"cd")) == "\n[8 bytes not shown]\ncd"


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
    assert "\n39\n[60 more lines in the log]\n" in shown
    assert "\n40\n" not in shown


def test_bytes_that_are_no_text_do_not_harm_the_terminal() -> None:
    assert Live().moment(output("c", 0, b"\x1b]0;x\x07\xff")) == "\\x1b]0;x\\x07\ufffd"
