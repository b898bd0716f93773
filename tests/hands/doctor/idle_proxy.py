"""What cuts connections that are silent for a while, or too old: for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class IdleProxy:
    """Between all who dial `address` and who listens at a target; use `idle_proxy`."""

    def __init__(self, target: str, silence: float, age: float) -> None:
        self.address = ""
        self.silence = silence
        """Seconds without a byte, after which a connection is cut."""
        self.age = age
        """Seconds after which it is cut in any case."""
        self._target = target
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._over = False

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        if self._over:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[task] = writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        loop = asyncio.get_running_loop()
        said = loop.time()
        oldest = said + self.age

        async def passing(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            nonlocal said
            while data := await source.read(65536):
                said = loop.time()
                target.write(data)

        pipes = [
            asyncio.create_task(passing(reader, back)),
            asyncio.create_task(passing(there, writer)),
        ]
        try:
            while (left := min(said + self.silence, oldest) - loop.time()) > 0:
                done, _ = await asyncio.wait(
                    pipes, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                if done:
                    break
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            for end in (writer, back):
                end.transport.abort()

    async def end(self) -> None:
        """Cut all."""
        self._over = True
        for task, writer in self._serving.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*self._serving, return_exceptions=True)


@asynccontextmanager
async def idle_proxy(
    target: str, *, silence: float = 3600.0, age: float = 3600.0
) -> AsyncIterator[IdleProxy]:
    """One on a free port."""
    proxy = IdleProxy(target, silence, age)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
