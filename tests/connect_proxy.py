"""A real HTTP proxy that knows CONNECT, for tests: it has names of its own, and asks who one is."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ConnectProxy:
    """Who came, and where it leads them; use `connect_proxy`."""

    def __init__(self, names: dict[str, str], user: str) -> None:
        self.names = names
        """`host:port` asked for → `host:port` dialled; what is not here is forbidden."""
        self.port = 0
        self.asked: list[str] = []
        """`host:port` of each CONNECT, refused ones too."""
        self._user = user
        self._tunnels: set[asyncio.Task[None]] = set()

    def url(self, who: str = "") -> str:
        """Its URL; `who` is `user:password`."""
        return f"http://{who + '@' if who else ''}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        task = asyncio.current_task()
        assert task is not None
        self._tunnels.add(task)
        try:
            await self._answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of them left
        finally:
            self._tunnels.discard(task)
            writer.close()

    async def end(self) -> None:
        """Cut every tunnel."""
        for task in list(self._tunnels):
            task.cancel()
        await asyncio.gather(*self._tunnels, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = first.split(" ")
        self.asked.append(target)
        sent = {line.partition(":")[0].lower(): line.partition(":")[2].strip() for line in headers}
        known = "Basic " + base64.b64encode(self._user.encode()).decode()
        if self._user and sent.get("proxy-authorization") != known:
            writer.write(b'HTTP/1.1 407 Who are you\r\nProxy-Authenticate: Basic realm="x"\r\n\r\n')
        elif method != "CONNECT" or target not in self.names:
            writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        else:
            host, _, port = self.names[target].rpartition(":")
            there, back = await asyncio.open_connection(host, int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pipe(reader, back))
                    group.create_task(_pipe(there, writer))
            except* OSError:
                pass  # a reset is an end
            finally:
                back.close()


async def _pipe(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()
    target.close()


@asynccontextmanager
async def connect_proxy(names: dict[str, str], user: str = "") -> AsyncIterator[ConnectProxy]:
    """A proxy on loopback; `user` is the `user:password` it asks for."""
    proxy = ConnectProxy(names, user)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
