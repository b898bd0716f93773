"""No secret of a machine is in what `carpal hand diag` writes, in any form: by canaries."""

import base64
import json
import re
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from carpal.tls import write_file
from hands.diag.clean import Cleaner
from hands.diag.known import Known
from hands.enroll import Links, links_path
from hands.journal import Journal
from tests.command import Command
from tests.hands.doctor.conftest import Lone
from tests.hands.fake_brain import FakeBrain
from tests.hands.local.test_status import until
from tests.hands.machine import Machine
from tests.pki import Pki

SHAPES = ("hunter2!", "p@ss/w:rd+é", "canary-with-words-alone", secrets.token_urlsafe(32))
"""Short, with signs that URLs escape, of plain words, and of chance."""


class Planted:
    """Canaries, by where they are."""

    def __init__(self) -> None:
        self.all: dict[str, str] = {}

    def one(self, where: str, shape: str = "") -> str:
        """A canary for a place."""
        return self.all.setdefault(where, shape or f"cnry-{secrets.token_hex(6)}")


def found_in(data: bytes, canary: str) -> str:
    """In which form a canary is in some bytes; empty when in none."""
    raw = canary.encode()
    forms = {"raw": raw, "hex": raw.hex().encode(), "URL": quote(raw, safe="").encode()}
    forms["lower URL"] = re.sub(rb"%..", lambda one: one[0].lower(), forms["URL"])
    forms["json"] = json.dumps(canary)[1:-1].encode()
    for shift in range(3):
        # Three bytes are four characters: what is left out at the ends may be another's too.
        coded = base64.b64encode(b"x" * shift + raw).rstrip(b"=")[4 if shift else 0 : -2]
        if len(coded) > 5:
            forms[f"base64 at {shift}"] = coded
            forms[f"urlsafe at {shift}"] = coded.translate(bytes.maketrans(b"+/", b"-_"))
    return next((name for name, form in forms.items() if form in data), "")


@pytest.fixture
def lone(pki: Pki, tmp_path: Path) -> Iterator[Lone]:
    """A machine without a brain."""
    made = Lone(pki, tmp_path / "state")
    yield made
    made.kill_hands()


def members(path: Path) -> dict[str, bytes]:
    """What is in a file of it."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("shape", SHAPES, ids=["short", "escaped", "words", "chance"])
async def test_no_canary_in_keys_tokens_settings_environment_log_or_journal_is_in_any_member(
    tmp_path: Path, lone: Lone, shape: str
) -> None:
    planted, mine = Planted(), lone.files
    password = planted.one("the proxy's password", shape)
    user = planted.one("the proxy's user", f"u-{shape}")
    url = f"http://{quote(user, safe='')}:{quote(password, safe='')}@127.0.0.1:1"
    given = tmp_path / "hand.toml"
    given.write_text(
        f'state_dir = "{lone.state}"\nsandbox = "off"\nproxy = "{url}"\n'
        f'[labels]\nrack = "{planted.one("a label")}"\n'
    )
    secret = planted.one("a variable", f"{shape}-of-env")
    environ = {"THEIR_SETTING": secret, "HTTPS_PROXY": f"http://x:{planted.one('env proxy')}@h:1"}
    environ |= {"http_proxy": base64.b64encode(planted.one("coded variable").encode()).decode()}
    environ |= {"CARPAL_CANARY": planted.one("our own variable")}
    token = f"carpal1.{planted.one('a token', secrets.token_urlsafe(120))}"
    write_file(mine.identity_dir / "pending" / "key.pem", planted.one("a pending key").encode())
    _journal(lone, planted)
    Links(("brain.invalid:1",), "127.0.0.1:1").save(links_path(mine.identity_dir))
    log = tmp_path / "daemon.log"
    log.write_text("\n".join(_log(planted, url, token, shape, secret)))
    out = tmp_path / "diag.zip"
    command = Command(tmp_path, environ)
    ran = await command(
        *("hand", "diag", "--output", str(out), "--log", str(log), "--config", str(given))
    )
    assert ran.code == 0, ran.stderr
    held = members(out)
    log_text = held["log.txt"].decode()
    assert "link lost" in log_text, "our own lines are there"
    assert "carpal/client.py:12 in dial" in log_text
    assert "    ValueError\n" in log_text
    assert json.loads(held["journal.json"])["calls"] == {"terminal ok": 1}
    key = mine.identity.key.read_text().splitlines()[1:-1]
    whole = {"the key": "".join(key), "its first line": key[0], **planted.all}
    for name, data in (*held.items(), ("stdout", ran.stdout.encode())):
        for where, canary in whole.items():
            form = found_in(data, canary)
            assert not form, f"{where} is in {name}, {form}: {data.decode()}"


async def test_a_variable_of_the_daemon_is_known_and_taken_out(
    tmp_path: Path, machine: Machine, one: FakeBrain
) -> None:
    log, out = tmp_path / "its.log", tmp_path / "d.zip"
    log.write_text(
        "2026-11-30T12:00:00.000000Z [warning  ] link lost                      [hands.daemon] "
        "why='it said plain-word'\n"
    )
    where = ("--log", str(log), "--state-dir", str(machine.state))
    async with machine.process(THEIRS="plain-word"):
        await one.link()
        await until(machine, state="linked")
        ran = await Command(tmp_path)("hand", "diag", "--output", str(out), *where)
    assert ran.code == 0, ran.stderr
    assert b"it said [redacted]" in members(out)["log.txt"]


def _journal(lone: Lone, planted: Planted) -> None:
    with closing(Journal(lone.files.journal, "d")) as journal:
        db = journal._db
        blob = planted.one("an output", "what a call said, a canary").encode()
        name = planted.one("a call's id")
        db.execute(
            "INSERT INTO calls (hand_id, call_id, state, digest, outcome, result, accepted) "
            "VALUES ('h', ?, 'terminal', ?, 'ok', ?, 1)",
            (name, planted.one("an input's digest").encode(), blob),
        )
        db.execute("INSERT INTO outputs VALUES ('h', ?, ?, 1)", (name, blob))
        db.execute("INSERT INTO sessions VALUES (?, 1)", (planted.one("a session's id"),))


def _log(planted: Planted, url: str, token: str, shape: str, secret: str) -> list[str]:
    time = "2026-11-30T12:00:00.000000Z"
    said = planted.one("what a hand said", "a hand's own words, cnry")
    return [
        f"{time} [info     ] linked                         [hands.daemon] brain=b epoch=3",
        f"{time} [warning  ] link lost                      [hands.daemon] brain=b:1 "
        f"why='the proxy {url} said no to {token}'",
        f'{time} [warning  ] link lost                      [hands.daemon] why="password: '
        f'{planted.one("said after a word")}"',
        f"{time} [info     ] {said} [hands.daemon] brain=b",
        f"{time} [info     ] linked                         [hands.daemon] "
        f"command={planted.one('another field')}",
        json.dumps(
            {
                "event": "link lost",
                "level": "warning",
                "timestamp": time,
                "logger": "hands.daemon",
                "why": f"Authorization: Basic {base64.b64encode(shape.encode() * 3).decode()}",
                "input": planted.one("an input in the log"),
                "exception": f"ValueError: {planted.one('an error in JSON')}",
            }
        ),
        said,
        "Traceback (most recent call last):",
        f'  File "/opt/{planted.one("a folder")}/carpal/client.py", line 12, in dial',
        f"    password = {planted.one('a line of code')!r}",
        f"ValueError: {planted.one('an error')}",
        f"{time} [warning  ] link lost                      [hands.daemon] "
        f"why='-----BEGIN PRIVATE KEY----- {planted.one('a key in the log')} x'",
        f"{time} [warning  ] link lost                      [hands.daemon] why='{secret}'",
        f"{time} [warning  ] link lost                      [hands.daemon] "
        f"why='{base64.b64encode(f'x{secret}y'.encode()).decode()}'",
        f"{time} [warning  ] link lost                      [hands.daemon] "
        f"why='{planted.one('of chance', secrets.token_urlsafe(24))}'",
    ]


def test_what_is_no_secret_stays() -> None:
    clean = Cleaner(Known([b"s3cret"]))
    for text in (
        "the brain at brain-1.example:7441 does not answer (no route): check that it runs",
        "make a token with `carpal fleet token` where you operate Carpal, and run: carpal hand "
        "enroll --token-file FILE --state-dir /var/lib/carpal",
        "spiffe://carpal.internal/daemon/build-1, workspace default, pool gpu",
        "valid from 2026-11-30 12:00:00 to 2026-12-01 12:00:00 UTC, and it is 2026-11-30 13:00:00",
        '"journal_id": "jrnl_0123456789abcdef0123456789"',
        "by http://proxy.example:3128: the variable HTTPS_PROXY says so",
        "carpal_hand_certificate_expiry_seconds 43200.0",
        "kernel.apparmor_restrict_unprivileged_userns",
    ):
        assert clean(text) == text
    assert "s3cret" not in clean("it was s3cret")
    assert "czNjcmV0" not in clean("as czNjcmV0")
