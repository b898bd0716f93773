"""The clusters that tests run against: real, durable, and gone afterwards."""

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests import postgres
from tests.pace import AT_ONCE
from tests.postgres import Cluster, cluster, conninfo, standby

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    postgres.programs() is None,
    reason="PostgreSQL is not on this machine: Debian's package `postgresql` brings it",
)


def rows(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def test_a_cluster_syncs_and_sums_what_it_writes(postgres: Cluster) -> None:
    settings = {
        name: rows(postgres.conninfo, f"SHOW {name}")[0][0]
        for name in ("fsync", "full_page_writes", "synchronous_commit", "data_checksums")
    }
    assert set(settings.values()) == {"on"}


def test_it_asks_for_the_password_on_loopback(postgres: Cluster) -> None:
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(postgres.conninfo.replace(postgres.password, "wrong"))


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_database(postgres_url: str, turn: int) -> None:
    run(postgres_url, f"CREATE TABLE mine (turn int DEFAULT {turn})")


def test_what_was_committed_is_there_after_a_kill() -> None:
    with cluster() as killed:
        run(killed.conninfo, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
        killed.kill()
        assert not killed.is_alive
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(killed.conninfo)
        killed.restart()
        assert rows(killed.conninfo, "SELECT n FROM kept") == [(1,)]
        folder = killed.folder
    assert not folder.exists()


def test_a_promoted_standby_has_every_commit_and_takes_writes() -> None:
    with cluster() as primary, standby(of=primary) as second:
        either = conninfo(primary, second)
        run(either, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (1)")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            run(second.conninfo, "INSERT INTO kept VALUES (2)")
        primary.kill()
        second.promote()
        run(either, "INSERT INTO kept VALUES (2)")
        assert rows(either, "SELECT n FROM kept ORDER BY n") == [(1,), (2,)]


def test_a_primary_goes_on_alone_once_its_standby_is_no_more(postgres: Cluster) -> None:
    with standby(of=postgres) as second:
        second.kill()
    # Else this waits for the standby until the test's own limit.
    run(postgres.conninfo, "CREATE TABLE alone (n int)", "DROP TABLE alone")


def test_a_cluster_ends_with_whoever_started_it() -> None:
    program = """if True:
        from tests.postgres import cluster
        with cluster() as made:
            print(made.folder, made._server.pid, flush=True)
            input()
    """
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        assert starter.stdout is not None
        folder, pid = starter.stdout.readline().split()
        end = os.pidfd_open(int(pid))
        starter.send_signal(signal.SIGKILL)
    assert select.select([end], [], [], AT_ONCE)[0]
    os.close(end)
    shutil.rmtree(folder)
