"""Documents over real mutual TLS: whose they are, and what is answered."""

import asyncio

import pytest

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from tests.sessiond.desk import refused
from tests.sessiond.service.test_sessions import ask
from tests.sessiond.serving import Serving


async def test_a_document_is_written_read_and_listed(sessions: Serving) -> None:
    ada = await sessions.operator()
    request = pb.PutDocumentRequest(kind="agent", name="coder", data=b'{"model":"m"}')
    written = (await ask(ada, "PutDocument", request)).document
    assert (written.kind, written.name, written.workspace, written.version, written.data) == (
        "agent",
        "coder",
        "default",
        1,
        b'{"model":"m"}',
    )
    assert written.time.ToNanoseconds() == sessions.clock.wall()
    brain = await sessions.brain()
    for stub, workspace in [(ada, ""), (brain, "default")]:
        key = {"kind": "agent", "name": "coder", "workspace": workspace}
        assert (await ask(stub, "GetDocument", pb.GetDocumentRequest(**key))).document == written  # type: ignore[arg-type]
        page = await ask(
            stub, "ListDocuments", pb.ListDocumentsRequest(kind="agent", workspace=workspace)
        )
        assert list(page.documents) == [written]


async def test_another_workspaces_documents_are_neither_read_nor_written(
    sessions: Serving,
) -> None:
    ada, eve = await sessions.operator(), await sessions.operator("eve", "elsewhere")
    await ask(ada, "PutDocument", pb.PutDocumentRequest(kind="agent", name="a", data=b"1"))
    with refused(Reason.DOCUMENT_NOT_FOUND):
        await ask(eve, "GetDocument", pb.GetDocumentRequest(kind="agent", name="a"))
    for method, request in [
        ("GetDocument", pb.GetDocumentRequest(kind="agent", name="a", workspace="default")),
        ("ListDocuments", pb.ListDocumentsRequest(kind="agent", workspace="default")),
        (
            "PutDocument",
            pb.PutDocumentRequest(kind="agent", name="a", workspace="default", data=b"2"),
        ),
    ]:
        with refused(Reason.INVALID_FIELD):
            await ask(eve, method, request)
    assert not (await ask(eve, "ListDocuments", pb.ListDocumentsRequest(kind="agent"))).documents


@pytest.mark.parametrize("method", ["GetDocument", "ListDocuments", "PutDocument"])
async def test_a_brain_names_the_workspace(sessions: Serving, method: str) -> None:
    request = getattr(pb, f"{method}Request")(kind="agent")
    with refused(Reason.INVALID_FIELD):
        await ask(await sessions.brain(), method, request)


async def test_of_many_that_write_one_version_at_once_one_does(sessions: Serving) -> None:
    ada = await sessions.operator()

    async def put(n: int) -> bool:
        request = pb.PutDocumentRequest(kind="agent", name="a", data=b"%d" % n)
        try:
            await ask(ada, "PutDocument", request)
        except Exception as error:
            with refused(Reason.VERSION_CONFLICT):
                raise error
            return False
        return True

    assert sum(await asyncio.gather(*map(put, range(20)))) == 1


async def test_a_page_of_the_largest_documents_fits_in_a_message(sessions: Serving) -> None:
    ada = await sessions.operator()
    largest = b'"%s"' % (b"x" * (256 * 1024 - 2))
    for n in range(17):
        request = pb.PutDocumentRequest(kind="agent", name=f"d{n}", data=largest)
        await ask(ada, "PutDocument", request)
    names: list[str] = []
    token = ""
    while token or not names:
        request_page = pb.ListDocumentsRequest(kind="agent", limit=1000, page_token=token)
        page = await ask(ada, "ListDocuments", request_page)
        names += [document.name for document in page.documents]
        token = page.next_page_token
    assert sorted(names) == sorted(f"d{n}" for n in range(17))
