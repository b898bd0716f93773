"""A git repository cloned into the workspace, by the hand's own git, as the hand's own user.

It asks for no password, runs nothing of the repository's and follows it nowhere
else: no submodules, no protocol but the one of its URL.
"""

import contextlib
import os
import re
import shutil
import socket
import subprocess
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from hands.inside.beneath import ToolError, Workspace
from hands.inside.removal import remove_tree
from hands.inside.unpack import folders, parent_of

LIMIT = 900.0
"""Seconds for one git command; the call's own limit is shorter."""
_SAID_MAX = 4096
"""Bytes kept of the end of what git says."""
_ASKING = 20.0
"""Seconds to ask the forwarder: it gives up a connection before."""
_REFUSED = re.compile(r"(CONNECT|proxy).*\b[45]\d\d\b", re.IGNORECASE)
_NO = re.compile(r"HTTP/1\.[01] [45]\d\d ")
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_SETTINGS = (
    "credential.helper=",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "protocol.allow=never",
)


def clone(workspace: Workspace, path: str, url: str, ref: str) -> str:
    """Clone and check out; says which commit. Raises ToolError."""
    if shutil.which("git") is None:
        raise ToolError("there is no git in this hand; mount an archive, or use another image")
    pure = PurePosixPath(path)
    folders(workspace, str(pure.parent))
    parent = parent_of(workspace, str(pure.parent))
    made = _make(parent, pure.name, path)
    try:
        git = _Git(parent, pure.name, url)
        git.run("clone", "--quiet", *(["--no-checkout"] if ref else []), "--", url, ".")
        if ref:
            _check_out(git, ref, url)
        commit = git.run("rev-parse", "--quiet", "--verify", "HEAD", fails="no commit yet")
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                remove_tree(pure.name, parent)
        raise
    finally:
        os.close(parent)
    return f"{path}: {url} at {commit.strip()}"


def _make(parent: int, name: str, path: str) -> bool:
    """An empty folder to clone into; whether it was made."""
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        pass
    else:
        return True
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=parent)
    except OSError:
        raise ToolError(f"{path} is there already, and is no folder") from None
    try:
        if any(os.scandir(handle)):
            raise ToolError(f"{path} is there already, and is not empty")
    finally:
        os.close(handle)
    return False


def _check_out(git: "_Git", ref: str, url: str) -> None:
    if git.has(f"refs/remotes/origin/{ref}"):
        git.run("checkout", "--quiet", "-B", ref, "--track", f"origin/{ref}")
        return
    if not git.has(f"refs/tags/{ref}") and not git.has(ref) and _COMMIT.fullmatch(ref):
        # A commit that no branch leads to any more; many servers give it all the same.
        git.run("fetch", "--quiet", "origin", ref, fails="not there")
    for name in (f"refs/tags/{ref}", ref):
        if git.has(name):
            git.run("checkout", "--quiet", "--detach", f"{name}^{{commit}}")
            return
    raise ToolError(f"{url} has no branch, tag or commit {ref!r}")


class _Git:
    """git in one folder."""

    def __init__(self, parent: int, name: str, url: str) -> None:
        scheme = url.partition(":")[0]
        self._url = url
        self._folder = f"/proc/self/fd/{parent}/{name}"
        self._parent = parent
        self._settings = (*_SETTINGS, f"protocol.{scheme}.allow=always")

    def has(self, name: str) -> bool:
        """Whether that is a commit here."""
        found = self.run("rev-parse", "--quiet", "--verify", f"{name}^{{commit}}", fails="no")
        return found != "no"

    def run(self, *arguments: str, fails: str = "") -> str:
        """What it says. When it fails, `fails`, or ToolError with what it said of that."""
        settings = [part for each in self._settings for part in ("-c", each)]
        environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "/bin/false"}
        if "https_proxy" in environment:
            # The hand's own loopback has no repository to mount: all goes by its one way out.
            for name in ("no_proxy", "NO_PROXY"):
                environment.pop(name, None)
        process = subprocess.Popen(
            ["git", *settings, *arguments],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            pass_fds=(self._parent,),
        )
        assert process.stdout is not None
        said = b""
        with process.stdout as output:
            while data := output.read(65536):
                said = (said + data)[-_SAID_MAX:]
        if process.wait(LIMIT) == 0:
            return said.decode("utf-8", "replace")
        if fails:
            return fails
        lines = said.decode("utf-8", "replace").strip().splitlines()
        text = " ".join(lines[-3:]) or "it failed"
        raise ToolError(f"git {arguments[0]}: {text}{self._refusal(text)}")

    def _refusal(self, text: str) -> str:
        """Why the forwarder refused, which git leaves out: asked for once more."""
        proxy, host = urlsplit(os.environ.get("https_proxy", "")), urlsplit(self._url)
        if not _REFUSED.search(text) or not proxy.hostname or not host.hostname:
            return ""
        name = f"[{host.hostname}]" if ":" in host.hostname else host.hostname
        at = f"{name}:{host.port or 443}"
        try:
            with socket.create_connection((proxy.hostname, proxy.port or 80), _ASKING) as asking:
                asking.sendall(f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
                asking.settimeout(_ASKING)
                line = asking.makefile("rb").readline(1024).decode("latin-1").strip()
        except OSError:
            return ""
        return f": {line.partition(' ')[2]}" if _NO.match(line) else ""
