"""`carpal session export`: a log and the blobs that it names, as a file of JSON lines.

What is held in memory is a slice of the log and the digests of the blobs named.
"""

import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import click

from carpal.client import rpc_errors
from carpal.errors import CarpalError, invalid, refuse
from carpal.export import PART_BYTES, BlobPart, End, Entry, blobs_named, line_of
from carpal.operator.asking import get_signed, run
from carpal.operator.connection import ANSWER_SECONDS, Found, Operator, operator_options
from carpal.operator.outcome import DONE
from carpal.status import Reason
from carpal.v1 import session_pb2, types_pb2

_SLICE = 1000
STREAM_SECONDS = 3600.0
"""How long the bytes of one blob, or of one log, may take."""


@click.command()
@click.argument("session_id", metavar="SESSION")
@click.option("--out", default="-", show_default=True, help="A file, which is there once whole.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@operator_options
def export(*, found: Found, session_id: str, out: str, force: bool) -> int:
    """Write a session's log, its blobs and its signed head as lines of JSON."""
    if out != "-" and not force:
        check_free(Path(out))

    async def main(operator: Operator) -> int:
        info, signed = await get_signed(operator, session_id)
        with _target(out) as write:
            end = await _write(operator, info, signed, lambda entry: write(line_of(entry)))
        if out != "-":
            click.echo(f"{end.events} events and {end.blobs} blobs in {out}")
        return DONE

    return run(found, main)


async def events_up_to(
    operator: Operator, session_id: str, head: int
) -> AsyncGenerator[types_pb2.Event, None]:
    """A log up to a position, slice by slice; shorter if the server has no more."""
    after = 0
    while after < head:
        request = session_pb2.GetEventsRequest(session_id=session_id, after=after, limit=_SLICE)
        with rpc_errors(operator.sessiond):
            answer = await operator.sessions.GetEvents(request, timeout=ANSWER_SECONDS)
        if not answer.events or answer.events[-1].position <= after:
            return
        for event in answer.events:
            if event.position > head:
                return
            yield event
        after = answer.events[-1].position


async def _write(
    operator: Operator,
    info: types_pb2.SessionInfo,
    signed: types_pb2.SignedBytes,
    write: Callable[[Entry], object],
) -> End:
    """Write every entry of an export; its last one."""
    events = blobs = 0
    named: dict[bytes, None] = {}  # in the order in which they were named
    write(info)
    log = events_up_to(operator, info.session_id, info.head.position)
    async with aclosing(log) as found:
        async for event in found:
            write(event)
            events += 1
            named.update(dict.fromkeys(blobs_named(event.data)))
    for digest in named:
        blobs += await _write_blob(operator, digest, write)
    end = End(info.head, events, blobs, signed if signed.payload else None)
    write(end)
    return end


async def _write_blob(operator: Operator, digest: bytes, write: Callable[[Entry], object]) -> bool:
    """Write a blob's parts; False when the workspace has none of this digest."""
    call = operator.sessions.GetBlob(
        session_pb2.GetBlobRequest(digest=digest), timeout=STREAM_SECONDS
    )
    info = types_pb2.BlobInfo()
    offset, held = 0, bytearray()

    def write_part() -> None:
        nonlocal offset
        data = bytes(held[:PART_BYTES])
        write(BlobPart(digest, info.size, info.media_type, offset, data))
        offset += len(data)
        del held[:PART_BYTES]

    try:
        with rpc_errors(operator.sessiond):
            async for answer in call:
                if not info.digest:
                    info = answer.info
                held += answer.data
                while len(held) >= PART_BYTES:  # whole parts, however they came
                    write_part()
    except CarpalError as error:
        if error.reason is Reason.BLOB_NOT_FOUND and not offset:
            return False  # it was but the digest of something
        raise
    finally:
        call.cancel()
    if held or not info.size:
        write_part()
    if info.digest != digest or offset != info.size:
        raise refuse(Reason.UNAVAILABLE, f"{operator.sessiond} ended a blob after {offset} bytes")
    return True


def check_free(out: Path) -> None:
    """INVALID_FIELD when a file is there that writing would replace."""
    if out.is_file():
        raise refuse(
            Reason.INVALID_FIELD,
            f"--out: {out} is there",
            action="give another name, or replace it with --force",
            field="--out",
        )


@contextmanager
def _target(out: str) -> Iterator[Callable[[bytes], object]]:
    """Where to write: stdout, or a file that takes its name when all is written and durable."""
    if out == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    if path.exists() and not path.is_file():  # a pipe or a device: its name is not ours to take
        try:
            with path.open("wb") as file:
                yield file.write
        except OSError as error:
            raise _unwritable(out, error) from None
        return
    scratch = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file.write
            file.flush()
            os.fsync(file.fileno())
        scratch.rename(path)
    except OSError as error:
        raise _unwritable(out, error) from None
    finally:
        scratch.unlink(missing_ok=True)


def _unwritable(out: str, error: OSError) -> CarpalError:
    return invalid("--out", f"{out} cannot be written ({error.strerror})")
