"""What a call's outcome looks like in the log. Pure."""

import json
from typing import Any

from brain.session.entries import Call, Hand, New
from brain.text import clean, shorten
from carpal import layers
from carpal.layers import Layer, failure
from carpal.status import Reason
from carpal.v1 import hand_pb2

TEXT_BYTES = 900_000
"""Of a result's text and files as JSON: what a hand says must fit in an event, whatever it says."""
_FILES_BYTES = 400_000
"""Of the files among it."""
NO_OUTPUT = "[no output]"
"""Stands for a text that is empty: the Messages API refuses a conversation that holds one."""
_ATTACHMENTS_MAX = 20
_WORDS_MAX = 255
"""Bytes of an attachment's name and media type."""
_DIGEST = 32
_OUTCOMES = {
    hand_pb2.OUTCOME_OK: "ok",
    hand_pb2.OUTCOME_ERROR: "error",
    hand_pb2.OUTCOME_CANCELLED: "cancelled",
    hand_pb2.OUTCOME_TIMED_OUT: "timed_out",
    hand_pb2.OUTCOME_INTERRUPTED: "interrupted",
    hand_pb2.OUTCOME_LOST: "lost",
}
Failure = tuple[Layer, str]
"""What failed, and a `Reason` or one of `layers.CAUSES`."""
_CHANGES = {
    hand_pb2.FILE_CHANGE_KIND_CREATED: "created",
    hand_pb2.FILE_CHANGE_KIND_CHANGED: "changed",
    hand_pb2.FILE_CHANGE_KIND_REMOVED: "removed",
}


def result_event(call: Call, hand: Hand, result: hand_pb2.Result) -> New:
    """The `agent.tool_result` of a result that came from the hand."""
    text = result.content
    if result.outcome not in _OUTCOMES:
        text = (
            f"[interrupted] the hand says that it ended, by an outcome ({result.outcome}) that is "
            f"not known here; the call may have partly happened\n{text}"
        )
    data = _data(call, word(result.outcome), text, hand, result)
    return New("agent.tool_result", data | _by_hand(result))


def late_event(call: Call, hand: Hand, result: hand_pb2.Result) -> New:
    """The `hand.late_result` of a call that was given up, and of which its hand now tells."""
    ended = word(result.outcome)
    was = (call.result or {}).get("outcome", "interrupted")
    text = (
        f"[late result of call {call.call_id} ({call.name}), which was settled as {was} while its "
        f"hand was out of reach; in truth it ended as {ended}]\n{result.content or NO_OUTPUT}"
    )
    return New("hand.late_result", _data(call, ended, text, hand, result) | _by_hand(result))


def word(outcome: hand_pb2.Outcome.ValueType) -> str:
    """An outcome as the log says it; one that is unset or not known here says nothing for sure."""
    return _OUTCOMES.get(outcome, "interrupted")


def settled(
    call: Call,
    outcome: str,
    text: str,
    hand: Hand | None = None,
    *,
    given_up: bool = False,
    failed: Failure | None = None,
) -> New:
    """The `agent.tool_result` of a call that has no result of its own.

    `given_up`: its hand may still tell what became of it. `failed`: the layer that did, and the
    cause; None where nothing failed, as a person decided.
    """
    data = _data(call, outcome, f"[{outcome}] {text}", hand)
    if failed is not None:
        data |= failure(*failed)
    if given_up:
        data["given_up"] = True
    return New("agent.tool_result", data)


def own(call: Call, outcome: str, text: str) -> New:
    """The `agent.tool_result` of one of the brain's own tools: what it says can be had again."""
    failed = {} if outcome == "ok" else {"layer": str(Layer.HARNESS)}
    return New("agent.tool_result", _data(call, outcome, text, None) | {"again": True} | failed)


def of_server(call: Call, text: str, attachments: list[dict[str, Any]], *, failed: bool) -> New:
    """The `agent.tool_result` of what an MCP server answered; `failed`: its tool said so itself.

    `attachments`: what it has attached, each `blob, media_type, size, name`.
    """
    told = [
        each
        | {name: shorten(clean(str(each[name])), _WORDS_MAX) for name in ("media_type", "name")}
        for each in attachments
    ]
    data = _data(call, "error" if failed else "ok", text, None)
    data |= {"attachments": told} if told else {}
    return New("agent.tool_result", data | ({"layer": str(Layer.VAULT)} if failed else {}))


def gone(
    call: Call, hand: Hand, why: str, *, sent: bool, failed: Failure, given_up: bool = False
) -> New:
    """The `agent.tool_result` of a call whose hand is gone; `sent` when it may have begun."""
    happened = "the call may have partly happened" if sent else "the call did not run"
    text = f"hand {hand.name!r} is gone ({why}); {happened}"
    return settled(call, "lost", text, hand, given_up=given_up, failed=failed)


def parted(call: Call) -> New:
    """The `agent.tool_result` of a call that was open where the log was forked."""
    why = "the call belongs to the session that this one was forked from, and may go on there"
    return settled(call, "not_inherited", why)


def not_run(call_id: str, why: str, cause: str) -> New:
    """The `agent.tool_result` of a call that was never sent to a hand, for what the model said.

    Of the owner's word, which the model may not have known, the machine's layer.
    """
    data = _result(call_id, "error", f"[error] not run: {why}")
    layer = Layer.DAEMON if cause == Reason.POLICY_FORBIDS else Layer.MODEL
    return New("agent.tool_result", data | failure(layer, cause))


def _by_hand(result: hand_pb2.Result) -> dict[str, str]:
    """What failed, of a result that came from the hand; nothing when it ran or was cancelled."""
    ended = word(result.outcome)
    if ended in ("ok", "cancelled"):
        return {}
    # Of itself a hand never says that a call was interrupted: its daemon does, which was restarted.
    layer = Layer.DAEMON if ended == "interrupted" else Layer.HAND
    if result.out_of_memory:
        return failure(Layer.HAND, layers.OUT_OF_MEMORY)
    if result.outcome not in _OUTCOMES:
        return failure(Layer.DAEMON, layers.OUTCOME_UNKNOWN)
    return {"layer": str(layer)}


def _data(
    call: Call,
    outcome: str,
    text: str,
    hand: Hand | None,
    result: hand_pb2.Result | None = None,
) -> dict[str, Any]:
    files = {} if result is None else _files(result) | _attachments(result)
    room = TEXT_BYTES - (len(json.dumps(files)) if files else 0)
    data = _result(call.call_id, outcome, text, room)
    if hand is not None:
        data["hand_id"] = hand.hand_id
    if result is not None:
        data["sequence"] = result.sequence
        if result.HasField("exit_code"):
            data["exit_code"] = result.exit_code
    return data | files


def _files(result: hand_pb2.Result) -> dict[str, Any]:
    """What the call did to files, where its hand follows that."""
    if result.files_unknown:
        return {"files_unknown": True}
    files: list[dict[str, Any]] = []
    room, omitted = _FILES_BYTES, result.files_omitted
    for change in result.files:
        # Of a kind that is not known here, what is sure is that the file is another now.
        kind = _CHANGES.get(change.kind, "changed")
        told: dict[str, Any] = {"path": clean(change.path), "kind": kind}
        if change.kind != hand_pb2.FILE_CHANGE_KIND_REMOVED:
            told["size"] = change.size
            if change.digest:
                told["sha256"] = change.digest.hex()
            if change.digest and change.kept:
                told["blob"] = f"sha256:{change.digest.hex()}"
        room -= len(json.dumps(told))
        if room < 0:
            omitted += 1
        else:
            files.append(told)
    data: dict[str, Any] = {"files": files} if files else {}
    if omitted:
        data["files_omitted"] = omitted
    return data


def _attachments(result: hand_pb2.Result) -> dict[str, Any]:
    """What the result has attached, by the blobs that its daemon put."""
    told = [
        {
            "blob": f"sha256:{each.digest.hex()}",
            "media_type": shorten(clean(each.media_type), _WORDS_MAX),
            "size": each.size,
            "name": shorten(clean(each.name), _WORDS_MAX),
        }
        for each in result.attachments[:_ATTACHMENTS_MAX]
        if len(each.digest) == _DIGEST
    ]
    return {"attachments": told} if told else {}


def _result(call_id: str, outcome: str, text: str, room: int = TEXT_BYTES) -> dict[str, Any]:
    return {
        "tool_use_id": call_id,
        "content": [{"type": "text", "text": shorten(clean(text), room) or NO_OUTPUT}],
        "is_error": outcome != "ok",
        "outcome": outcome,
    }
