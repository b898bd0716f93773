"""A call's output as it is read: each byte once, in order, and gaps said. Pure.

Chunks say where they stand, so whatever stream they came on, and however
often, what was read before is cut away here.
"""

from carpal.v1 import hand_pb2


class Reading:
    """How far one call's output was read."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Bytes read, or known to be left out."""

    def take(self, chunk: hand_pb2.OutputChunk) -> hand_pb2.OutputChunk | None:
        """What is new of a chunk; None when nothing is.

        Bytes that never came count as dropped: the chunk that is given always
        begins where the one before ended.
        """
        end = chunk.offset + len(chunk.data)
        if end <= self.offset:
            return None
        start = max(chunk.offset, self.offset)
        new = hand_pb2.OutputChunk(
            offset=start,
            data=chunk.data[start - chunk.offset :],
            dropped_bytes=start - self.offset,
        )
        self.offset = end
        return new
