"""A workspace's lock: of several processes on one database, one at a time changes its documents
and blobs, whether the job said so before or not."""

import threading
from collections.abc import Callable
from hashlib import sha256

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import session_pb2 as pb
from sessiond.postgres.store import PostgresStore
from sessiond.rows import NOTHING, Needs
from sessiond.rules import blobs, documents
from sessiond.rules.blobs import BLOB_CAP, Wanted
from sessiond.store import Transaction
from tests.sessiond.clocks import FakeClock
from tests.sessiond.desk import Desk
from tests.sessiond.serving import WAIT

Job = Callable[[Transaction], object]


class Racer(threading.Thread):
    """Another process: runs one job as a transaction of its own."""

    def __init__(self, url: str, clock: FakeClock, job: Job, needs: Needs) -> None:
        super().__init__(daemon=True)
        self._url, self._clock, self._job, self._needs = url, clock, job, needs
        self.ready = threading.Event()
        self.outcome: object = None

    def run(self) -> None:
        """Begin, say so, and go on as soon as the database lets it."""
        store = PostgresStore(self._url, self._clock)
        self.ready.set()
        try:
            tx = store.begin([self._needs])
            self.outcome = self._job(tx)
            store.commit()
        except CarpalError as error:
            self.outcome = error.reason
            store.rollback()
        finally:
            store.close()


def race(database: str, clock: FakeClock, job: Job, needs: Needs) -> object:
    """What the second sees, which began before the first committed; both do the same job."""
    store = PostgresStore(database, clock)
    try:
        tx = store.begin([needs])
        job(tx)
        racer = Racer(database, clock, job, needs)
        racer.start()
        assert racer.ready.wait(WAIT)
        store.commit()
        racer.join(WAIT)
        assert not racer.is_alive()
    finally:
        store.close()
    return racer.outcome


@pytest.fixture(params=[Needs(workspaces=("default",)), NOTHING], ids=["said", "found"])
def needs(request: pytest.FixtureRequest) -> Needs:
    found: Needs = request.param
    return found


def test_of_two_processes_that_write_one_version_one_does(
    database: str, clock: FakeClock, needs: Needs
) -> None:
    turns = iter([b'"first"', b'"second"'])

    def put(tx: Transaction) -> object:
        request = pb.PutDocumentRequest(kind="agent", name="a", data=next(turns))
        return documents.put(tx, "default", request)

    assert race(database, clock, put, needs) is Reason.VERSION_CONFLICT


def test_two_processes_keep_one_piece_of_a_blob_once(
    database: str, clock: FakeClock, needs: Needs
) -> None:
    want = Wanted("default", sha256(b"abc").digest(), 3, "")

    def put(tx: Transaction) -> object:
        return blobs.put(tx, want, 0, b"ab", BLOB_CAP).held

    assert race(database, clock, put, needs) == 2
    store = PostgresStore(database, clock)
    try:
        assert Desk(store, clock).run(lambda tx: tx.blobs.total("default")) == 3
    finally:
        store.close()


def test_two_processes_together_do_not_pass_the_cap(
    database: str, clock: FakeClock, needs: Needs
) -> None:
    turns = iter([b"abc", b"xyz"])

    def put(tx: Transaction) -> object:
        data = next(turns)
        want = Wanted("default", sha256(data).digest(), 3, "")
        return blobs.put(tx, want, 0, data, 5).held

    assert race(database, clock, put, needs) is Reason.STORE_FULL
