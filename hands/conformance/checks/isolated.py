"""Isolation: what is outside a hand is not seen from it, not reached, and not kept from it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from carpal.v1 import hand_pb2 as pb
from carpal.verdict import Skipped, equal, must
from hands.conformance.bench import Bench, number
from hands.conformance.group import Group
from hands.conformance.own import SECRET

isolated = Group("isolated", needs=("shell",))

_IO_URING = """python3 -c '
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print("uring" if libc.syscall(425, 4, ctypes.create_string_buffer(256)) >= 0 else "none")
'"""
_ADDRESSES = ("169.254.169.254", "10.0.0.1", "1.1.1.1")


@isolated("h37")
async def files_outside(bench: Bench) -> None:
    """No file of the machine that is not the hand's is to be seen, nor any socket of it."""
    hand = await bench.hand()
    with bench.folder() as folder, socket.socket(socket.AF_UNIX) as listener:
        secret, planted = folder / "secret", folder / "socket"
        secret.write_text("secret")
        secret.chmod(0o644)
        listener.bind(str(planted))
        planted.chmod(0o777)
        listener.listen()
        seen = await hand.sh(
            f"for f in {secret} {planted} /var/run/docker.sock /run/docker.sock"
            " /run/containerd/containerd.sock; do [ -e $f ] && echo $f; done; :"
        )
    equal("what is seen", [line for line in seen.text.split() if line.startswith("/")], [])


@isolated("h37")
async def processes_outside(bench: Bench) -> None:
    """No process of the machine that is not the hand's is to be seen."""
    hand, mark = await bench.hand(), number()
    stranger = await asyncio.create_subprocess_exec("sleep", mark)
    try:
        seen = await hand.sleeping(mark)
    finally:
        stranger.kill()
        await stranger.wait()
    must(not seen, "a process outside is seen")


@isolated("h37")
async def environment_outside(bench: Bench) -> None:
    """Nothing of the server's environment is in the hand, in any of its processes."""
    own, hand = bench.own, await bench.hand()
    answer = await hand.sh("env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    must(SECRET not in answer.text and own.secret not in answer.text, "it is there")


@isolated("h37")
async def no_privileges(bench: Bench) -> None:
    """A hand has no capability and gains none, and system calls are filtered."""
    hand = await bench.hand()
    answer = await hand.sh("grep -E '^(CapEff|CapPrm|NoNewPrivs|Seccomp):' /proc/self/status")
    found = dict(line.split(":\t") for line in answer.ended(pb.OUTCOME_OK).text.splitlines())
    wanted = {"CapEff": "0" * 16, "CapPrm": "0" * 16, "NoNewPrivs": "1", "Seccomp": "2"}
    equal("its status", found, wanted)
    answer = await hand.sh("id -u")
    must(answer.text.strip() != "0", "it runs as root")


@isolated("h37")
async def no_namespaces(bench: Bench) -> None:
    """A hand makes no user namespace, mounts nothing, and has no io_uring."""
    hand = await bench.hand()
    answer = await hand.sh("unshare -U true 2>/dev/null && echo made; :")
    must("made" not in answer.text, "it made a user namespace")
    answer = await hand.sh("mount -t tmpfs none /tmp 2>/dev/null && echo mounted; :")
    must("mounted" not in answer.text, "it mounted something")
    answer = await hand.sh(f"command -v python3 >/dev/null && {_IO_URING}; :")
    must("uring" not in answer.text, "it has io_uring")


@asynccontextmanager
async def _listening(host: str) -> AsyncIterator[tuple[int, list[int]]]:
    """A port of this machine, and a list that grows with each connection."""
    came: list[int] = []

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(connected, host, 0)
    try:
        yield server.sockets[0].getsockname()[1], came
    finally:
        server.close()


@isolated("h38")
async def no_way_out(bench: Bench) -> None:
    """Nothing goes out of a hand: not to this machine, not to the network, not to a name."""
    hand = await bench.hand()
    async with _listening("0.0.0.0") as (port, came):  # noqa: S104 - who must not get through
        for address in ("127.0.0.1", _own_address()):
            answer = await hand.sh(f"(exec 3<>/dev/tcp/{address}/{port}) 2>&1 && echo reached; :")
            must("reached" not in answer.text, f"it reached {address}")
        equal("connections that came", len(came), 0)
    for address in _ADDRESSES:
        command = f"(exec 3<>/dev/tcp/{address}/80) 2>/dev/null && echo reached; :"
        answer = await hand.sh(command, limit=10.0)
        must("reached" not in answer.text, f"it reached {address}")
    answer = await hand.sh("getent hosts example.com && echo resolved; :", limit=20.0)
    must("resolved" not in answer.text, "it resolved a name")


_FETCH = """fetch() {
  p=${HTTP_PROXY#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:} || return
  printf '%s http://%s HTTP/1.1\\r\\nHost: %s\\r\\nContent-Length: 0\\r\\n\\r\\n' $1 $2 ${2%%/*} >&3
  read -r -u 3 version status rest; echo $status; exec 3>&-
}
"""


@isolated("h38")
async def only_what_is_allowed(bench: Bench) -> None:
    """With rules a hand reaches what they name, by the methods and paths they name, and no more."""
    if "egress" not in bench.subject.config_fields:
        raise Skipped("the type takes no egress rules")
    async with _listening("127.0.0.1") as (port, came), _listening("127.0.0.1") as (other, none):
        rule = {"host": f"127.0.0.1:{port}", "methods": ["GET"], "paths": ["/open/*"]}
        hand = await bench.hand(egress=[rule])

        async def status(method: str, url: str) -> str:
            return (await hand.sh(f"{_FETCH} fetch {method} {url}", limit=20.0)).text.strip()

        equal("allowed", await status("GET", f"127.0.0.1:{port}/open/x"), "200")
        equal("connections that came", len(came), 1)
        for method, url in (
            ("GET", f"127.0.0.1:{port}/closed"),
            ("GET", f"127.0.0.1:{port}/open/../closed"),
            ("POST", f"127.0.0.1:{port}/open/x"),
            ("GET", f"127.0.0.1:{other}/open/x"),
            ("GET", f"localhost:{port}/open/x"),
            ("GET", "169.254.169.254/open/x"),
        ):
            equal(f"{method} {url}", await status(method, url), "403")
        equal("connections that came, then", (len(came), len(none)), (1, 0))
        answer = await hand.sh(f"(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>&1 && echo reached; :")
        must("reached" not in answer.text, "it went past its proxy")


def _own_address() -> str:
    """An address of this machine that others reach; 127.0.0.1 where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect(("10.255.255.255", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        address: str = asking.getsockname()[0]
        return address


@isolated("h40")
async def owned_by_the_hand(bench: Bench) -> None:
    """Files in a bound workspace are the hand's user's, and never root's."""
    if "workspace" not in bench.subject.config_fields:
        raise Skipped("the type binds no workspace")
    with bench.folder() as folder:
        hand = await bench.hand(workspace=str(folder))
        answer = await hand.sh("echo shell > shell; mkdir made; echo x > made/x; ls -ln")
        answer.ended(pb.OUTCOME_OK)
        await hand.run("write", {"file_path": "tool", "content": "tool"})
        owners = {path.name: path.stat().st_uid for path in _all(folder)}
        equal("files", sorted(owners), ["made", "shell", "tool", "x"])
        roots = sorted(name for name, uid in owners.items() if uid == 0)
        equal("files of root", roots, [])
        await hand.release()


def _all(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))
