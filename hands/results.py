"""Results as messages, and the sentences for calls that did not end by themselves."""

import hashlib

from carpal.layers import OWNER_STOPPED
from carpal.link_sizes import fitting_result
from carpal.v1 import hand_pb2 as pb
from hands.contract import Change, Outcome, Result

OUTCOMES: dict[str, pb.Outcome.ValueType] = {
    Outcome.OK: pb.OUTCOME_OK,
    Outcome.ERROR: pb.OUTCOME_ERROR,
    Outcome.CANCELLED: pb.OUTCOME_CANCELLED,
    Outcome.TIMED_OUT: pb.OUTCOME_TIMED_OUT,
    Outcome.INTERRUPTED: pb.OUTCOME_INTERRUPTED,
    Outcome.LOST: pb.OUTCOME_LOST,
}

CHANGES: dict[str, pb.FileChangeKind.ValueType] = {
    Change.CREATED: pb.FILE_CHANGE_KIND_CREATED,
    Change.CHANGED: pb.FILE_CHANGE_KIND_CHANGED,
    Change.REMOVED: pb.FILE_CHANGE_KIND_REMOVED,
}


OUT_OF_MEMORY = "out of memory: limit "
"""How the words begin by which a hand's end, or a call's, is its memory limit's."""


def to_message(result: Result, sequence: int) -> pb.Result:
    """The result as it goes into the journal and over the link, cut to what a link can carry."""
    message = pb.Result(
        outcome=OUTCOMES[result.outcome],
        content=clean(result.content),
        output_bytes=result.output_bytes,
        omitted_bytes=result.omitted_bytes,
        background=result.background,
        sequence=sequence,
        files=[
            pb.FileChange(
                path=clean(each.path),
                kind=CHANGES[each.kind],
                size=each.size,
                digest=each.digest,
                kept=each.kept,
            )
            for each in result.files
        ],
        files_omitted=result.files_omitted,
        files_unknown=result.files_unknown,
        out_of_memory=result.out_of_memory,
        attachments=[
            pb.Attachment(
                digest=each.digest,
                media_type=clean(each.media_type),
                size=each.size,
                name=clean(each.name),
            )
            for each in result.attachments
        ],
    )
    if result.exit_code is not None:
        message.exit_code = result.exit_code
    for into, seconds in ((message.started, result.started), (message.elapsed, result.elapsed)):
        into.seconds, into.nanos = divmod(int(seconds * 1e9), 1_000_000_000)
    return fitting_result(message)


def clean(text: str) -> str:
    """`text` without what UTF-8 cannot hold: file names may be any bytes."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")


def input_digest(tool: str, given: bytes) -> bytes:
    """SHA-256 over name, NUL and input: whether a call_id comes with the same content."""
    return hashlib.sha256(tool.encode() + b"\0" + given).digest()


def lost(reason: str, *, began: bool) -> Result:
    """The hand died around the call, or before it began."""
    if began:
        text = f"[lost: the hand is gone ({reason}); this call may have partly happened]"
    else:
        text = f"[lost: the hand is gone ({reason}); this call did not start]"
    return Result(Outcome.LOST, text, out_of_memory=OUT_OF_MEMORY in reason)


def released(*, dead: bool, began: bool) -> Result:
    """The hand was released around the call, or before it began."""
    if not began:
        return cancelled("before it started, as its hand was released")
    if dead:
        return cancelled("as its hand was released")
    return interrupted(
        "its hand was released; what it started could not be ended, and may still run"
    )


def stopped(*, began: bool) -> Result:
    """The machine's owner stopped the hand around the call, or before it began."""
    if began:
        return interrupted(f"{OWNER_STOPPED} its hand")
    return cancelled(f"before it started, as {OWNER_STOPPED} its hand")


def interrupted(reason: str, *, began: bool = True) -> Result:
    """The daemon or the machine died around the call; or something failed before it began."""
    happened = "may have partly happened" if began else "did not start"
    text = f"[interrupted: {reason}; this call {happened}]"
    return Result(Outcome.INTERRUPTED, text)


def cancelled(when: str) -> Result:
    """Nothing of the call happened, or all that did was stopped."""
    return Result(Outcome.CANCELLED, f"[cancelled {when}]")


def freed(outcome: str) -> pb.Result:
    """What is left of an acknowledged call."""
    text = "[the output of this call was acknowledged and is no longer kept]"
    return pb.Result(outcome=OUTCOMES[outcome], content=text)
