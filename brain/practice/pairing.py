"""A request's messages as turns, and whether each tool call has its one result.

Consecutive messages of one role make one turn, as in the API. The rules
here are the ones a broken transcript trips over.
"""

from dataclasses import dataclass, field
from typing import Literal

from brain.practice.blocks import Block
from brain.practice.refusal import Refusal
from carpal import browser_toolset


@dataclass(frozen=True)
class Message:
    """One message of a request, its content as blocks."""

    role: Literal["user", "assistant", "system"]
    blocks: list[Block]


@dataclass
class Turn:
    """What one side said, until the other spoke."""

    role: Literal["user", "assistant"]
    message: int
    """Index of its first message in the request."""
    blocks: list[Block] = field(default_factory=list)

    def of(self, kind: str) -> list[Block]:
        """Its blocks of one type, in order."""
        return [block for block in self.blocks if block["type"] == kind]

    def text(self) -> str:
        """Its text blocks, one a line."""
        return "\n".join(block["text"] for block in self.of("text"))


def to_turns(messages: list[Message]) -> list[Turn]:
    """Merge messages into turns; `system` messages belong to none.

    Raises Refusal when they do not open with the user, do not leave the
    assistant to speak next, or break the pairing of calls and results.
    """
    turns: list[Turn] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            if not turns or turns[-1].role != "user":
                raise Refusal(f"messages.{index}: a `system` message must follow a user message")
            continue
        if not turns or turns[-1].role != message.role:
            turns.append(Turn(message.role, index))
        turns[-1].blocks += message.blocks
    if not turns:
        raise Refusal("messages: at least one message is required")
    if turns[0].role != "user":
        raise Refusal('messages: first message must use the "user" role')
    _check_calls(turns)
    if turns[-1].role == "assistant":
        raise Refusal(
            "This model does not support assistant message prefill. "
            "The conversation must end with a user message."
        )
    return turns


def _check_calls(turns: list[Turn]) -> None:
    seen: set[str] = set()
    open_calls: dict[str, Block] = {}
    for turn in turns:
        if turn.role == "user":
            _check_results(turn, open_calls)
            open_calls = {}
            continue
        if turn.blocks[-1]["type"] == "thinking":
            raise Refusal(
                f"messages.{turn.message}: The final block in an assistant message "
                "cannot be `thinking`."
            )
        calls = turn.of("tool_use")
        open_calls = {block["id"]: block for block in calls}
        for call in (block["id"] for block in calls):
            if call in seen:
                raise Refusal(f"messages.{turn.message}: `tool_use` ids must be unique: {call}")
            seen.add(call)
    if open_calls:
        raise _unanswered(turns[-1].message, list(open_calls))


def _check_results(turn: Turn, open_calls: dict[str, Block]) -> None:
    """A user turn that follows calls must open with one result for each."""
    answered: list[str] = []
    leading = True
    for block in turn.blocks:
        if block["type"] != "tool_result":
            leading = False
            continue
        call = block["tool_use_id"]
        if call not in open_calls:
            raise Refusal(
                f"messages.{turn.message}: unexpected `tool_use_id` found in `tool_result` "
                f"blocks: {call}. Each `tool_result` block must have a corresponding `tool_use` "
                "block in the previous message."
            )
        if call in answered:
            raise Refusal(
                f"messages.{turn.message}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {call}"
            )
        _check_member(block, open_calls[call], f"messages.{turn.message}")
        if leading:
            answered.append(call)
    if missing := [call for call in open_calls if call not in answered]:
        raise _unanswered(turn.message - 1, missing)


def _check_member(result: Block, call: Block, site: str) -> None:
    """The result of a toolset's member is that toolset's, and tells of the tabs where it must."""
    if result.get("toolset_name") != call.get("toolset_name"):
        raise Refusal(
            f"{site}: `toolset_name` of the `tool_result` for {call['id']} must be that of its "
            "`tool_use`"
        )
    content = result.get("content")
    kinds = [each["type"] for each in content] if isinstance(content, list) else []
    if kinds.count("browser_state") and (result.get("is_error") or not call.get("toolset_name")):
        raise Refusal(f"{site}: `browser_state` is not permitted in this `tool_result`")
    tabs = call.get("toolset_name") and call["name"] in browser_toolset.TABS
    if tabs and not result.get("is_error") and kinds != ["browser_state"]:
        raise Refusal(f"{site}: {call['name']} must be answered by exactly one `browser_state`")


def _unanswered(message: int, calls: list[str]) -> Refusal:
    return Refusal(
        f"messages.{message}: `tool_use` ids were found without `tool_result` blocks immediately "
        f"after: {', '.join(calls)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message, before any other content."
    )
