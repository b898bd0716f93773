"""Real PostgreSQL, from Debian's packages, as private clusters that tests may kill.

Never the system's own cluster: each is made by initdb in a short temporary folder, with data
checksums, and serves a unix socket there and a port on loopback, where it asks for a password.
fsync is on. A standby is a real synchronous one: with it, a commit that was acknowledged is on
both disks; and while it is away, commits wait for it.
"""

import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from tests.notified import WAIT, Server, free_port, owned_by

USER = "postgres"
"""The system's user it runs as when we are root, and the superuser in every cluster."""
SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # In files of the cluster: what is killed leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    "jit": "off",
    "autovacuum_naptime": "10s",
}


def programs() -> Path | None:
    """The folder of the newest PostgreSQL on this machine; None without one."""
    found = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    return max((path.parent for path in found), key=lambda path: int(path.parts[-2]), default=None)


class Cluster:
    """One PostgreSQL server and its data."""

    def __init__(self, folder: Path, port: int, password: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = port
        self.password = password
        self._settings = {**SETTINGS, **settings}
        self._server: Server | None = None

    @property
    def is_alive(self) -> bool:
        """Whether its server runs."""
        return self._server is not None and self._server.is_alive

    @property
    def conninfo(self) -> str:
        """A URL of the database `postgres`, as superuser."""
        return conninfo(self)

    def database(self, name: str, template: str = "template1") -> str:
        """Make a fresh database; its URL."""
        self.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return conninfo(self, database=name)

    def drop(self, name: str) -> None:
        """Remove a database, with whoever is connected to it."""
        self.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, statement: "sql.SQL | sql.Composed") -> None:
        """One statement, outside a transaction."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(statement)

    def start(self) -> None:
        """Start the server; returns once it accepts connections."""
        bin = programs()
        assert bin is not None
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            **self._settings,
        }
        flags = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._server = Server(
            [str(bin / "postgres"), "-D", str(self.data), *flags], folder=self.folder, user=USER
        )

    def kill(self) -> None:
        """SIGKILL the postmaster and every process of the cluster."""
        if self._server is not None:
            self._server.kill()

    def stop(self) -> None:
        """An orderly shutdown that ends open connections."""
        if self._server is not None:
            self._server.stop(signal.SIGINT)

    def restart(self) -> None:
        """Start again, after a kill with recovery; stops it first if it runs."""
        self.stop()
        self.start()

    def promote(self) -> None:
        """Make a standby the primary; it takes writes when this returns."""
        self.execute(sql.SQL("SELECT pg_promote(true, {})").format(sql.Literal(int(WAIT))))

    def close(self) -> None:
        """End it without ceremony, and leave nothing but its folder."""
        if self._server is not None:
            self._server.stop(signal.SIGQUIT)
        self._forget_shared_memory()

    def _forget_shared_memory(self) -> None:
        # Only a killed server leaves this file, and the segment that its seventh line names.
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return
        if len(lines) > 6 and lines[6].split():
            remove = ["ipcrm", "--shmem-id", lines[6].split()[1]]
            subprocess.run(remove, check=False, capture_output=True, timeout=WAIT)


def conninfo(*clusters: Cluster, database: str = "postgres") -> str:
    """A URL of a database; of several clusters, whichever of them takes writes."""
    first, *others = clusters
    hosts = ",".join(f"127.0.0.1:{cluster.port}" for cluster in clusters)
    which = "?target_session_attrs=read-write" if others else ""
    return f"postgresql://{USER}:{first.password}@{hosts}/{quote(database)}{which}"


@contextmanager
def cluster(settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A fresh cluster that serves; nothing of it is left afterwards."""
    with _folder() as folder:
        made = Cluster(folder, free_port(), secrets.token_hex(16), settings or {})
        with _secret(folder, made.password) as secret:
            _run(
                folder,
                "initdb",
                *("--pgdata", str(made.data), "--username", USER, "--pwfile", str(secret)),
                *("--auth-local", "trust", "--auth-host", "scram-sha-256"),
                *("--encoding", "UTF8", "--locale", "C", "--data-checksums", "--no-sync"),
            )
        with _serving(made):
            yield made


@contextmanager
def standby(of: Cluster, settings: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """A synchronous standby of a cluster, whose commits wait for it until the block ends."""
    with _folder() as folder:
        port = free_port()
        name = f"standby_{port}"
        made = Cluster(folder, port, of.password, {"cluster_name": name, **(settings or {})})
        # By the socket, which asks for no password: none gets into the command line.
        _run(
            folder,
            "pg_basebackup",
            *("--host", str(of.folder), "--port", str(of.port), "--username", USER),
            *("--pgdata", str(made.data), "--write-recovery-conf", "--wal-method", "stream"),
            *("--checkpoint", "fast", "--create-slot", "--slot", name, "--no-sync"),
        )
        with _serving(made):
            try:
                _wait_for(of, f"FIRST 1 ({name})")
                of.execute(_IS_SYNCHRONOUS.format(sql.Literal(name)))
                yield made
            finally:
                if of.is_alive:  # or it would wait for ever
                    _wait_for(of, "")


def _wait_for(primary: Cluster, standbys: str) -> None:
    setting = sql.SQL("ALTER SYSTEM SET synchronous_standby_names = {}")
    primary.execute(setting.format(sql.Literal(standbys)))
    primary.execute(sql.SQL("SELECT pg_reload_conf()"))


_IS_SYNCHRONOUS = sql.SQL(
    """DO $$ BEGIN
  WHILE NOT EXISTS (
    SELECT FROM pg_stat_replication WHERE application_name = {} AND sync_state = 'sync'
  ) LOOP
    PERFORM pg_sleep(0.005);
    PERFORM pg_stat_clear_snapshot();
  END LOOP;
END $$"""
)
"""Waits at the primary until it holds its commits for the standby."""


@contextmanager
def _serving(made: Cluster) -> Iterator[None]:
    try:
        made.start()
        yield
    finally:
        made.close()


@contextmanager
def _folder() -> Iterator[Path]:
    # Not below pytest's folder: other users may not enter that, and a socket's path is short.
    folder = Path(tempfile.mkdtemp(prefix="carpal-pg-", dir="/tmp"))
    try:
        owned_by(folder, USER)
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _secret(folder: Path, text: str) -> Iterator[Path]:
    path = folder / "secret"
    path.touch(mode=0o600)
    path.write_text(text)
    owned_by(path, USER)
    try:
        yield path
    finally:
        path.unlink()


def _run(folder: Path, program: str, *arguments: str) -> None:
    """One of PostgreSQL's programs, to its end; RuntimeError with what it said if it fails."""
    bin = programs()
    assert bin is not None
    done = subprocess.run(
        [str(bin / program), *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
        **owned_by(folder, USER),  # type: ignore[call-overload]
    )
    if done.returncode:
        raise RuntimeError(f"{program} failed: {done.stderr or done.stdout}")
