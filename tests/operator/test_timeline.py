"""The timeline tells a log in one line per happening."""

from inline_snapshot import snapshot

from carpal.operator.timeline import call_summary, duration, shorten, timeline
from tests.operator.log import OPERATOR, OTHER_BRAIN, Log, finished_turn, text


def test_a_finished_turn_reads_as_a_story() -> None:
    assert "\n".join(str(line) for line in timeline(finished_turn().events)) == snapshot("""\
    0.000  created         fixer, model claude-sonnet-5-5, hands shell=process
    0.100  message         fix it
    0.200  brain           brain-1 takes the session
    0.200  running
    0.300  model asked     m
    0.400  says            I will run it.
    0.500  tool call       shell: bash  $ make test
    0.600  model answered  calls tools, 10 tokens in, 4 out (0.30 s)
    0.700  hand asked for  shell (process) from box
    0.800  hand ready      shell on box (0.10 s)
    2.300  tool result     ok: 3 passed (+1 line) (1.8 s)
    2.400  idle            turn ended\
""")


def test_a_takeover_is_a_line_of_its_own() -> None:
    log = Log()
    log.add("session.status_running")
    log.add("agent.tool_use", {"name": "bash", "hand": "shell"}, event_id="sevt_call")
    log.add("agent.tool_result", {"tool_use_id": "sevt_call"}, source=OTHER_BRAIN, after=10.0)
    lines = timeline(log.events)
    assert [line.what for line in lines] == [
        "brain", "running", "tool call", "takeover", "tool result",
    ]  # fmt: skip
    assert lines[3].content == "brain-2 takes over from brain-1"
    assert lines[4].took == 10.0


def test_a_person_in_a_hand_is_told_and_is_no_takeover() -> None:
    log = Log()
    log.add("session.status_running")
    about = {"tunnel_id": "t", "hand_id": "h", "name": "shell"}
    entered = {**about, "by": "spiffe://x/operator/ada", "kind": "shell", "control": True}
    log.add("hand.entered", entered, source=OTHER_BRAIN)
    log.add("hand.left", {**about, "because": "they left"}, source=OTHER_BRAIN, after=10.0)
    log.add("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    lines = timeline(log.events)
    assert [line.what for line in lines] == [
        "brain", "running", "person enters", "person left", "idle",
    ]  # fmt: skip
    assert lines[2].content == "shell: ada, shell and has control"
    assert (lines[3].content, lines[3].took) == ("shell because: they left", 10.0)


def test_a_hand_with_tools_of_its_own_is_shown_with_them_and_with_what_is_otherwise() -> None:
    log = Log()
    about = {"hand_id": "h", "name": "files", "daemon": "box"}
    tools = [{"name": "read"}, {"name": "write"}]
    changed = {"gone": ["list"], "new": ["read", "write"]}
    log.add("hand.provisioned", about | {"tools": tools, "tools_changed": changed})
    said = "files on box; its tools: read, write; not those it had: gone list; new read, write"
    assert timeline(log.events)[-1].content == said


def test_an_unknown_type_is_shown_as_it_is() -> None:
    log = Log()
    log.add("browser.opened", {"url": "http://x"})
    assert (
        str(timeline(log.events)[-1]).split(maxsplit=1)[1] == 'browser.opened  {"url": "http://x"}'
    )


def test_events_with_data_of_the_wrong_shape_still_have_a_line() -> None:
    log = Log()
    for kind in (
        "session.updated", "session.status_idle", "session.error", "user.message",
        "context.tools", "span.model_request_start", "span.model_request_end", "agent.tool_use",
        "agent.tool_result", "hand.provisioned", "hand.lost", "hand.late_result",
    ):  # fmt: skip
        log.add(kind, {"content": 3, "stop_reason": [], "error": "x", "tools": 1, "hands": "y"})
        log.add(kind).data = b"\xff"
    assert len(timeline(log.events)) == 1 + len(log.events)


def test_a_redacted_event_says_why_it_is_empty() -> None:
    log = Log()
    event = log.add("user.message", text("my name is"))
    event.data = b""
    event.redaction.reason = "a name"
    assert timeline(log.events)[-1].content == "user.message: a name"


def test_long_content_is_cut_and_its_other_lines_are_counted() -> None:
    assert shorten("\n\n one \ntwo\nthree\n") == "one (+2 lines)"
    assert shorten("one\ntwo") == "one (+1 line)"
    assert shorten("x" * 200, 10) == "x" * 9 + "…"
    assert len(shorten("x" * 200 + "\ny", 30)) == 30
    assert shorten(" \n") == ""


def test_durations_are_short() -> None:
    assert [duration(each) for each in (0.034, 4.56, 125.9)] == ["0.03 s", "4.6 s", "2 min 5 s"]


def test_a_call_is_told_by_what_matters_most_of_its_input() -> None:
    for name, given, said in (
        ("bash", {"command": "ls", "timeout_ms": 9}, "$ ls"),
        ("read", {"file_path": "f", "view_range": [1, 2]}, "f"),
        ("memory", {"command": "view", "path": "/memories"}, "view /memories"),
        ("memory", {"command": "rename", "old_path": "a", "new_path": "b"}, "rename a b"),
    ):
        data = {"hand": "h", "name": name, "input": given}
        assert call_summary(data) == f"h: {name}  {said}"


def test_a_cut_of_the_window_reads_as_one_and_ends_no_turn() -> None:
    log = Log()
    log.add("context.harness", {"name": "tool_loop", "version": "2"})
    start = {"model": "m", "purpose": "compaction", "covers": 7}
    log.add("span.model_request_start", start, event_id="r")
    said = {"content": [], "stop_reason": "end_turn"}
    end = {"model_request_start_id": "r", "stop_reason": "end_turn", "reply": said}
    log.add("span.model_request_end", end, after=2.0)
    cut = {"kind": "summary", "through": 7, "text": "S", "state": {}, "tokens_before": 9000}
    log.add("agent.thread_context_compacted", cut)
    log.add("agent.thread_context_compacted", {"kind": "omitted", "through": 9, "text": "S"})
    assert "\n".join(str(line) for line in timeline(log.events)) == snapshot("""\
    0.000  brain           brain-1 takes the session
    0.000  harness         tool_loop 2
    0.100  model asked     m for a summary
    2.100  model answered  what it was asked, 0 tokens in, 0 out (2.0 s)
    2.200  window cut      a summary stands for positions 1 to 7 (9000 tokens before)
    2.300  window cut      left out, and nobody summarised it: positions 1 to 9\
""")


def test_the_time_that_a_call_waits_for_a_person_is_none_of_its_own() -> None:
    log = Log()
    call = {"name": "bash", "hand": "shell", "evaluated_permission": "ask"}
    log.add("agent.tool_use", call, event_id="c")
    word = {"tool_use_id": "c", "result": "allow"}
    log.add("user.tool_confirmation", word, source=OPERATOR, after=11.0)
    log.add("user.tool_confirmation", word, source=OPERATOR, after=0.5)
    log.add("agent.tool_result", {"tool_use_id": "c", "outcome": "ok"}, after=0.7)
    assert timeline(log.events)[-1].took == 1.2
