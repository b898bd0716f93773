"""The secrets of this machine that are known: what they are, so that none of them is shown.

Keys and tokens in the daemon's folder, who may use a proxy, and every value of an environment that
is not one of those that everybody may see. In whatever form they turn up: as they are, in base64,
in a URL.
"""

import base64
import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, urlsplit

from carpal.proxy import VARIABLES
from hands.doctor.subject import Subject

_PLAIN = re.compile(
    r"PATH|HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|LANG|LANGUAGE|LC_[A-Z]+|TERM|TZ|SHLVL|_|HOSTNAME|"
    r"TMPDIR|PYTHON(PATH|UNBUFFERED|DONTWRITEBYTECODE|HASHSEED)|VIRTUAL_ENV|XDG_[A-Z_]+|"
    r"CARPAL_(STATE|SANDBOX|HANDS_MAX|RECONNECT_MAX|TEST_[A-Z]+)|GRPC_[A-Z_]+|CI|MAIL|"
    r"INVOCATION_ID|JOURNAL_STREAM|NOTIFY_SOCKET|(STATE|RUNTIME|CACHE|LOGS)_DIRECTORY|"
    r"[Nn][Oo]_([Gg][Rr][Pp][Cc]_)?[Pp][Rr][Oo][Xx][Yy]"
)
"""Variables whose values are no secrets."""
_LEAST = 5
"""Characters of a secret: with fewer, everything would be one."""
_KEYS_MAX = 256 * 1024
"""Bytes of a file that is read for secrets."""
_PUBLIC = frozenset({"cert.pem", "ca.pem"})


class Known:
    """All forms of all known secrets."""

    def __init__(self, secrets: Iterable[bytes]) -> None:
        found = {each for one in secrets if len(one) >= _LEAST for each in _forms(one)}
        self._forms = sorted(found, key=len, reverse=True)

    def strike(self, data: bytes, mark: bytes) -> bytes:
        """`data` with `mark` in place of each."""
        for form in self._forms:
            if form in data:
                data = data.replace(form, mark)
        return data

    def is_in(self, data: bytes) -> bool:
        """Whether any of them is."""
        return any(form in data for form in self._forms)


def known(subject: Subject, pid: int | None, environ: Mapping[str, str] = os.environ) -> Known:
    """Those of a machine, its daemon's environment among them where it runs and may be read."""
    found: list[bytes] = []
    for name, value in (*environ.items(), *_environment_of(pid)):
        if not _PLAIN.fullmatch(name):
            found.append(value.encode("utf-8", "surrogateescape"))
        if name in VARIABLES or name == "CARPAL_PROXY":
            found += _of_proxy(value)
    found += _of_proxy(subject.settings.proxy)
    if subject.token is not None:
        found += [subject.token.secret, subject.token.text().encode()]
    found += [value.encode() for value in subject.settings.labels.values()]
    for path in _files(subject.files.folder):
        with contextlib.suppress(OSError), path.open("rb") as file:
            found += _of_file(file.read(_KEYS_MAX))
    return Known(found)


def _files(folder: Path) -> Iterable[Path]:
    """Those of identities, and of what waits to become one."""
    for below, _, names in os.walk(folder / "identity"):
        yield from (Path(below, name) for name in names if name not in _PUBLIC)


def _of_file(data: bytes) -> list[bytes]:
    """Its lines, and what they are in base64."""
    lines = [line.strip() for line in data.splitlines()]
    body = b"".join(line for line in lines if line and not line.startswith(b"-----"))
    found = [data.strip(), body, *(line for line in lines if not line.startswith(b"-----"))]
    with contextlib.suppress(ValueError):
        found.append(base64.b64decode(body, validate=True))
    return found


def _of_proxy(url: str) -> list[bytes]:
    """Who may use it."""
    if "@" not in url:
        return []
    found = [url.rpartition("@")[0].rpartition("//")[2]]
    with contextlib.suppress(ValueError):
        parts = urlsplit(url if "://" in url else f"http://{url}")
        found += [part for part in (parts.password, parts.username) if part]
    both = ":".join(unquote(part) for part in found[0].split(":", 1))
    return [each.encode() for one in (*found, both) for each in (one, unquote(one))]


def _environment_of(pid: int | None) -> list[tuple[str, str]]:
    if pid is None:
        return []
    try:
        data = Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return []
    pairs = (os.fsdecode(one).partition("=") for one in data.split(b"\0") if one)
    return [(name, value) for name, _, value in pairs]


def _forms(secret: bytes) -> set[bytes]:
    """A secret as it is, as it is written in URLs, JSON and Python, and in base64 at any place."""
    forms = {secret, secret.hex().encode(), secret.hex().upper().encode()}
    forms |= {quote(secret, safe="").encode(), quote_plus(secret).encode(), quote(secret).encode()}
    forms |= {re.sub(rb"%[0-9A-F]{2}", lambda one: one[0].lower(), each) for each in set(forms)}
    text = secret.decode("utf-8", "backslashreplace")
    forms.add(text.encode("unicode_escape"))
    forms.add(text.replace("\\", "\\\\").replace('"', '\\"').encode())
    for shift in range(3):
        # What comes before and after it decides about the first and last characters.
        coded = base64.b64encode(b"\0" * shift + secret)
        begin = (0, 2, 3)[shift]
        end = len(coded) - (0 if (shift + len(secret)) % 3 == 0 else coded.count(b"=") + 1)
        forms |= {coded[begin:end], coded[begin:end].translate(_URLSAFE)}
    return {form for form in forms if len(form) >= _LEAST}


_URLSAFE = bytes.maketrans(b"+/", b"-_")
