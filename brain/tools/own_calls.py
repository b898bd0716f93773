"""Calls of the brain's own tools: answered here, from the session's log.

Nothing leaves and nothing changes but what tools are loaded, so a call that an
earlier driver left open is simply answered again.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec import UNSET

from brain.session.driver import Driver
from brain.session.entries import KNOWN_TYPES, Call, Entry, New
from brain.session.results import own, settled
from brain.tools import log_pages
from brain.tools import search as tool_search
from brain.tools.log_search import LogSearch, fits
from brain.tools.offered import deferred, offered
from brain.tools.own import (
    PREFIX,
    READ,
    SEARCH,
    TOOL_SEARCH,
    Read,
    Search,
    ToolSearch,
    asked,
    bad_input,
    reads_log,
)
from brain.tools.readable import text_of
from carpal.errors import CarpalError, refuse
from carpal.status import Reason

_SLICE = 200
"""Events read at once."""


class OwnCalls:
    """The brain's own calls of one driven session."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    async def settle(self, call: Call) -> None:
        """Give a call its result, unless a person interrupted."""
        events = await self._driver.unless(lambda t: t.stopped(call), self._outcome(call))
        if events is None:
            events = [settled(call, "cancelled", "interrupted before it was answered")]
        await self._driver.append(*events)

    async def _outcome(self, call: Call) -> list[New]:
        ask = {SEARCH: self._search, READ: self._read, TOOL_SEARCH: self._find}.get(call.name)
        try:
            if ask is None:
                known = ", ".join(PREFIX + name for name in (SEARCH, READ, TOOL_SEARCH))
                raise refuse(
                    Reason.TOOL_NOT_FOUND, f"no {PREFIX}{call.name}", action=f"there is {known}"
                )
            return await ask(call)
        except CarpalError as error:
            if error.reason is Reason.STALE_EPOCH:
                raise
            return [own(call, "error", str(error))]

    async def _search(self, call: Call) -> list[New]:
        self._check_reads_log()
        given = asked(call.input, Search)
        await self._check_type(given.type)
        search = LogSearch(given, self._driver.transcript)
        before = self._driver.transcript.head + 1 if given.before is UNSET else given.before
        down_to, more = before, False
        async with aclosing(self._newest_first(before, given.after, search.types)) as entries:
            async for entry in entries:
                search.look(entry)
                down_to = entry.position
                if more := search.over():
                    break
        if not more:
            down_to = given.after + 1
        return [own(call, "ok", log_pages.found(search.hits, down_to, more=more))]

    async def _read(self, call: Call) -> list[New]:
        self._check_reads_log()
        given = asked(call.input, Read)
        head = self._driver.transcript.head
        if given.around is not UNSET:
            anchor, at = "around", given.around
            if not 1 <= at <= head:
                raise bad_input("around", f"must be 1 to {head}, the log's head")
            older = await self._slice(before=at + 1, newest_first=True, limit=given.count // 2 + 1)
            entries = older[::-1]
            if left := given.count - len(entries):
                entries += await self._slice(after=at, limit=left)
        elif given.after is not UNSET:
            anchor, at = "after", given.after
            if at >= head:
                raise bad_input("after", f"must be below {head}, the log's head")
            entries = await self._slice(after=at, limit=given.count)
        else:
            anchor, at = "before", head + 1 if given.before is UNSET else given.before
            newest = await self._slice(before=at, newest_first=True, limit=given.count)
            entries = newest[::-1]
        if given.offset and given.offset >= (size := len(text_of(entries[0]))):
            raise bad_input("offset", f"must be below {size}, the event's characters")
        return [own(call, "ok", log_pages.page(entries, anchor, at, head, given.offset))]

    async def _find(self, call: Call) -> list[New]:
        given = asked(call.input, ToolSearch)
        if not given.words.strip() and not given.names:
            raise bad_input("words", "say what the tool should do, or give names")
        transcript = self._driver.transcript
        held = deferred(transcript)
        known = {tool["name"] for tool in offered(transcript)}
        named = [name for name in dict.fromkeys(given.names) if name in held]
        missing = [name for name in given.names if name not in held and name not in known]
        names = [*named, *tool_search.best(held, given.words, given.limit)]
        names = list(dict.fromkeys(names))
        events = []
        if fresh := [name for name in names if name not in transcript.loaded]:
            loaded = {"names": fresh, "tool_use_id": call.call_id}
            events.append(New("context.tools_loaded", loaded))
        return [*events, own(call, "ok", tool_search.told(held, names, missing))]

    def _check_reads_log(self) -> None:
        if not reads_log(self._driver.transcript.agent):
            raise refuse(
                Reason.TOOL_NOT_FOUND,
                "this agent may not read its session's log",
                action="go on with what you see",
            )

    async def _check_type(self, wanted: str) -> None:
        """INPUT_INVALID for a type that is none of ours, and none of this log."""
        if not wanted or any(fits(kind, wanted) for kind in KNOWN_TYPES):
            return
        if not await self._slice(after=0, types=(wanted,), limit=1):
            known = ", ".join(sorted(KNOWN_TYPES))
            raise bad_input("type", f"no event is of type {wanted!r}; there is {known}")

    async def _newest_first(
        self, before: int, after: int, types: tuple[str, ...]
    ) -> AsyncGenerator[Entry, None]:
        while before > after + 1:
            which = {"before": before, "newest_first": True, "limit": _SLICE, "types": types}
            entries = await self._slice(**which)
            for entry in entries:
                if entry.position <= after:
                    return
                yield entry
            if not entries:
                return
            before = entries[-1].position

    async def _slice(self, **which: Any) -> list[Entry]:
        """A slice of the log, however long sessiond is away. STALE_EPOCH when the lease is over."""
        return await self._driver.read(**which)
