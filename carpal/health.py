"""gRPC's health service: whether this server takes work, asked once or followed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from carpal.rpc import health_pb2, health_pb2_grpc

_Status = health_pb2.HealthCheckResponse
_SERVER = ""
"""The name of the server as a whole; it has no parts that are asked for by name."""


class Health(health_pb2_grpc.HealthServicer):
    """It serves until `leave`, and from then on never again."""

    def __init__(self) -> None:
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Say from now on, also to those who follow, that no more work is taken."""
        self._leaving.set()

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> health_pb2.HealthCheckResponse:
        """NOT_FOUND for any name but that of the server."""
        if request.service != _SERVER:
            await context.abort(grpc.StatusCode.NOT_FOUND, "only the server, by an empty name")
        return self._now()

    async def Watch(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """What is, then what it becomes; it does not end by itself."""
        if request.service != _SERVER:
            yield _Status(status=_Status.SERVICE_UNKNOWN)
        else:
            if not self._leaving.is_set():
                yield self._now()
                await self._leaving.wait()
            yield self._now()
        await asyncio.Event().wait()  # a stream that ended would be opened again

    def _now(self) -> health_pb2.HealthCheckResponse:
        leaving = self._leaving.is_set()
        return _Status(status=_Status.NOT_SERVING if leaving else _Status.SERVING)
