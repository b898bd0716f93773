"""Pictures: they leave as attachments, and a text stands in their place."""

import hashlib

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench
from hands.conformance.group import Group

visual = Group("visual")


@visual("h46")
async def screenshot(bench: Bench) -> None:
    """A screenshot is an attachment of an image, with its digest and size, and a text for it."""
    hand = await bench.hand()
    result = (await hand.run("screenshot", {})).ended(pb.OUTCOME_OK).result
    must(len(result.attachments) == 1, f"there are {len(result.attachments)} attachments")
    (image,) = result.attachments
    must(image.media_type.startswith("image/"), f"its media type is {image.media_type!r}")
    must(image.size > 0, "it has no size")
    equal("bytes of its digest", len(image.digest), 32)
    if image.data:
        equal("its size", image.size, len(image.data))
        equal("its digest", image.digest, hashlib.sha256(image.data).digest())
