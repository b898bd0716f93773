"""The whole conversation reaches the model in the order it lived it."""

from tests.brain.context.chats import messages
from tests.brain.logs import Log


def texts(log: Log) -> list[tuple[str, list[str]]]:
    """Roles and, per block, its text or what it is about."""
    return [
        (
            turn["role"],
            [
                block.get("text") or block.get("tool_use_id") or block.get("id")
                for block in turn["content"]
            ],
        )
        for turn in messages(log.transcript)
    ]


def test_messages_alternate_and_calls_are_followed_by_their_results() -> None:
    log = Log()
    log.say("fix it")
    a, b = log.reply(log.ask(), "looking", calls=("one", "two"))
    log.result(b)
    log.result(a)
    log.reply(log.ask(), "fixed")
    assert texts(log) == [
        ("user", ["fix it"]),
        ("assistant", ["looking", a, b]),
        ("user", [b, a]),
        ("assistant", ["fixed"]),
    ]


def test_what_was_said_while_tools_ran_comes_after_their_results() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("one",))
    log.say("and hurry")
    log.result(call)
    assert texts(log)[-1] == ("user", [call, "and hurry"])


def test_what_was_said_while_the_model_wrote_comes_after_its_reply() -> None:
    log = Log()
    log.say("first")
    request = log.ask()
    log.say("second")
    log.reply(request, "answer to first")
    assert texts(log) == [
        ("user", ["first"]),
        ("assistant", ["answer to first"]),
        ("user", ["second"]),
    ]


def test_a_call_the_model_never_finished_leaves_nothing() -> None:
    log = Log()
    log.say("go")
    log.ask()
    log.reply(log.ask(), "hi")
    assert texts(log) == [("user", ["go"]), ("assistant", ["hi"])]


def test_a_failed_result_says_so_and_another_hands_tool_keeps_its_prefix() -> None:
    log = Log()
    log.say("go")
    (call,) = log.reply(log.ask(), calls=("one",), hand="build")
    log.result(call, "[interrupted] may have partly happened", outcome="interrupted")
    turns = messages(log.transcript)
    assert turns[1]["content"][0]["name"] == "build__bash"
    assert turns[2]["content"][0]["is_error"] is True


def test_thinking_goes_back_as_the_api_gave_it() -> None:
    log = Log()
    log.say("go")
    request = log.ask()
    block = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    log.add("agent.thinking", {"content": [block], "model_request_start_id": request})
    log.reply(request, "done")
    assert messages(log.transcript)[1]["content"][0] == block
