"""Asking the daemon of this machine, over its local socket."""

import http.client
import json
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carpal.errors import CarpalError, refuse
from carpal.status import Reason
from hands.local.server import short

_LIMIT = 8.0
"""Seconds for a whole answer: the daemon takes up to five itself, and says so."""
_CREDENTIALS = struct.Struct("3i")
_MOST = 4 * 1024 * 1024
"""Bytes of an answer."""


def ask(
    folder: Path, path: str = "/status", row: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What the daemon answers whose files are in `folder`: to a GET, or with `row` to a POST of it.

    UNREACHABLE when none answers; what it refuses is raised as it said it.
    """
    status, body = exchange(folder, path, row)
    try:
        told: dict[str, Any] = json.loads(body)
        if status < 400:
            return told
        reason, problem, action = Reason(told["reason"]), str(told["error"]), str(told["action"])
    except (ValueError, KeyError, TypeError):
        raise _silent(f"the daemon of {folder} ended meanwhile", "ask again") from None
    raise refuse(reason, problem, action=action)


def exchange(folder: Path, path: str, row: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
    """The status and the body of an answer, whatever it is. UNREACHABLE when there is none."""
    asking = _Connection(folder)
    try:
        if row is None:
            asking.request("GET", path)
        else:
            asking.request("POST", path, json.dumps(dict(row)))
        answer = asking.getresponse()
        return answer.status, answer.read(_MOST)
    except (FileNotFoundError, ConnectionRefusedError):
        raise _silent(f"no daemon runs on {folder}", _start(folder)) from None
    except TimeoutError:
        raise _silent(
            f"the daemon of {folder} does not answer within {_LIMIT:g} s",
            "see whether it stands still, in its log or with `ps`",
        ) from None
    except (http.client.HTTPException, ConnectionError):
        raise _silent(f"the daemon of {folder} ended meanwhile", "ask again") from None
    except OSError as error:
        raise _silent(
            f"the daemon of {folder} cannot be asked: {error.strerror}", "ask as its user, or root"
        ) from None
    finally:
        asking.close()


def _start(folder: Path) -> str:
    """What to do where no daemon runs, which depends on whether there is one."""
    if (folder / "identity").exists():
        return "start it with `carpal hand run`, or give --state-dir"
    return "enrol it with `carpal hand enroll`, then `carpal hand run`; or give --state-dir"


def answers(folder: Path) -> bool:
    """Whether a daemon listens there. UNREACHABLE when that cannot be found out."""
    asking = _Connection(folder)
    try:
        asking.connect()
    except (FileNotFoundError, ConnectionRefusedError):
        return False
    except OSError as error:
        raise _silent(
            f"the daemon of {folder} cannot be asked: {error.strerror}", "ask as its user, or root"
        ) from None
    finally:
        asking.close()
    return True


def pid(folder: Path) -> int:
    """The process that answers there, as this machine counts; the daemon's own word counts as its
    namespace does. 0 when it is not to be seen from here. UNREACHABLE when none answers.
    """
    asking = _Connection(folder)
    try:
        asking.connect()
        raw = asking.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError as error:
        raise _silent(f"no daemon answers on {folder}: {error.strerror}", "start it") from None
    finally:
        asking.close()
    found: int = _CREDENTIALS.unpack(raw)[0]
    return found


class _Connection(http.client.HTTPConnection):
    """To the socket of a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__("localhost", timeout=_LIMIT)
        self._folder = folder

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with short(self._folder) as address:
            self.sock.connect(address)


def _silent(problem: str, action: str) -> CarpalError:
    return refuse(Reason.UNREACHABLE, problem, action=action)
