"""One Append stream: frames of groups in, one frame of acks out per commit.

A group that is refused closes its session's lane: later groups of the session
on this stream are refused too, so that nothing lands out of order. That is
decided in the writing thread, where the order of groups is known.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from functools import partial
from typing import NamedTuple

from carpal.errors import CarpalError, invalid, refuse, to_status
from carpal.identity import Identity
from carpal.rpc import status_pb2
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2
from sessiond import wire
from sessiond.rows import Group
from sessiond.rules.append import append, needs_of
from sessiond.store import Transaction
from sessiond.writer import Writer

_ACKS = 500
"""In one answer; each may carry a status of up to 4 KiB."""
_UNREAD_ACKS = 10_000
"""Beyond this the client is not read: it must read its acks first."""

Groups = list[tuple[int, Group]]
"""With their sequences."""
Acks = list[types_pb2.AppendAck]


class _Refused(NamedTuple):
    sequence: int
    epoch: int


class Lane:
    """The state of one stream; `serve` is its whole life."""

    def __init__(self, writer: Writer, caller: Identity) -> None:
        self._writer = writer
        self._caller = caller
        self._sequence = 0
        self._refused: dict[str, _Refused] = {}
        """The first refused group of a session's highest epoch. Only the writing thread looks."""
        self._acks: Acks = []
        self._in_flight = 0
        self._failure: BaseException | None = None
        self._lost = False
        """Whether groups are neither acked nor refused: no later one is, either."""
        self._moved = asyncio.Event()
        self._few_unread = asyncio.Event()
        self._few_unread.set()

    async def serve(
        self, frames: AsyncIterable[session_pb2.AppendRequest]
    ) -> AsyncIterator[session_pb2.AppendResponse]:
        """Ack what is committed, until the client is done and everything is."""
        # A task, not a TaskGroup: this generator may be closed from another task.
        reading = asyncio.create_task(self._read(frames))
        reading.add_done_callback(lambda _: self._moved.set())
        try:
            while True:
                if self._acks:
                    acks, self._acks = self._acks[:_ACKS], self._acks[_ACKS:]
                    if len(self._acks) < _UNREAD_ACKS:
                        self._few_unread.set()
                    yield session_pb2.AppendResponse(acks=acks)
                elif self._in_flight == 0 and (reading.done() or self._failure is not None):
                    break
                else:
                    self._moved.clear()
                    await self._moved.wait()
            if self._failure is not None:
                raise self._failure
            reading.result()
        finally:
            reading.cancel()

    def close(self) -> None:
        """The server stops: what was taken is still acked, then the stream ends."""
        self._fail(refuse(Reason.UNAVAILABLE, "sessiond is stopping"))

    async def _read(self, frames: AsyncIterable[session_pb2.AppendRequest]) -> None:
        async for frame in frames:
            await self._few_unread.wait()
            if self._failure is not None:
                return
            groups = [(group.sequence, wire.group(group)) for group in frame.groups]
            for sequence, _ in groups:
                self._sequence += 1
                if sequence != self._sequence:
                    raise invalid(
                        "groups.sequence", f"is {sequence} where {self._sequence} was due"
                    )
            self._in_flight += 1
            try:
                await self._writer.submit(
                    partial(self._apply, groups),
                    partial(self._committed, groups),
                    frame.ByteSize(),
                    needs_of([group for _, group in groups]),
                    partial(self._undone, groups),
                )
            except BaseException:
                self._in_flight -= 1
                raise

    def _committed(self, groups: Groups, acks: Acks | Exception) -> None:
        self._in_flight -= 1
        if self._lost:
            pass  # it comes after groups whose fate is unknown: all of these are sent again
        elif not isinstance(acks, Exception):
            self._acks += acks
        elif isinstance(acks, CarpalError) and acks.reason is Reason.STORE_FULL:
            self._acks += [_refusal(sequence, to_status(acks)) for sequence, _ in groups]
        else:
            self._lost = True
            self._fail(acks)
        if len(self._acks) >= _UNREAD_ACKS:
            self._few_unread.clear()
        self._moved.set()

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._moved.set()

    # What follows runs in the writing thread.

    def _apply(self, groups: Groups, tx: Transaction) -> Acks:
        return [self._append(sequence, group, tx) for sequence, group in groups]

    def _append(self, sequence: int, group: Group, tx: Transaction) -> types_pb2.AppendAck:
        # A batch may be undone and run again: a group is not refused for its own sake.
        refused = self._refused.get(group.session_id)
        try:
            if refused and refused.sequence < sequence and (group.epoch or 0) <= refused.epoch:
                raise refuse(
                    Reason.PRIOR_GROUP_REFUSED,
                    f"group {refused.sequence} of session {group.session_id[:128]!r} was refused",
                    sequence=str(refused.sequence),
                )
            position = append(tx, self._caller, group).first.position
        except CarpalError as error:
            self._refuse_after(sequence, group)
            return _refusal(sequence, to_status(error))
        self._refused.pop(group.session_id, None)
        return types_pb2.AppendAck(sequence=sequence, position=position)

    def _undone(self, groups: Groups) -> None:
        for sequence, group in groups:
            self._refuse_after(sequence, group)

    def _refuse_after(self, sequence: int, group: Group) -> None:
        """Refuse the session's later groups, up to this epoch: nothing may land out of order."""
        new = _Refused(sequence, group.epoch or 0)
        before = self._refused.get(group.session_id, new)
        if (new.epoch, before.sequence) >= (before.epoch, new.sequence):
            self._refused[group.session_id] = new


def _refusal(sequence: int, status: status_pb2.Status) -> types_pb2.AppendAck:
    return types_pb2.AppendAck(sequence=sequence, status=status)
