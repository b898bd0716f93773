"""What is too large for the control stream never enters it. Pure.

One message that a stream cannot carry ends it, and asked for again on the
next link it would end that one too, for ever. So such a request is refused
where it is made, and such a reply says in its place what became of it.
"""

from carpal.errors import CarpalError, refuse, to_status
from carpal.status import Reason
from carpal.v1 import hand_pb2
from carpal.v1 import orchestrator_pb2 as pb

MESSAGE_MAX = 2 * 1024 * 1024
"""Bytes of one message: a tool's largest input (1 MiB) and room. gRPC's own limit is above it."""
_KEPT = 64 * 1024
"""Bytes kept of each end of a result that is too large."""


def too_large(what: str, size: int) -> CarpalError:
    """The refusal."""
    return refuse(
        Reason.MESSAGE_TOO_LARGE,
        f"{what} has {size} bytes, and a message on the link at most {MESSAGE_MAX}",
    )


def fitting(reply: pb.Reply) -> pb.Reply:
    """The reply, or what stands for it when it is too large.

    A result keeps its outcome, which is true, and the ends of its text.
    Output counts as dropped. Anything else becomes MESSAGE_TOO_LARGE.
    """
    size = reply.ByteSize()
    if size <= MESSAGE_MAX:
        return reply
    smaller = pb.Reply(request_id=reply.request_id, last=reply.last, attached=reply.attached)
    step = reply.execute.WhichOneof("step") if reply.HasField("execute") else None
    if step == "result":
        smaller.execute.result.CopyFrom(_cut(reply.execute.result))
    elif step == "output":
        smaller.execute.output.CopyFrom(_left_out(reply.execute.output))
    else:
        smaller.last = True
        smaller.status.CopyFrom(to_status(too_large("the answer", size)))
    return smaller


def fitting_result(result: hand_pb2.Result) -> hand_pb2.Result:
    """The result, or one that any stream can carry: the same outcome, and the ends of its text."""
    return result if result.ByteSize() <= MESSAGE_MAX else _cut(result)


def _cut(result: hand_pb2.Result) -> hand_pb2.Result:
    content = result.content.encode()
    without = hand_pb2.Result()
    without.CopyFrom(result)
    del without.attachments[:]
    without.files_omitted += len(without.files)
    del without.files[:]
    missing = len(result.attachments)
    said = f"\n[{missing} attachments left out: too large for the link]" if missing else ""
    if len(content) > 2 * _KEPT:
        omitted = len(content) - 2 * _KEPT
        without.omitted_bytes += omitted
        head, tail = (_text(part) for part in (content[:_KEPT], content[-_KEPT:]))
        said = f"{head}\n[{omitted} bytes left out: too large for the link]\n{tail}{said}"
        without.content = said
    else:
        without.content += said
    return without


def _left_out(chunk: hand_pb2.OutputChunk) -> hand_pb2.OutputChunk:
    dropped = len(chunk.data)
    return hand_pb2.OutputChunk(
        offset=chunk.offset + dropped, dropped_bytes=chunk.dropped_bytes + dropped
    )


def _text(part: bytes) -> str:
    """Whole characters only."""
    return part.decode("utf-8", "ignore")
