"""The model: asked through a provider, its reply whole, its failures by kind.

The door to the `anthropic` package, with the clients it makes
(`brain/models/clients.py`). One call is one request: retries are the
harness's, so that each attempt is in the log.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import Any

import anthropic
import httpx2

from brain.effects import Failed
from brain.models import clients, failures, features, media
from brain.models.clients import Client, Made, Unusable
from brain.models.reading import Delta, Reading, Unreadable
from brain.models.settings import Provider, read_providers
from brain.models.unsaid import Unsaid, without_paths
from brain.session import model_kinds as kinds
from brain.text import canonical, clean
from brain.turnstile import Turnstile
from carpal.layers import Layer

log = logging.getLogger(__name__)

Json = dict[str, Any]

DEFAULT = "anthropic"
"""The provider of agents that name none, unless the brain's settings name another."""
TOGETHER = 100
"""Calls through one client at once; more are made as they are needed. At each call's begin and end
a client's pool looks at all its connections: with a thousand, that left the brain no time to renew
its leases."""
_EACH_PASS = 8
"""Replies that begin to be read in one pass of the event loop: each takes some milliseconds, when
all of it has come."""
_REST = 0.05
"""Seconds for what comes after a message: its stream's end is on its way with it."""
_NEEDS_WORDS = frozenset({"end_turn", "tool_use", "pause_turn"})
"""Stop reasons after which an empty reply leaves nothing to go on with."""
_SAID = frozenset({"thinking", "redacted_thinking"})
_ANSWERED = "carpal-answer"
"""The header by which the vault marks what the model's service said."""
_NO_BLOBS: Mapping[str, bytes] = MappingProxyType({})


@dataclass(frozen=True)
class Reply:
    """What the model said, complete."""

    blocks: list[Json]
    """Content blocks as the API gave them. A `tool_use` whose input is no JSON object has
    `input: {}`, and what came as `invalid_input`."""
    stop_reason: str
    usage: Json
    stop: Json = field(default_factory=dict)
    """What else the end says: `stop_sequence`, `stop_details`."""


class Model:
    """Calls Claude at the providers of a brain."""

    def __init__(
        self, providers: Mapping[str, Provider] | None = None, default: str = DEFAULT
    ) -> None:
        """`providers`: by name, as `read_providers` gives them; the four kinds when None."""
        self._providers = dict(read_providers({}) if providers is None else providers)
        self._default = default
        self._made: dict[str, list[Made]] = {}
        self._making = asyncio.Lock()
        self._turnstile = Turnstile(_EACH_PASS)
        self._old: list[Made] = []
        """Made from certificates that were renewed since, with calls under way."""

    @staticmethod
    async def warm() -> None:
        """Load what the package loads at its first call: some 30 ms, better spent at start.

        The call goes to a port of this process that refuses it.
        """

        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 \r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            here = f"http://{host}:{port}"
            bearer = {"Authorization": "Bearer none"}
            nobody = Provider(kind="anthropic", base_url=here, headers=bearer, first_timeout=5)
            model = Model({DEFAULT: nobody})
            await model.call(
                {"model": "none", "max_tokens": 1, "messages": []}, lambda text, thinking: None
            )
            await model.close()

    async def close(self) -> None:
        """Close connections."""
        row = [made for each in self._made.values() for made in each]
        for made in (*self._old, *row):
            await made.client.close()
        self._made, self._old = {}, []

    async def why_not(self) -> str:
        """Why agents that name no provider cannot be answered, as far as is known unasked."""
        try:
            made = await self._client(self._default)
        except Unusable as error:
            return f"{error} ({error.where})" if error.where else str(error)
        except clients.identity_errors(self._providers[self._default].kind) as error:
            return str(error)
        keyed = self._providers[self._default].vault or clients.has_identity(made.client)
        return "" if keyed else _no_key(self._default)

    def lacking(self, request: Json, provider: str = "") -> list[str]:
        """Features the request uses that the provider is known not to have, sorted."""
        settings = self._providers.get(provider or self._default)
        return features.lacking(settings.kind, settings.lacks, request) if settings else []

    def provider(self, named: str) -> str:
        """The provider that is asked where an agent names this one; empty is none."""
        return named or self._default

    async def call(
        self,
        parameters: Json,
        delta: Delta,
        provider: str = "",
        contents: Mapping[str, bytes] = _NO_BLOBS,
    ) -> Reply | Failed:
        """Stream one reply. Failures of the service are a `Failed`; bugs raise.

        `contents`: the bytes of the blobs that the parameters name, by these names.

        Bounded: by the provider's settings to connect, to the first byte, between two pieces and
        as a whole.
        """
        name = provider or self._default
        settings = self._providers.get(name, _NONE)
        kind = settings.kind
        reading = Reading(delta)
        unsaid = Unsaid()
        try:
            made = await self._client(name)
            unsaid = made.unsaid
            if not settings.vault and not clients.has_identity(made.client):
                # The package would raise a TypeError about headers.
                return Failed(kinds.AUTHENTICATION, _no_key(name), retryable=False)
            made.calls += 1
            try:
                async with asyncio.timeout(settings.whole_timeout):
                    await _read(made.client, parameters, contents, reading, self._turnstile)
            finally:
                made.calls -= 1
                await self._close_old()
            answer = _reply(reading)
        except TimeoutError:
            answer = failures.timed_out(f"the reply took more than {settings.whole_timeout:g} s")
        except (anthropic.APIError, httpx2.HTTPError) as error:
            answer = _failed(error, parameters, settings, reading, unsaid)
            if settings.vault and _of_vault(error):
                answer = replace(answer, layer=str(Layer.VAULT))
        except Unusable as error:
            told = {"provider": name, "error": str(error), "where": error.where}
            log.warning("a provider cannot be used", extra=told)
            answer = Failed(kinds.PROVIDER, str(error), retryable=False)
        except RecursionError:
            answer = failures.cut("the reply cannot be read: it is nested too deeply")
        except clients.stream_errors(kind) as error:
            answer = failures.cut(unsaid.strike(f"the reply cannot be read: {error}"))
        except clients.identity_errors(kind) as error:
            answer = _no_identity(error)
        if isinstance(answer, Reply):
            return answer
        usage = answer.usage if answer.usage is not None else reading.so_far()
        message = _named(name, answer)
        return replace(answer, message=clean(unsaid.strike(message)), usage=usage)

    async def _close_old(self) -> None:
        """Close what nobody calls through any more."""
        done = [made for made in self._old if not made.calls]
        self._old = [made for made in self._old if made.calls]
        for made in done:
            await made.client.close()

    async def _client(self, name: str) -> Made:
        """A client of a provider that has room for a call. Raises Unusable."""
        settings = self._providers.get(name)
        if settings is None:
            known = ", ".join(sorted(self._providers))
            raise Unusable(f"this brain has no provider {name!r}; it has {known}")
        async with self._making:
            row = self._made.setdefault(name, [])
            stamp = clients.stamp(settings)
            good = [made for made in row if made.stamp == stamp]
            if (free := next((made for made in good if made.calls < TOGETHER), None)) is not None:
                return free
            # In a thread: a cloud's package takes a second to load.
            new = await asyncio.to_thread(clients.make, name, settings)
            self._old += [made for made in row if made not in good]
            self._made[name] = [*good, new]
            await self._close_old()
            return new


_NONE = Provider(kind="anthropic")


def _no_key(name: str) -> str:
    if name == DEFAULT:
        return "the brain has no key for the model: start it with ANTHROPIC_API_KEY set"
    what = f"set token_command in [providers.{name}], or start it with ANTHROPIC_API_KEY set"
    return f"the brain has no key for provider {name!r}: {what}"


def _named(name: str, failed: Failed) -> str:
    """The message of a failure, with the provider where its settings may be the cause."""
    said = f"provider {name!r} answered {failed.status}"
    if failed.kind == kinds.NOT_FOUND:
        return f"{said}: check base_url and model ({failed.message})"
    if failed.kind == kinds.PROVIDER and failed.status:
        return f"{said}: {failed.message}"
    return failed.message


def _sent(parameters: Json, contents: Mapping[str, bytes], *, own: bool) -> tuple[Json, bytes]:
    """What is sent, as an object, and for our own client as bytes."""
    # As the request stands, not through the package's types: what is sent is what was hashed.
    if contents:
        parameters = media.filled(parameters, contents)
    whole = {**parameters, "stream": True}
    return whole, canonical(whole) if own else b""


async def _read(
    client: Client,
    parameters: Json,
    contents: Mapping[str, bytes],
    reading: Reading,
    turnstile: Turnstile,
) -> None:
    own = isinstance(client, anthropic.AsyncAnthropic)  # a cloud's changes what is sent
    if contents:  # megabytes, and this brain drives others meanwhile
        whole, body = await asyncio.to_thread(_sent, parameters, contents, own=own)
    else:
        whole, body = _sent(parameters, contents, own=own)
    stream = await client.post(
        "/v1/messages",
        body=None if own else whole,
        content=body if own else None,
        cast_to=object,
        stream=True,
        stream_cls=anthropic.AsyncStream[object],
    )
    reading.answered = True
    try:
        await turnstile.through()
        async for event in stream:
            if not isinstance(event, dict):
                raise Unreadable(f"an event of the stream is {type(event).__name__}, no object")
            reading.take(event)
            if reading.ended:
                await _rest(stream)
                break
    finally:
        await stream.close()


async def _rest(stream: anthropic.AsyncStream[object]) -> None:
    """What comes after the message: its end, mostly, and then the connection serves the next call.

    One that was not read to its end is closed. What is there is read, and hardly waited for.
    """
    with suppress(TimeoutError, anthropic.APIError, httpx2.HTTPError, Unreadable, ValueError):
        async with asyncio.timeout(_REST):
            async for _ in stream:
                pass


def _reply(reading: Reading) -> Reply | Failed:
    if not reading.ended or not reading.stop_reason:
        return failures.cut("the stream ended before the message did")
    blocks = reading.blocks()
    says = any(block["type"] not in _SAID and block.get("text") != "" for block in blocks)
    if not says and reading.stop_reason in _NEEDS_WORDS:
        why = f"the model said nothing and stopped ({reading.stop_reason})"
        return Failed(kinds.EMPTY, why, retryable=True, usage=reading.usage())
    return Reply(blocks, reading.stop_reason, reading.usage(), reading.stop)


def _of_vault(error: anthropic.APIError | httpx2.HTTPError) -> bool:
    """Whether it was the vault, or the way to it: what the service itself said is marked."""
    if isinstance(error, anthropic.APIStatusError):
        return error.response.headers.get(_ANSWERED) != "model"
    return not isinstance(error.__cause__, Unreadable)


def _failed(
    error: anthropic.APIError | httpx2.HTTPError,
    request: Json,
    settings: Provider,
    reading: Reading,
    unsaid: Unsaid,
) -> Failed:
    if isinstance(error, anthropic.APIStatusError):
        # By the package's types these are texts; on the wire they are anything.
        kind, message = error.type or "", error.api_message or error.message
        texts = isinstance(kind, str) and isinstance(message, str)
        if error.status_code == 200:  # an error event inside a stream
            if not texts:
                return failures.cut("the stream ended with an error that cannot be read")
            return failures.of_event(kind, unsaid.strike(message))
        kind, message = (kind, unsaid.strike(message)) if texts else ("", "")
        after = _retry_after(error.response.headers)
        return failures.of_status(error.status_code, kind, message, request, after)
    cause = error.__cause__
    if isinstance(cause, Unreadable):
        return failures.cut(f"the reply cannot be read: {cause}")
    if isinstance(cause, clients.identity_errors(settings.kind)):
        return _no_identity(cause)
    if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException)):
        if reading.answered:
            return failures.timed_out(f"the stream stood still for {settings.idle_timeout:g} s")
        return failures.timed_out(f"no answer: {type(cause or error).__name__}")
    if reading.answered:
        # A cut in the middle of a stream passes the package unwrapped.
        why = f"the connection was cut: {error or type(error).__name__}"
        return failures.cut(unsaid.strike(why))
    why = f"{type(error).__name__}: {cause or error}"
    return Failed(kinds.FAILED, why, retryable=True)


def _no_identity(error: BaseException) -> Failed:
    """No token or key was to be had; some of that passes."""
    log.warning("no identity for a model", extra={"error": str(error)})
    said = without_paths(str(error)) or type(error).__name__
    if isinstance(error, RuntimeError):
        return Failed(kinds.PROVIDER, said, retryable=False)
    again = bool(getattr(error, "retryable", False))
    return Failed(kinds.AUTHENTICATION, f"no identity for the model: {said}", retryable=again)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a refusal asks to wait, in any of its three forms."""
    if (exact := headers.get("retry-after-ms")) is not None and exact.isdecimal():
        return int(exact) / 1000
    said = headers.get("retry-after", "")
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        there = parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (parsedate_to_datetime(said) - there).total_seconds())
    except (ValueError, TypeError):
        return None
