"""A request that no policy makes again, from the blobs in which it is kept."""

import hashlib
import json
from collections.abc import Awaitable, Callable

from brain.context.differing import put_together
from brain.recorded.rebuilt import Rebuilt
from brain.recorded.recording import Asked, Recording
from brain.session.entries import Entry
from brain.text import canonical

Blob = Callable[[str], Awaitable[bytes]]
"""A blob's bytes by its digest in hex; none where it is not there."""


async def from_blobs(recording: Recording, asked: Asked, blob: Blob) -> Rebuilt:
    """Put it together, the oldest first, and hold it against its hash."""
    chain: list[Entry] = [asked.start]
    starts = {each.start.id: each.start for each in recording.asked()}
    while base := chain[-1].data.get("request_base"):
        before = starts.get(str(base["model_request_start_id"]))
        if before is None or before.position >= chain[-1].position:
            return _none(f"the request it goes on from, {base}, is not in the log")
        chain.append(before)
    body = b""
    for start in reversed(chain):
        name = start.data.get("request_blob")
        if not isinstance(name, str):
            return _none(f"the one at position {start.position} was kept in no blob, or redacted")
        kept = await blob(name.removeprefix("sha256:"))
        if f"sha256:{hashlib.sha256(kept).hexdigest()}" != name:
            return _none(f"the blob {name} is another")
        if base := start.data.get("request_base"):
            whole = put_together(json.loads(kept), json.loads(body), int(base["messages"]))
            kept = canonical(whole)
        body = kept
    sha256 = hashlib.sha256(body).hexdigest()
    same = sha256 == asked.sha256
    return Rebuilt(body, sha256, same, "" if same else "its blobs make another request")


def _none(why: str) -> Rebuilt:
    return Rebuilt(b"{}", hashlib.sha256(b"{}").hexdigest(), same=False, why=why)
