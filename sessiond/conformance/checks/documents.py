"""Small versioned JSON documents."""

import asyncio

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("documents")
LARGEST = 256 * 1024


async def _put(
    bench: Bench, name: str, version: int, data: bytes = b"{}", kind: str = "agent"
) -> types_pb2.DocumentInfo:
    request = pb.PutDocumentRequest(kind=kind, name=name, expected_version=version, data=data)
    return (await bench.operator.PutDocument(request)).document


async def _get(
    bench: Bench, name: str, version: int = 0, kind: str = "agent"
) -> types_pb2.DocumentInfo:
    request = pb.GetDocumentRequest(kind=kind, name=name, version=version)
    return (await bench.operator.GetDocument(request)).document


@group
async def versions(bench: Bench) -> None:
    """A document has versions 1, 2, 3, …, each of which can be read; 0 is the newest."""
    name = bench.fresh("d")
    for version in range(3):
        document = await _put(bench, name, version, b'{"v":%d}' % (version + 1))
        equal("version", document.version, version + 1)
        must(document.HasField("time"), "it has no time")
        equal("read back", await _get(bench, name), document)
    for version in (1, 2, 3):
        document = await _get(bench, name, version)
        equal("data", document.data, b'{"v":%d}' % version)
        equal(
            "kind, name, workspace",
            (document.kind, document.name, document.workspace),
            ("agent", name, bench.workspace),
        )


@group
async def conflict(bench: Bench) -> None:
    """A version that is not the newest is VERSION_CONFLICT, and nothing is written."""
    name = bench.fresh("d")
    with refused(Reason.VERSION_CONFLICT):
        await _put(bench, name, 1)
    await _put(bench, name, 0, b'"1"')
    await _put(bench, name, 1, b'"2"')
    for version in (0, 1, 3):
        with refused(Reason.VERSION_CONFLICT):
            await _put(bench, name, version, b'"x"')
    equal("the newest", (await _get(bench, name)).data, b'"2"')


@group
async def written_again(bench: Bench) -> None:
    """The same expected version and data again is the first answer, and writes no version."""
    name = bench.fresh("d")
    first = await _put(bench, name, 0, b'"1"')
    equal("again", await _put(bench, name, 0, b'"1"'), first)
    second = await _put(bench, name, 1, b'"2"')
    equal("the second again", await _put(bench, name, 1, b'"2"'), second)
    equal("the newest", (await _get(bench, name)).version, 2)


@group
async def one_writer_wins(bench: Bench) -> None:
    """Of several that write the same version at once, one wins."""
    name = bench.fresh("d")
    answers = await asyncio.gather(
        *(_put(bench, name, 0, b"%d" % number) for number in range(8)), return_exceptions=True
    )
    lost = [answer for answer in answers if isinstance(answer, BaseException)]
    for error in lost:
        with refused(Reason.VERSION_CONFLICT):
            raise error
    equal("who lost", len(lost), 7)
    equal("the newest", (await _get(bench, name)).version, 1)


@group
async def not_there(bench: Bench) -> None:
    """A document or version that is not there is DOCUMENT_NOT_FOUND."""
    name = bench.fresh("d")
    with refused(Reason.DOCUMENT_NOT_FOUND):
        await _get(bench, name)
    await _put(bench, name, 0)
    with refused(Reason.DOCUMENT_NOT_FOUND):
        await _get(bench, name, 2)
    with refused(Reason.DOCUMENT_NOT_FOUND):
        await _get(bench, name, kind="environment")


@group
async def limit(bench: Bench) -> None:
    """A document of 256 KiB is taken, and one byte more is not."""
    name = bench.fresh("d")
    fits = b'"' + b"x" * (LARGEST - 2) + b'"'
    equal("version", (await _put(bench, name, 0, fits)).version, 1)
    with refused(Reason.INVALID_FIELD):
        await _put(bench, name, 1, b'"' + b"x" * (LARGEST - 1) + b'"')


@group
async def listed(bench: Bench) -> None:
    """Documents of a kind are listed by name, page by page, each once in its newest version."""
    workspace, names = bench.fresh("check"), [bench.fresh("d") for _ in range(5)]
    for name in names:
        for version in range(2):
            await bench.brain.PutDocument(
                pb.PutDocumentRequest(
                    kind="agent",
                    name=name,
                    workspace=workspace,
                    expected_version=version,
                    data=b"{}",
                )
            )
    other = pb.PutDocumentRequest(kind="environment", name="e", workspace=workspace, data=b"{}")
    await bench.brain.PutDocument(other)
    for limit in (2, 5, 100):
        found: list[tuple[str, int]] = []
        token = ""
        while True:
            request = pb.ListDocumentsRequest(
                kind="agent", workspace=workspace, limit=limit, page_token=token
            )
            page = await bench.brain.ListDocuments(request)
            must(len(page.documents) <= limit, "a page is longer than its limit")
            found += [(document.name, document.version) for document in page.documents]
            token = page.next_page_token
            if not token:
                break
        equal("names and versions", found, sorted((name, 2) for name in names))


@group
async def listing_limit(bench: Bench) -> None:
    """A page of documents has 100 when no limit is given, and a limit over 1,000 is refused."""
    workspace = bench.fresh("check")
    await asyncio.gather(
        *(
            bench.brain.PutDocument(
                pb.PutDocumentRequest(
                    kind="agent", name=f"d{number}", workspace=workspace, data=b"{}"
                )
            )
            for number in range(101)
        )
    )
    page = await bench.brain.ListDocuments(
        pb.ListDocumentsRequest(kind="agent", workspace=workspace)
    )
    equal("documents", len(page.documents), 100)
    must(bool(page.next_page_token), "there is no next page")
    with refused(Reason.INVALID_FIELD):
        await bench.brain.ListDocuments(
            pb.ListDocumentsRequest(kind="agent", workspace=workspace, limit=1001)
        )


@group
async def malformed(bench: Bench) -> None:
    """A document is JSON, its kind of a-z, 0-9 and _, its name 1 to 128 of A-Z, a-z, 0-9, _, -."""
    name = bench.fresh("d")
    for data in (b"", b"{", b"not json", b"\xff"):
        with refused(Reason.INVALID_FIELD):
            await _put(bench, name, 0, data)
    for kind in ("", "Agent", "1st", "a-b", "k" * 65):
        with refused(Reason.INVALID_FIELD):
            await _put(bench, name, 0, kind=kind)
    for bad in ("", "a/b", "a.b", "é", "n" * 129):
        with refused(Reason.INVALID_FIELD):
            await _put(bench, bad, 0)
    longest = name.ljust(128, "n")
    equal("name", (await _put(bench, longest, 0)).name, longest)


@group
async def page_token(bench: Bench) -> None:
    """A page token of another query is refused."""
    workspace = bench.fresh("check")
    for name in ("a", "b"):
        await bench.brain.PutDocument(
            pb.PutDocumentRequest(kind="agent", name=name, workspace=workspace, data=b"{}")
        )
    first = pb.ListDocumentsRequest(kind="agent", workspace=workspace, limit=1)
    token = (await bench.brain.ListDocuments(first)).next_page_token
    for other in (
        pb.ListDocumentsRequest(kind="environment", workspace=workspace, page_token=token),
        pb.ListDocumentsRequest(kind="agent", workspace=workspace, page_token=token[::-1]),
    ):
        with refused(Reason.INVALID_FIELD):
            await bench.brain.ListDocuments(other)


@group
async def other_workspace(bench: Bench) -> None:
    """A document is its workspace's: another neither reads, lists nor replaces it."""
    name = bench.fresh("d")
    await _put(bench, name, 0, b'"mine"')
    with refused(Reason.DOCUMENT_NOT_FOUND):
        await bench.other.GetDocument(pb.GetDocumentRequest(kind="agent", name=name))
    theirs = pb.PutDocumentRequest(kind="agent", name=name, data=b'"theirs"')
    equal("version", (await bench.other.PutDocument(theirs)).document.version, 1)
    equal("data", (await _get(bench, name)).data, b'"mine"')
    listed = await bench.other.ListDocuments(pb.ListDocumentsRequest(kind="agent", limit=1000))
    must(all(one.workspace != bench.workspace for one in listed.documents), "it is listed")


@group
async def retention_is_no_brains(bench: Bench) -> None:
    """A brain does not write retention."""
    request = pb.PutDocumentRequest(
        kind="retention", name="default", workspace=bench.fresh("check"), data=b'{"hold":true}'
    )
    with refused(Reason.ROLE_NOT_ALLOWED):
        await bench.brain.PutDocument(request)


@group
async def for_a_brain(bench: Bench) -> None:
    """A brain names the workspace whose documents it reads and writes."""
    name = bench.fresh("d")
    await _put(bench, name, 0, b'"1"')
    request = pb.GetDocumentRequest(kind="agent", name=name, workspace=bench.workspace)
    equal("data", (await bench.brain.GetDocument(request)).document.data, b'"1"')
    with refused(Reason.INVALID_FIELD):
        await bench.brain.GetDocument(pb.GetDocumentRequest(kind="agent", name=name))
