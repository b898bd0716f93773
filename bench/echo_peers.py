"""The peers of a call through the link: servers that echo 200 bytes, each in a process of its own.

`python -m bench.echo_peers KIND FOLDER` serves one and prints its port. Unary gRPC and HTTP speak
mutual TLS, as we do; MCP speaks plain HTTP, which only helps it.
"""

import asyncio
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
import uvicorn
from mcp import Client
from mcp.server.mcpserver import MCPServer
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from carpal.client import dial
from carpal.identity import Role, server_name
from carpal.server import serve
from carpal.tls import IdentityFiles, server_credentials

PAYLOAD = "x" * 200
_METHOD = "/carpal.v1.Hand/Describe"
"""A row of the table of who may call what, so that a server of ours lets it in."""
_SECONDS = 30.0

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def peer(kind: str, pki: Path, client: IdentityFiles) -> AsyncIterator[Call]:
    """One call of a peer, which serves until the block ends. `pki` has its identity."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.echo_peers", kind, str(pki)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_SECONDS):
            port = int(await process.stdout.readline())
        async with _CLIENTS[kind](port, client) as call:
            await _until_it_answers(call)
            yield call
    finally:
        process.kill()
        await process.wait()


async def _until_it_answers(call: Call) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            await call()
        except (grpc.RpcError, httpx2.HTTPError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)  # a server that starts tells nobody
        else:
            return


@asynccontextmanager
async def _unary_client(port: int, files: IdentityFiles) -> AsyncIterator[Call]:
    data = PAYLOAD.encode()
    async with dial(f"127.0.0.1:{port}", Role.BRAIN, files) as channel:
        method: Any = channel.unary_unary(_METHOD)
        yield lambda: method(data, timeout=_SECONDS)


@asynccontextmanager
async def _http_client(port: int, files: IdentityFiles) -> AsyncIterator[Call]:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    host = server_name(Role.BRAIN, files.identity().trust_domain)
    async with httpx2.AsyncClient(verify=context, timeout=_SECONDS) as client:

        async def call() -> object:
            answer = await client.post(
                f"https://127.0.0.1:{port}/",
                content=PAYLOAD,
                extensions={"sni_hostname": host},
            )
            return answer.raise_for_status().content

        yield call


@asynccontextmanager
async def _mcp_client(port: int, _files: IdentityFiles) -> AsyncIterator[Call]:
    await _listening(port)
    async with Client(f"http://127.0.0.1:{port}/mcp") as client:
        yield lambda: client.call_tool("echo", {"text": PAYLOAD})


async def _listening(port: int) -> None:
    until = time.monotonic() + _SECONDS
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.05)  # a server that starts tells nobody
        else:
            writer.close()
            return


_CLIENTS: dict[str, Callable[[int, IdentityFiles], Any]] = {
    "unary": _unary_client,
    "http": _http_client,
    "mcp": _mcp_client,
}


async def _serve(kind: str, files: IdentityFiles) -> None:
    if kind == "unary":
        async with serve("127.0.0.1:0", server_credentials(files), _register) as server:
            print(server.address.rpartition(":")[2], flush=True)
            await asyncio.Event().wait()
    listening = socket.create_server(("127.0.0.1", 0))
    options: dict[str, Any] = {"log_level": "critical", "access_log": False}
    if kind == "http":
        app: Any = Starlette(routes=[Route("/", _echo, methods=["POST"])])
        options |= {
            "ssl_keyfile": str(files.key),
            "ssl_certfile": str(files.certificate),
            "ssl_ca_certs": str(files.ca),
            "ssl_cert_reqs": ssl.CERT_REQUIRED,
        }
    else:
        tools = MCPServer("echo")
        tools.tool()(echo)
        app = tools.streamable_http_app()
    print(listening.getsockname()[1], flush=True)
    await uvicorn.Server(uvicorn.Config(app, **options)).serve(sockets=[listening])


def echo(text: str) -> str:
    """What was said."""
    return text


async def _echo(request: Request) -> Response:
    return Response(await request.body())


def _register(server: grpc.aio.Server) -> None:
    async def answer(request: bytes, _context: object) -> bytes:
        return request

    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    service, _, method = _METHOD.lstrip("/").partition("/")
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {method: handler}),)
    )


if __name__ == "__main__":
    import uvloop

    uvloop.run(_serve(sys.argv[1], IdentityFiles(Path(sys.argv[2]))))
