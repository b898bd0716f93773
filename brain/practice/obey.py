"""Instructions: each `$ ` line of the last user message becomes one `bash` call.

One call a turn, in order, then a closing text that reports what came back.
Everything follows from the conversation; nothing is remembered.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from brain.practice.answer import Answer, ToolCall
from brain.practice.blocks import Block, text_of
from brain.practice.request import Conversation

WHAT_I_AM = "I am the practice model: a local server that speaks the Messages API, not a model."
HELP = (
    f"{WHAT_I_AM} I understand nothing of what you wrote. I obey lines that start with '$ ': "
    "each becomes one bash call, in order, and then I report what came back. "
    "'@NAME $ command' calls the hand NAME. I also play scripts "
    "(carpal practice serve --script FILE). For Claude, set ANTHROPIC_API_KEY."
)
TOOL = "bash"
_LINE = re.compile(r"(?:@(?P<hand>[A-Za-z0-9_-]+) )?\$ (?P<command>.*\S)\s*\Z")
_SHOWN_LINES = 3
_SHOWN_CHARACTERS = 200
_SHOWN_CALLS = 50


@dataclass(frozen=True)
class Instruction:
    """One line to obey."""

    line: str
    hand: str
    """Empty for the default one."""
    command: str

    @property
    def tool(self) -> str:
        """The tool that runs it."""
        return f"{self.hand}__{TOOL}" if self.hand else TOOL


def instructions(text: str) -> list[Instruction]:
    """The lines of `text` that are instructions, in order."""
    return [
        Instruction(line.strip(), found["hand"] or "", command)
        for line in text.splitlines()
        if (found := _LINE.match(line)) and (command := found["command"])
    ]


def obey(conversation: Conversation) -> Answer:
    """What the practice model says next, when no script says it."""
    todo = instructions(conversation.last_user_text)
    if not todo:
        return Answer(text=HELP)
    done = list(_results(conversation))
    remaining = todo[len(done) :]
    if missing := next((item for item in remaining if not _offered(item, conversation)), None):
        return Answer(text="\n".join([_not_offered(missing, conversation), *_report(todo, done)]))
    if remaining:
        name = _offered(remaining[0], conversation)
        call = ToolCall(name=name, input={"command": remaining[0].command})
        return Answer(tools=[call])
    return Answer(text="\n".join([WHAT_I_AM, *_report(todo, done)]))


def _offered(item: Instruction, conversation: Conversation) -> str:
    """The tool's name as it is offered; under Claude Code all have a prefix. Empty if it is not."""
    names = (item.tool, f"mcp__hands__{item.tool}")
    return next((name for name in names if name in conversation.tools), "")


def _results(conversation: Conversation) -> Iterator[Block]:
    """Results of the calls made since the user last spoke, in order."""
    for turn in conversation.turns[conversation.asked + 1 :]:
        if turn.role == "user":
            yield from turn.of("tool_result")


def _not_offered(item: Instruction, conversation: Conversation) -> str:
    offered = ", ".join(sorted(conversation.tools)) or "none"
    hint = ""
    if item.hand and TOOL in conversation.tools and not _has_tools(item.hand, conversation):
        hint = (
            f" If '{item.hand}' is the session's default hand: its tools have no prefix, so its "
            f"lines are written without '@{item.hand}'."
        )
    return (
        f"{WHAT_I_AM} I was asked for '{item.line}', but no tool named '{item.tool}' was offered "
        f"to me, so I stop there. Tools offered: {offered}.{hint}"
    )


def _has_tools(hand: str, conversation: Conversation) -> bool:
    return any(tool.startswith(f"{hand}__") for tool in conversation.tools)


def _report(todo: list[Instruction], done: list[Block]) -> Iterator[str]:
    """How many calls, how many errors, and how each ended."""
    if not done:
        return
    failed = sum(bool(result.get("is_error")) for result in done)
    calls = "1 call" if len(done) == 1 else f"{len(done)} calls"
    errors = "no errors" if not failed else "1 error" if failed == 1 else f"{failed} errors"
    yield f"I made {calls}, with {errors}:"
    for item, result in list(zip(todo, done, strict=False))[:_SHOWN_CALLS]:
        yield f"{item.line}{'  (error)' if result.get('is_error') else ''}"
        lines = [line for line in text_of(result.get("content")).splitlines() if line.strip()]
        for line in lines[-_SHOWN_LINES:] or ["(no output)"]:
            yield f"    {line.rstrip()[:_SHOWN_CHARACTERS]}"
    if len(done) > _SHOWN_CALLS:
        yield f"and {len(done) - _SHOWN_CALLS} more."
