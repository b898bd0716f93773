"""A brain's call of a model, passed on with the key that the brain has not.

Bytes pass as they come, both ways, through the guard and its redactor. What the service says, its
refusals too, goes on as it is; what the vault has to say itself is in the API's shape, so that
whoever asked tries again as it would with the service. There is no second try here.
"""

from collections.abc import Awaitable, Callable

from carpal.errors import CarpalError
from vault.audit.audit import Audit, Record
from vault.guard.errors import GuardError
from vault.guard.headers import Headers, from_caller
from vault.guard.limits import MIB, Limits
from vault.guard.response import Response
from vault.guard.targets import Target
from vault.guard.transport import Guard, Request
from vault.http.exchange import Exchange, TooLarge
from vault.model_key.aliases import Alias
from vault.model_key.said import MARK, WANTED, No, asked, of_guard, of_refusal

REQUEST_MAX = 32 * MIB
"""What the API takes."""
LIMITS = Limits(
    connect=10.0,
    first_byte=600.0,
    idle=300.0,
    total=3_600.0,
    kept=30.0,
    request_bytes=REQUEST_MAX,
    reply_bytes=64 * MIB,
)
"""No narrower than a brain's own, which end a call first. Services of models keep connections."""
_JSON = {"content-type": "application/json"}


class ModelProxy:
    """Of one vault process."""

    def __init__(
        self,
        alias: Callable[[str], Awaitable[Alias]],
        audit: Callable[[], Audit],
        guard: Callable[[], Guard],
    ) -> None:
        """`alias` opens one by its name; it and `audit` raise VAULT_SEALED while it is sealed."""
        self._alias = alias
        self._audit = audit
        self._guard = guard

    async def __call__(self, exchange: Exchange) -> None:
        """Answer one request."""
        found = asked(exchange.method, exchange.path, exchange.query)
        if isinstance(found, No):
            await _say(exchange, found)
            return
        name, path = found
        try:
            actor = exchange.caller.uri
            async with self._audit().intent("model.call", actor=actor, name=name) as record:
                await self._passed(exchange, name, path, record)
        except CarpalError as error:
            await _say(exchange, of_refusal(error))

    async def _passed(self, exchange: Exchange, name: str, path: str, record: Record) -> None:
        alias = await self._alias(name)
        target = alias.target(path)
        record.add(
            host=target.host,
            port=target.port,
            generation=alias.generation,
            fingerprint=alias.key.fingerprint,
        )
        events = False
        try:
            async with self._guard().send(
                await _request(exchange, alias, target),
                limits=LIMITS,
                private=alias.private,
                wanted=WANTED,
                lane=("model", name, alias.generation, exchange.caller.uri),
            ) as response:
                events = response.headers.get("content-type", "").startswith("text/event-stream")
                try:
                    await _answer(exchange, response)
                finally:
                    if response.reflected:
                        self._audit().event("secret_reflected", name=name, of=record.number)
                    record.add(bytes=response.received, count=response.status)
        except TooLarge:
            no = No(413, "the request is larger than is passed on", "request_too_large")
        except GuardError as error:
            no = of_guard(error)
        else:
            record.outcome("ok")
            return
        record.outcome("failed", reason=no.code)
        await _say(exchange, no, events=events)


async def _request(exchange: Exchange, alias: Alias, target: Target) -> Request:
    """The same request, with our key in place of whatever the caller would show."""
    headers: Headers = [*from_caller(exchange.headers), alias.shown()]
    length = exchange.header("content-length")
    if length is None:
        return Request("POST", target, headers, await exchange.body(REQUEST_MAX))
    return Request("POST", target, headers, exchange.parts(REQUEST_MAX), length=int(length))


async def _answer(exchange: Exchange, response: Response) -> None:
    await exchange.begin(response.status, {**response.headers, MARK[0]: MARK[1]})
    async for part in response:
        await exchange.write(part)
    await exchange.end()


async def _say(exchange: Exchange, no: No, *, events: bool = False) -> None:
    """Say no: as an answer, or as the last event of one; else what has begun is cut."""
    if not exchange.begun:
        await exchange.passed_over(2 * REQUEST_MAX)
        await exchange.answer(no.status, no.body(), _JSON)
    elif events and not exchange.ended:
        await exchange.write(no.event())
        await exchange.end()
