"""A workspace's sessions are listed by page."""

import asyncio
from typing import Any

from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from carpal.verdict import equal, must, refused
from sessiond.conformance.bench import Bench
from sessiond.conformance.group import Group

group = Group("sessions")


async def _made(bench: Bench, workspace: str, count: int) -> list[str]:
    """Sessions made one after the other, oldest first."""
    return [(await bench.session(workspace=workspace)).session_id for _ in range(count)]


async def _listed(bench: Bench, workspace: str, **fields: Any) -> list[str]:
    """All pages' ids."""
    ids: list[str] = []
    token = ""
    while True:
        request = pb.ListSessionsRequest(workspace=workspace, page_token=token, **fields)
        page = await bench.brain.ListSessions(request)
        ids += [session.session_id for session in page.sessions]
        token = page.next_page_token
        if not token:
            return ids
        must(bool(page.sessions), "an empty page has a next one")


@group
async def newest_first(bench: Bench) -> None:
    """Sessions are listed newest first, page by page, each once."""
    workspace = bench.fresh("check")
    made = await _made(bench, workspace, 7)
    for limit in (1, 3, 7, 100):
        equal(f"by {limit}", await _listed(bench, workspace, limit=limit), made[::-1])


@group
async def default_page(bench: Bench) -> None:
    """A page has 100 sessions when no limit is given, and a limit over 1,000 is refused."""
    workspace = bench.fresh("check")
    await asyncio.gather(*(bench.session(workspace=workspace) for _ in range(101)))
    page = await bench.brain.ListSessions(pb.ListSessionsRequest(workspace=workspace))
    equal("sessions", len(page.sessions), 100)
    must(bool(page.next_page_token), "there is no next page")
    with refused(Reason.INVALID_FIELD):
        await bench.brain.ListSessions(pb.ListSessionsRequest(workspace=workspace, limit=1001))


@group
async def page_token(bench: Bench) -> None:
    """A page token of another query is refused."""
    workspace = bench.fresh("check")
    await _made(bench, workspace, 3)
    request = pb.ListSessionsRequest(workspace=workspace, limit=1)
    token = (await bench.brain.ListSessions(request)).next_page_token
    for other in (
        pb.ListSessionsRequest(workspace=workspace, include_archived=True, page_token=token),
        pb.ListSessionsRequest(workspace=bench.fresh("check"), page_token=token),
        pb.ListSessionsRequest(workspace=workspace, page_token=token[::-1]),
    ):
        with refused(Reason.INVALID_FIELD):
            await bench.brain.ListSessions(other)


@group
async def archived_listed(bench: Bench) -> None:
    """Archived sessions are listed only when asked for."""
    made = await bench.session()
    await bench.operator.ArchiveSession(pb.ArchiveSessionRequest(session_id=made.session_id))
    newest = pb.ListSessionsRequest(limit=1000)
    ids = {one.session_id for one in (await bench.operator.ListSessions(newest)).sessions}
    must(made.session_id not in ids, "it is listed")
    newest.include_archived = True
    ids = {one.session_id for one in (await bench.operator.ListSessions(newest)).sessions}
    must(made.session_id in ids, "it is not listed when archived ones are asked for")


@group
async def by_labels(bench: Bench) -> None:
    """Sessions are listed by labels, all of which must match, as they are now."""
    workspace = bench.fresh("check")
    ids = {}
    for name, labels in {
        "both": {"a": "1", "b": "2"},
        "one": {"a": "1"},
        "other": {"a": "2", "b": "2"},
    }.items():
        ids[name] = bench.fresh("sesn")
        await bench.brain.CreateSession(
            pb.CreateSessionRequest(session_id=ids[name], workspace=workspace, labels=labels)
        )
    equal("a=1", await _listed(bench, workspace, labels={"a": "1"}), [ids["one"], ids["both"]])
    both = {"a": "1", "b": "2"}
    equal("a=1, b=2", await _listed(bench, workspace, labels=both), [ids["both"]])
    equal("a=9", await _listed(bench, workspace, labels={"a": "9"}), [])
    await bench.brain.UpdateSession(
        pb.UpdateSessionRequest(
            session_id=ids["one"], event_id=bench.fresh("sevt"), labels={"a": "", "b": "2"}
        )
    )
    listed = await _listed(bench, workspace, labels={"b": "2"}, limit=1)
    equal("b=2 after a change", listed, [ids["other"], ids["one"], ids["both"]])
