"""One call on a hand of a type that is installed here, with no brain: for whoever writes a type.

It goes through the service that a brain speaks to over a link, on a state folder of its own that
is gone afterwards with the hand: what is refused here is refused there.
"""

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from carpal.errors import CarpalError, invalid, refuse
from carpal.ids import new_id
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands import attached_out, requests
from hands.attached_out import Saved
from hands.blobs import Blobs
from hands.builtin.socket import SocketType
from hands.contract import LISTS_TOOLS, HandType
from hands.files import HandFiles, boot_id
from hands.folder_blobs import FolderBlobs
from hands.inventory import Inventory, open_inventory
from hands.journal import Journal
from hands.journal_file import journal_errors
from hands.local import beside
from hands.service import HandService

_NAME = "call"
_ORPHAN = 120
"""Seconds after which a hand ends whose caller was killed."""
_BEAT = 0.25
"""Of that, after which the hand is told that its caller lives."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call, and the hand it is for."""

    type: str
    tool: str
    given: bytes
    config: bytes = b"{}"
    time_limit: float = 0.0
    """Seconds; 0 leaves it to the tool."""
    save: Path | None = None
    """Where what is attached goes; without it, nowhere."""
    daemon: Path | None = None
    """The state folder of the daemon of this machine, whose units are not to be taken."""


class Called(NamedTuple):
    """What came of a call."""

    result: pb.Result
    left: str
    """Why its hand is not ended, and what to do; empty when it is."""
    saved: list[Saved]
    """What is attached, where that was asked for."""


async def call(
    types: Mapping[str, HandType],
    asked: Asked,
    *,
    note: Callable[[str], None],
    output: Callable[[bytes], None],
) -> Called:
    """Make a hand, run the call, and end the hand; whatever that raises is for a person.

    `note` is told what happens on the way, `output` what the call gives as it comes.
    """
    with ExitStack() as held:
        blobs = None
        if asked.save:
            attached_out.made(asked.save)
            made = held.enter_context(tempfile.TemporaryDirectory(prefix="carpal-attached-"))
            blobs = Path(made)
        called = await _called(types, asked, blobs, note, output)
        if asked.save and blobs:
            attachments = called.result.attachments
            called.saved.extend(attached_out.saved(attachments, blobs, asked.save))
        return called


async def _called(
    types: Mapping[str, HandType],
    asked: Asked,
    attached: Path | None,
    note: Callable[[str], None],
    output: Callable[[bytes], None],
) -> Called:
    async with _service(types, FolderBlobs(attached) if attached else Blobs(0.0)) as service:
        driver = pb.Driver(session_id=new_id("sesn"), epoch=1, workspace=_NAME)
        order = pb.ProvisionRequest(
            driver=driver, hand_id=new_id("hand"), type=asked.type, config=asked.config
        )
        order.orphan_deadline.FromSeconds(_ORPHAN)
        request = pb.ExecuteRequest(
            driver=driver,
            hand_id=order.hand_id,
            call_id=new_id("call"),
            name=asked.tool,
            input=asked.given,
        )
        if asked.time_limit:
            request.time_limit.FromNanoseconds(int(asked.time_limit * 1e9))
        if asked.daemon:
            await asyncio.to_thread(beside.check, asked.daemon, asked.type, types[asked.type])
        await _check(service, types, request, asked.type)
        try:
            async for step in service.provision(order):
                note(step.progress.message if step.HasField("progress") else step.result.note)
        except CarpalError as error:
            raise _here(error) from None
        release = pb.ReleaseRequest(driver=driver, hand_id=order.hand_id)
        try:
            async for response in service.execute(request).watch(0):
                if response.HasField("output"):
                    output(response.output.data)
                else:
                    result = response.result
        except BaseException:
            if left := await _end(service, release, types[asked.type]):
                note(left)  # beside why there is no result
            raise
        return Called(result, await _end(service, release, types[asked.type]), [])


def _here(error: CarpalError) -> CarpalError:
    """Why a hand was not made, with what to do where there is no daemon, no log and no other unit.

    What a type says itself is to be done stays.
    """
    said = error.fields.get("action", "")
    if error.reason is Reason.PROVISION_FAILED and (not said or "`carpal hand units" in said):
        return refuse(error.reason, error.message, action="mend that, and call again")
    if error.reason is Reason.AT_CAPACITY:
        return refuse(error.reason, error.message, action="see that its `units` names one")
    return error


async def _end(service: HandService, request: pb.ReleaseRequest, kind: HandType) -> str:
    """End a hand; why it is not, and what to do about it."""
    try:
        await service.release(request)
    except CarpalError as error:
        if isinstance(kind, SocketType):
            return f"{error.message}: have Release end the hand and answer `ended: true`"
        return str(error)
    return ""


def as_json(result: pb.Result, saved: Sequence[Saved] = ()) -> dict[str, Any]:
    """A result as an object for scripts; each attachment with its `file`, where one was asked."""
    files: list[dict[str, Any]] = [{"file": str(one.file) if one.file else None} for one in saved]
    files = files or [{}] * len(result.attachments)
    return {
        "outcome": pb.Outcome.Name(result.outcome).removeprefix("OUTCOME_").lower(),
        "content": result.content,
        "exit_code": result.exit_code if result.HasField("exit_code") else None,
        "output_bytes": result.output_bytes,
        "seconds": result.elapsed.ToNanoseconds() / 1e9,
        "attachments": [
            {"name": each.name, "media_type": each.media_type, "size": each.size, **file}
            for each, file in zip(result.attachments, files, strict=True)
        ],
    }


async def _check(
    service: HandService, types: Mapping[str, HandType], request: pb.ExecuteRequest, name: str
) -> None:
    """Refuse before any hand is made what would be refused after it."""
    kind = types[name]
    if isinstance(kind, SocketType) and kind.absent:
        raise refuse(
            Reason.HAND_TYPE_NOT_FOUND,
            f"the hand server at {kind.socket}: {kind.absent}",
            action="name a type that it has",
        )
    health = await service.probe(pb.ProbeRequest(type=name))
    if health.state != pb.PROBE_STATE_READY:
        raise refuse(
            Reason.UNAVAILABLE,
            f"no hand of type {name!r} can be made here: {health.reason}",
            action=kind.mend if isinstance(kind, SocketType) else "mend that first",
        )
    description = kind.describe()
    if LISTS_TOOLS not in description.capabilities:
        requests.call(request, description)


@asynccontextmanager
async def _service(types: Mapping[str, HandType], blobs: Blobs) -> AsyncIterator[HandService]:
    folder = _made()
    files = HandFiles(folder)
    try:
        with (
            files.only_process(),
            journal_errors(files.journal),
            closing(Journal(files.journal, _NAME)) as journal,
        ):
            async with open_inventory(
                journal=journal,
                types=types,
                folder=files.hands,
                boot_id=boot_id(),
                hands_max=1,
                blobs=blobs,
            ) as inventory:
                beating = asyncio.create_task(_beat(inventory))
                try:
                    yield HandService(inventory, _NAME, _NAME)
                finally:
                    beating.cancel()
                    await asyncio.wait({beating})
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _beat(inventory: Inventory) -> None:
    """Tell the hand that its caller lives, until cancelled: a call may outlast its deadline."""
    while True:
        await asyncio.sleep(_ORPHAN * _BEAT)
        await inventory.contact()


def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="carpal-call-"))
    folder.chmod(0o711)  # a hand's user must get through to its own
    return folder


def checked_object(field: str, text: str) -> bytes:
    """JSON of an object as a person gave it. Raises INVALID_FIELD."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise invalid(field, f'is not JSON: {error}; as in \'{{"path": "a"}}\'') from None
    if not isinstance(value, dict):
        raise invalid(field, 'must be a JSON object, as in \'{"path": "a"}\'')
    return text.encode()
