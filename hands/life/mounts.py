"""Mounts: what is put into a new hand's workspace before its first call.

All of them, in order, or there is no hand.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

from carpal.errors import CarpalError, invalid
from carpal.mounts import MOUNTS_MAX, Mount, as_error, parse, refuse_twice
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.blobs import Blobs
from hands.contract import Description, Hand, HandLost, Mountable, MountFailed, Placing

Place = Callable[[Hand], Awaitable[list[str]]]
"""`place`, with all but the hand known."""


def read(mounts: Iterable[pb.Mount], description: Description) -> list[Mount]:
    """A request's mounts, or the refusal that names the field."""
    found = [
        parse(each.source_ref, each.mount_path, f"mounts[{index}]")
        for index, each in enumerate(mounts)
    ]
    if found and "mounts" not in description.capabilities:
        raise invalid("mounts", f"a {description.type} hand takes none")
    if len(found) > MOUNTS_MAX:
        raise invalid("mounts", f"{len(found)} of them; a hand takes at most {MOUNTS_MAX}")
    for index, mount in enumerate(found):
        if mount.kind == "session":
            problem = "a log reaches a hand as a tar:, which the brain makes of it"
            raise invalid(f"mounts[{index}].source_ref", problem)
    refuse_twice(found, "mounts")
    return found


async def place(
    hand: Hand,
    mounts: Sequence[Mount],
    blobs: Blobs,
    session_id: str,
    progress: Callable[[str], None],
) -> list[str]:
    """Place them all; says what each was. Raises the refusal of the first that fails."""
    said = []
    for index, mount in enumerate(mounts):
        progress(f"mounting {mount}")
        if not isinstance(hand, Mountable):
            raise invalid("mounts", "this hand takes none, though its type says so")
        placing, data = _placing(mount, blobs, session_id)
        try:
            said.append(await hand.place(placing, data))
        except HandLost as error:
            raise as_error(index, mount.path, str(error), Reason.PROVISION_FAILED) from error
        except MountFailed as error:
            absent = mount.kind == "git"
            reason = Reason.MOUNT_NOT_FOUND if absent else Reason.PROVISION_FAILED
            raise as_error(index, mount.path, str(error), reason) from error
        except CarpalError as error:
            absent = error.reason is Reason.BLOB_NOT_FOUND
            reason = Reason.MOUNT_NOT_FOUND if absent else Reason.PROVISION_FAILED
            raise as_error(index, mount.path, error.message, reason) from error
    return said


def _placing(mount: Mount, blobs: Blobs, session_id: str) -> tuple[Placing, AsyncIterator[bytes]]:
    if mount.kind == "git":
        return Placing("git", mount.path, mount.source, mount.ref), _text("")
    if mount.kind == "text":
        return Placing("file", mount.path), _text(mount.source)
    kind = "tar" if mount.kind == "tar" else "file"
    return Placing(kind, mount.path), blobs.read(session_id, mount.digest)  # type: ignore[arg-type]


async def _text(text: str) -> AsyncIterator[bytes]:
    yield text.encode()
