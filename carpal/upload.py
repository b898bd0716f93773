"""A call of many messages and one answer, which may come before the last message."""

from typing import Generic, TypeVar

import grpc

Request = TypeVar("Request")
Response = TypeVar("Response")


class Upload(Generic[Request, Response]):
    """Sends in order; the answer, or its error, is always the server's own."""

    def __init__(self, call: "grpc.aio.StreamUnaryCall[Request, Response]") -> None:
        self._call = call

    async def send(self, request: Request) -> bool:
        """Send a message once there is room; False when the server answered: send no more."""
        if self._call.done():
            return False
        try:
            await self._call.write(request)
        except grpc.aio.AioRpcError:
            return False  # it answered while we wrote; gRPC says here but that writing failed
        return True

    async def answer(self) -> Response:
        """The answer to all that was sent. Raises grpc.RpcError."""
        await self._call.done_writing()
        return await self._call

    def close(self) -> None:
        """Give up, unless it was answered."""
        self._call.cancel()
