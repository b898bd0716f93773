"""sessiond.rules.documents: versions, who may write what, what is JSON, and pages of them."""

import base64

import pytest

from carpal.identity import Identity
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from sessiond.rules import documents
from sessiond.store_documents import DocumentRow
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import ADA, BRAIN, Desk, refused

LARGEST = 256 * 1024


def put(
    desk: Desk,
    name: str,
    expected: int,
    data: bytes = b"{}",
    *,
    kind: str = "agent",
    workspace: str = "default",
    who: Identity = ADA,
) -> DocumentRow:
    request = pb.PutDocumentRequest(kind=kind, name=name, expected_version=expected, data=data)
    documents.check_put(who, request)
    return desk.run(lambda tx: documents.put(tx, workspace, request))


def get(
    desk: Desk, name: str, version: int = 0, *, kind: str = "agent", workspace: str = "default"
) -> DocumentRow:
    request = pb.GetDocumentRequest(kind=kind, name=name, version=version)
    reader = desk.store.reader()
    try:
        return documents.find(reader, workspace, request)
    finally:
        reader.close()


def listed(
    desk: Desk, kind: str = "agent", workspace: str = "default", **fields: object
) -> tuple[list[tuple[str, int]], str]:
    request = pb.ListDocumentsRequest(kind=kind, **fields)  # type: ignore[arg-type]
    reader = desk.store.reader()
    try:
        rows, token = documents.page_of(reader, workspace, request)
    finally:
        reader.close()
    return [(row.name, row.version) for row in rows], token


def test_every_version_is_kept_and_the_newest_is_read_when_none_is_named(
    desk: Desk, clock: FakeClock
) -> None:
    for version in range(3):
        clock.advance(1)
        row = put(desk, "a", version, b'{"v":%d}' % version)
        assert (row.version, row.time) == (version + 1, clock.wall())
    assert [get(desk, "a", n).data for n in (1, 2, 3, 0)] == [
        b'{"v":0}',
        b'{"v":1}',
        b'{"v":2}',
        b'{"v":2}',
    ]


@pytest.mark.parametrize("version", [4, 2**63 - 1, 2**63, 2**64 - 1])
def test_a_version_that_is_not_there_is_not_found(desk: Desk, version: int) -> None:
    for n in range(3):
        put(desk, "a", n)
    with refused(Reason.DOCUMENT_NOT_FOUND):
        get(desk, "a", version)


def test_what_is_not_the_newest_is_a_conflict_that_names_the_newest(desk: Desk) -> None:
    for n in range(3):
        put(desk, "a", n, b'"%d"' % n)
    for expected in (0, 1, 2, 4, 2**64 - 1):
        with refused(Reason.VERSION_CONFLICT) as caught:
            put(desk, "a", expected, b'"x"')
        assert caught.value.fields["version"] == "3"
    with refused(Reason.VERSION_CONFLICT):
        put(desk, "new", 1)


def test_the_same_again_is_the_first_answer_also_when_others_wrote_since(desk: Desk) -> None:
    first = put(desk, "a", 0, b'"1"')
    second = put(desk, "a", 1, b'"2"')
    assert put(desk, "a", 0, b'"1"') == first
    assert put(desk, "a", 1, b'"2"') == second
    assert get(desk, "a").version == 2
    # What is there already may be written anew: that is a version.
    assert put(desk, "a", 2, b'"2"').version == 3


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        b"{",
        b"{}{}",
        b"{'a':1}",
        b"NaN",
        b"[1,]",
        b"\xff",
        b'"\xff"',
        b'"' + b"x" * (LARGEST - 1) + b'"',
        b"[" * 200_000,
        b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=lambda data: repr(data[:8]),
)
def test_what_is_no_json_or_too_much_is_refused(desk: Desk, data: bytes) -> None:
    with refused(Reason.INVALID_FIELD) as caught:
        put(desk, "a", 0, data)
    assert caught.value.fields["field"] == "data"
    with refused(Reason.DOCUMENT_NOT_FOUND):
        get(desk, "a")


@pytest.mark.parametrize("data", [b"null", b" [1] ", '"é"'.encode(), b'"%s"' % (b"x" * 262_142)])
def test_any_json_is_kept_byte_for_byte(desk: Desk, data: bytes) -> None:
    put(desk, "a", 0, data)
    assert get(desk, "a").data == data


@pytest.mark.parametrize(
    ("field", "kind", "name"),
    [
        ("kind", "", "a"),
        ("kind", "Agent", "a"),
        ("kind", "_a", "a"),
        ("kind", "a-b", "a"),
        ("kind", "a" * 65, "a"),
        ("kind", "agent\n", "a"),
        ("name", "agent", ""),
        ("name", "agent", "a/b"),
        ("name", "agent", "a" * 129),
    ],
)
def test_a_malformed_kind_or_name_is_refused(desk: Desk, field: str, kind: str, name: str) -> None:
    with refused(Reason.INVALID_FIELD) as putting:
        put(desk, name, 0, kind=kind)
    with refused(Reason.INVALID_FIELD) as getting:
        get(desk, name, kind=kind)
    assert putting.value.fields["field"] == getting.value.fields["field"] == field


def test_retention_is_an_operators_and_says_what_it_means(desk: Desk) -> None:
    rules = b'{"maximum_age_days":30,"hold":true}'
    with refused(Reason.ROLE_NOT_ALLOWED):
        put(desk, "default", 0, rules, kind="retention", who=BRAIN)
    for name, data in [
        ("other", rules),
        ("default", b'{"maximum_age_days":0}'),
        ("default", b'{"maximum_age":30}'),
        ("default", b'{"hold":"yes"}'),
        ("default", b"[]"),
    ]:
        with refused(Reason.INVALID_FIELD):
            put(desk, name, 0, data, kind="retention")
    assert put(desk, "default", 0, rules, kind="retention").version == 1
    assert put(desk, "default", 1, b"{}", kind="retention").version == 2


def test_a_list_has_each_name_once_in_its_newest_version(desk: Desk) -> None:
    names = [f"d{n}" for n in range(7)]
    for name in names:
        for version in range(3):
            put(desk, name, version)
    put(desk, "e", 0, kind="environment")
    put(desk, "d9", 0, workspace="elsewhere")
    found, token = [], ""
    for length in (3, 3, 1):
        page, token = listed(desk, limit=3, page_token=token)
        assert len(page) == length
        found += page
    assert (sorted(found), token) == ([(name, 3) for name in names], "")
    assert listed(desk, limit=7) == (found, "")
    assert listed(desk, "nothing") == ([], "")


def test_a_page_is_cut_where_a_message_would_be_too_large(desk: Desk) -> None:
    large = b'"%s"' % (b"x" * (LARGEST - 2))
    for n in range(10):
        put(desk, f"d{n}", 0, large)
    page, token = listed(desk)
    rest, end = listed(desk, page_token=token)
    assert (len(page), len(rest), end) == (7, 3, "")


def test_a_token_is_of_its_query_alone(desk: Desk) -> None:
    for name in ("a", "b"):
        put(desk, name, 0)
        put(desk, name, 0, kind="environment")
        put(desk, name, 0, workspace="elsewhere")
    _, token = listed(desk, limit=1)
    raw = base64.urlsafe_b64decode(token)
    for kind, workspace, bad in [
        ("environment", "default", token),
        ("agent", "elsewhere", token),
        ("agent", "default", token[:-1]),
        ("agent", "default", "é"),
        ("agent", "default", base64.urlsafe_b64encode(raw[:8]).decode()),
        ("agent", "default", base64.urlsafe_b64encode(raw[:8] + b"\xff").decode()),
    ]:
        with refused(Reason.INVALID_FIELD) as caught:
            listed(desk, kind, workspace, page_token=bad)
        assert caught.value.fields["field"] == "page_token"
    with refused(Reason.INVALID_FIELD):
        listed(desk, limit=1001)


def test_a_document_is_its_workspaces(desk: Desk) -> None:
    put(desk, "a", 0, b'"mine"')
    with refused(Reason.DOCUMENT_NOT_FOUND):
        get(desk, "a", workspace="elsewhere")
    assert put(desk, "a", 0, b'"theirs"', workspace="elsewhere").version == 1
    assert get(desk, "a").data == b'"mine"'


def test_the_rules_and_the_reader_both_know_the_newest(desk: Desk) -> None:
    assert desk.run(lambda tx: tx.documents.newest("default", "agent", "a")) is None
    row = put(desk, "a", 0)
    assert desk.run(lambda tx: tx.documents.newest("default", "agent", "a")) == row
    reader = desk.store.reader()
    assert reader.documents.newest("default", "agent", "a") == row
    reader.close()
