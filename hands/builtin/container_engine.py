"""The engine that runs containers, over its socket on this machine: Docker's, or Podman's alike.

The one place that knows the `docker` package. Everything here blocks, for at most `_LIMIT`
seconds a request, and is called in a thread.
"""

import os
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

_LIMIT = 30
"""Seconds for an engine to answer: it may be starting others' containers just then."""
_SIGN_LIMIT = 10.0
"""Seconds for an engine to say that it is there: what does not is not asked more."""
_QUIET = 10.0
"""Seconds for which an engine that gave no sign is taken to hang: many ask at a daemon's start."""
_PING = b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n"
_PEER = struct.Struct("3i")
"""Pid, uid and gid of who listens, as SO_PEERCRED tells."""
_END_LIMIT = 10.0
"""Seconds for a container to be gone."""
_INSIST_LIMIT = 3.0
"""Seconds for which an engine that failed to remove one is asked again."""
_KEPT_LIMITS = {
    "memory_bytes": "MemoryLimit",
    "processes": "PidsLimit",
    "cpus": "CpuCfsQuota",
}
"""Limits, and what an engine says of itself when it can keep them."""


class EngineGone(Exception):
    """It does not answer; says why."""


class EngineRefused(Exception):
    """It answered, and does not do it; says why, in its words."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class About:
    """What an engine is, and can do."""

    name: str
    version: str
    rootless: bool
    """Its containers have no more than the rights of the user it runs as."""
    remapped: int | None
    """Where the users of containers begin on this machine, when it maps them all."""
    podman: bool
    runtimes: frozenset[str]
    can_limit: frozenset[str]
    """The limits it can keep, of memory_bytes, processes and cpus."""
    seccomp: bool


@dataclass(frozen=True, slots=True)
class Box:
    """A container to make, hardened whatever else it is."""

    name: str
    image: str
    command: Sequence[str]
    user: str
    user_mode: str | None
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    binds: Mapping[Path, tuple[str, bool]]
    """Folders of this machine: where they are seen, and whether they can be written."""
    memory: int | None
    processes: int | None
    cpus: float | None
    scratch: int
    """Bytes of its /tmp, in memory; 0 when that is a bind."""
    closed: Sequence[str] = ()
    """Places where nothing is, and nothing can be written."""
    runtime: str | None = None


def find() -> str:
    """The address of this machine's engine: DOCKER_HOST's, else the first socket there is."""
    if given := os.environ.get("DOCKER_HOST"):
        return given
    mine = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    places = ["/var/run/docker.sock", f"{mine}/docker.sock", f"{mine}/podman/podman.sock"]
    there = [place for place in places if os.access(place, os.R_OK | os.W_OK)]
    return f"unix://{(there or places)[0]}"


class Engine:
    """One engine; each question has its own connection, for threads share none."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._version = ""
        """Of its interface, once it was asked."""
        self._listener = 0
        """Whose process listens, as a user id."""
        self._quiet_until = 0.0
        self._looking = threading.Lock()

    def about(self) -> About:
        """What it is now."""
        with self._api() as api:
            info, version = api.info(), api.version()
        security = ",".join(info.get("SecurityOptions") or ())
        parts = [str(part.get("Name", "")) for part in version.get("Components") or ()]
        podman = any("podman" in part.lower() for part in parts)
        # Podman 4 does not say so by this interface, but who listens is who it runs as.
        rootless = "rootless" in security or (podman and self._listener != 0)
        # Without delegation, cgroups of version 1 are root's alone; Podman then ignores limits.
        limits = not (rootless and str(info.get("CgroupVersion")) == "1")
        return About(
            name=str(info.get("Name") or "engine"),
            version=str(version.get("Version") or ""),
            rootless=rootless,
            remapped=_remapped(info) if "name=userns" in security else None,
            podman=podman,
            runtimes=frozenset(info.get("Runtimes") or ()),
            can_limit=frozenset(
                name for name, says in _KEPT_LIMITS.items() if limits and info.get(says)
            ),
            seccomp="seccomp" in security,
        )

    def volumes(self, image: str) -> list[str] | None:
        """Where the image wants disks of its own; None when it would have to be fetched."""
        try:
            with self._api() as api:
                about = api.inspect_image(image)
        except EngineRefused as error:
            if error.status in {400, 404}:  # 400 for what is no image's name
                return None
            raise
        return sorted((about.get("Config") or {}).get("Volumes") or ())

    def create(self, box: Box) -> tuple[str, list[str]]:
        """Make a container; its id, and what the engine warns of."""
        with self._api() as api:
            made = api.create_container(
                box.image,
                command=list(box.command[1:]),
                entrypoint=list(box.command[:1]),
                name=box.name,
                user=box.user,
                environment=dict(box.environment),
                labels=dict(box.labels),
                working_dir="/",
                hostname="hand",
                stdin_open=False,
                tty=False,
                healthcheck={"test": ["NONE"]},
                host_config=self._confined(api, box),
            )
        return str(made["Id"]), [str(warning) for warning in made.get("Warnings") or ()]

    def _confined(self, api: Any, box: Box) -> Any:
        config = api.create_host_config(
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            network_mode="none",
            ipc_mode="private",
            privileged=False,
            pids_limit=box.processes,
            mem_limit=box.memory,
            memswap_limit=box.memory,
            nano_cpus=int(box.cpus * 1e9) if box.cpus else None,
            tmpfs={
                **dict.fromkeys(box.closed, "ro,nosuid,nodev,size=4096,mode=755"),
                **({"/tmp": _scratch(box)} if box.scratch else {}),  # noqa: S108 - its own
            },
            binds=[
                f"{path}:{place}:{'rw' if writable else 'ro'}"
                for path, (place, writable) in box.binds.items()
            ],
            ulimits=[docker.types.Ulimit(name="core", soft=0, hard=0)],
            log_config=docker.types.LogConfig(type="none"),
            # Engines have removed those alive when they came back (20.10 does): we remove it.
            auto_remove=False,
            runtime=box.runtime,
        )
        if box.user_mode:
            config["UsernsMode"] = box.user_mode  # the package knows only Docker's one word
        return config

    def start(self, container: str) -> None:
        """Start it."""
        with self._api() as api:
            api.start(container)

    def runs(self, container: str) -> bool:
        """Whether it runs now."""
        try:
            with self._api() as api:
                return bool(api.inspect_container(container)["State"]["Running"])
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise

    def remove(self, container: str, *, insist: bool = True) -> None:
        """Kill and remove it; it is gone when this returns.

        To `insist` is to ask again, for a little while, an engine that could not.
        """
        began = time.monotonic()
        while True:
            try:
                with self._api() as api:
                    api.remove_container(container, force=True, v=True)
                refused = EngineRefused("it said that it removed it, and has it still", 409)
            except EngineRefused as error:
                if error.status == 404:  # nothing less says that it is gone
                    return
                refused = error
            # With 409 it is just being removed: by itself, having ended.
            limit = _END_LIMIT if refused.status == 409 else _INSIST_LIMIT * insist
            if (refused.status != 409 and refused.status < 500) or (
                time.monotonic() - began >= limit
            ):
                raise refused
            time.sleep(0.02)  # the engine does not say when it is done

    def labelled(self, *labels: str) -> dict[str, tuple[str, Mapping[str, str]]]:
        """Containers with all these labels (`name` or `name=value`), running or not.

        Their names, and all their labels.
        """
        with self._api() as api:
            found = api.containers(all=True, filters={"label": list(labels)})
        return {
            str(one["Id"]): (_name(one.get("Names") or ()), one.get("Labels") or {})
            for one in found
        }

    @contextmanager
    def _api(self) -> Iterator[Any]:
        """A client, whose errors become ours."""
        client: Any = None
        self._reach()
        try:
            client = docker.APIClient(
                base_url=self.address, version=self._version or "auto", timeout=_LIMIT
            )
            self._version = client.api_version
            yield client
        except docker.errors.APIError as error:
            message = str(error.explanation or error).strip()
            raise EngineRefused(message, error.status_code or 500) from error
        except (docker.errors.DockerException, OSError) as error:  # what requests raises is one
            self._version = ""  # another engine may come back at that address
            raise EngineGone(f"the engine at {self.address} does not answer: {error}") from error
        finally:
            if client is not None:
                client.close()

    def _reach(self) -> None:
        """Look whether it answers, once for all who ask at once.

        The client would say it less well, leave its socket open, and wait longer.
        """
        with self._looking:
            if time.monotonic() < self._quiet_until:
                raise EngineGone(f"the engine at {self.address} hangs: it did not answer just now")
            self._look()

    def _look(self) -> None:
        scheme, _, path = self.address.partition("://")
        if scheme != "unix":
            raise EngineGone(f"{self.address} is no engine of this machine: it must be unix:///…")
        with socket.socket(socket.AF_UNIX) as trying:
            trying.settimeout(_SIGN_LIMIT)
            try:
                trying.connect(path)
                peer = trying.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
                self._listener = _PEER.unpack(peer)[1]
                trying.sendall(_PING)
                trying.recv(1)
            except TimeoutError as error:
                self._quiet_until = time.monotonic() + _QUIET
                why = f"the engine at {path} hangs: no answer in {_SIGN_LIMIT:g} s"
                raise EngineGone(why) from error
            except PermissionError as error:
                raise EngineGone(f"this user may not speak to the engine at {path}") from error
            except OSError as error:
                raise EngineGone(f"no engine answers at {path}") from error


def _name(names: Sequence[str]) -> str:
    """Of a container: those with more `/` are links of others to it."""
    return next((name[1:] for name in names if name.count("/") == 1 and name[0] == "/"), "")


def _scratch(box: Box) -> str:
    options = f"rw,exec,nosuid,nodev,size={box.scratch},mode=1777"
    if "runsc" in (box.runtime or "") or box.user_mode == "keep-id":
        return options  # they take no owner
    uid, _, gid = box.user.partition(":")
    # An image's own /tmp may be root's alone, and its mode is taken over.
    return f"{options},uid={uid},gid={gid}"


def _remapped(info: Mapping[str, Any]) -> int | None:
    """The first user id it maps to: it names its folder by that, and says it nowhere else."""
    first = Path(str(info.get("DockerRootDir", ""))).name.partition(".")[0]
    return int(first) if first.isdigit() else None
