"""The Session service's documents."""

from carpal.server import Context, caller
from carpal.v1 import session_pb2 as pb
from carpal.v1 import types_pb2
from carpal.v1.session_pb2_grpc import SessionServicer
from sessiond import wire
from sessiond.parts import Parts
from sessiond.rows import Needs
from sessiond.rules import documents
from sessiond.rules.sessions import own_workspace
from sessiond.store_documents import DocumentRow


class DocumentService(SessionServicer):
    """Small JSON texts, every version of them."""

    _parts: Parts

    async def PutDocument(
        self, request: pb.PutDocumentRequest, context: Context
    ) -> pb.PutDocumentResponse:
        """See session.proto."""
        who = caller(context)
        workspace = own_workspace(who, request.workspace)
        documents.check_put(who, request)
        row = await self._parts.writer.run(
            lambda tx: documents.put(tx, workspace, request),
            request.ByteSize(),
            Needs(workspaces=(workspace,)),
        )
        return pb.PutDocumentResponse(document=_document(row))

    async def GetDocument(
        self, request: pb.GetDocumentRequest, context: Context
    ) -> pb.GetDocumentResponse:
        """See session.proto."""
        workspace = own_workspace(caller(context), request.workspace)
        row = await self._parts.readers.run(
            lambda reader: documents.find(reader, workspace, request)
        )
        return pb.GetDocumentResponse(document=_document(row))

    async def ListDocuments(
        self, request: pb.ListDocumentsRequest, context: Context
    ) -> pb.ListDocumentsResponse:
        """See session.proto."""
        workspace = own_workspace(caller(context), request.workspace)
        rows, token = await self._parts.readers.run(
            lambda reader: documents.page_of(reader, workspace, request)
        )
        return pb.ListDocumentsResponse(
            documents=[_document(row) for row in rows], next_page_token=token
        )


def _document(row: DocumentRow) -> types_pb2.DocumentInfo:
    return types_pb2.DocumentInfo(
        kind=row.kind,
        name=row.name,
        workspace=row.workspace,
        version=row.version,
        time=wire.timestamp(row.time),
        data=row.data,
    )
