"""The page on hand types in other languages: what it shows is run, and what it promises is true."""

import asyncio
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.builtin.socket import SocketType
from hands.systemd import unit
from tests.command import ROOT
from tests.examples.foreign import started
from tests.hands.place import open_place
from tests.reader import Reader

PATH = ROOT / "docs" / "how-to" / "write-a-hand-type-in-another-language.md"
PAGE = PATH.read_text()
SNIPPETS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)
NPM = {f"npm_config_{each}": "false" for each in ("audit", "fund", "update_notifier")}
NPM |= {
    "npm_config_ignore_scripts": "true",
    "npm_config_before": "2026-11-30",  # what came later is another day's news
}


def snippets(language: str) -> list[str]:
    """Those of one language, in order."""
    return [text for each, text in SNIPPETS if each == language]


def test_each_snippet_of_the_page_is_known_to_these_tests() -> None:
    languages = [
        "sh",
        "js",
        "sh",
        "sh",
        "sh",
        "text",
        "toml",
        "sh",
        "yaml",
        "ini",
        "toml",
        "sh",
        "json",
    ]
    assert [each for each, _ in SNIPPETS] == languages


@dataclass
class Followed:
    """The page, followed up to step 2: the contract, and the whole server with what it needs."""

    reader: Reader
    socket: Path

    def line(self, text: str) -> str:
        """What the page says, with the socket where the reader's is."""
        return text.replace("/tmp/counter.sock", str(self.socket))


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """A reader who does as the page says, from its beginning."""
    if shutil.which("npm") is None:
        pytest.skip("no npm: scripts/setup in CI has it")
    folder = tmp_path_factory.mktemp("page")
    it = Followed(Reader(folder, NPM), folder / "counter.sock")
    it.reader.types(snippets("sh")[0])
    written = (it.reader.folder / "protos/carpal/v1/hand.proto").read_text()
    imports = re.findall(r'^import "(.*)";', written, re.M)
    assert all(each.startswith("google/protobuf/") for each in imports)
    it.reader.write("counter.js", snippets("js")[0])
    install, _ = snippets("sh")[1].splitlines()
    it.reader.types(install)
    return it


@asynccontextmanager
async def serving(it: Followed) -> AsyncIterator[None]:
    """The server, started as the page says."""
    _, start = snippets("sh")[1].splitlines()
    async with started("env", "-C", str(it.reader.folder), *shlex.split(it.line(start))):
        yield


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_the_server_that_is_shown_whole_is_called_passes_and_keeps_its_time(
    followed: Followed, tmp_path: Path
) -> None:
    call, check = (followed.line(text) for text in snippets("sh")[2:4])
    async with serving(followed):
        assert await asyncio.to_thread(followed.reader.types, call) == "counted to 3\n"
        said = await asyncio.to_thread(followed.reader.types, check)
        assert not [line for line in said.splitlines() if line.startswith("fail")], said
        assert sum(line.startswith("pass") for line in said.splitlines()) >= 6
        async with open_place(
            tmp_path / "state", more={"counter": SocketType("counter", followed.socket)}
        ) as place:
            hand = await place.hand(type="counter")
            steps = await place.steps(place.request(hand, "count", to=2))
            assert b"".join(each.output.data for each in steps) == b"1\n2\n"
            late = place.request(hand, "count", to=600, pause=1, limit=0.3)
            assert (await place.steps(late))[-1].result.outcome == pb.OUTCOME_TIMED_OUT
            assert await place.release(hand)


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_an_agent_counts_with_it_as_the_page_says(followed: Followed) -> None:
    reader = followed.reader
    reader.write("hand.toml", followed.line(snippets("toml")[0]))
    script = reader.write("script.yaml", snippets("yaml")[0])
    dev, run = snippets("sh")[4].splitlines()
    async with serving(followed), reader.runs_dev(f"{dev} --script {script}"):
        said = await asyncio.to_thread(reader.types, run)
    assert "counted to 3" in said
    assert "That was three." in said


MACHINE = """
for each in etc opt run; do mount --bind "$1/$each" "/$each"; done
shift
exec "$@"
"""
"""A machine whose `/etc`, `/opt` and `/run` are the test's own, for what is started on it."""
SYSTEMCTL = """#!/bin/sh
# Does of systemd what the page asks it for: a start of the unit's command, as its settings have it.
set -eu
unit=/etc/systemd/system/counter.service
told() { sed -n "s/^$1=//p" "$unit"; }
case $* in
  "enable --now counter")
    mkdir -m "$(told RuntimeDirectoryMode)" "/run/$(told RuntimeDirectory)"
    $(told ExecStart) >/run/said 2>&1 &
    echo $! >/run/pid
    until grep -qs "^serving on" /run/said; do kill -0 "$(cat /run/pid)"; sleep 0.1; done ;;
  "restart carpal-hand") ;;
  *) exit 1 ;;
esac
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has an /etc, /opt and /run of its own")
def test_installed_by_its_unit_it_answers_at_the_place_that_hand_toml_names(
    followed: Followed, tmp_path: Path
) -> None:
    (ini,), toml, lines = snippets("ini"), snippets("toml")[1], snippets("sh")[5]
    reader, machine = followed.reader, tmp_path / "machine"
    shutil.copytree("/etc", machine / "etc", symlinks=True, ignore=shutil.ignore_patterns("carpal"))
    for name, text in (
        ("etc/systemd/system/counter.service", ini),
        ("etc/carpal/hand.toml", toml),
        ("bin/systemctl", SYSTEMCTL),
    ):
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(text)
    (machine / "bin/systemctl").chmod(0o755)
    (machine / "run").mkdir()
    shutil.copytree(reader.folder, machine / "opt/counter")
    own = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
    before = (*own, "sh", "-euc", MACHINE, "sh", str(machine))
    verify = "systemd-analyze verify /etc/systemd/system/counter.service 2>&1"
    place = f"export PATH={machine / 'bin'}:$PATH CARPAL_STATE={machine / 'state'}"
    said = reader.types(f"{verify}; {place}; {lines}", before=before)
    assert said.startswith("counted to 3\n"), "systemd has something against the unit"
    assert re.search(r"^ok +type counter: ready", said, re.M), said


def test_the_unit_of_the_page_is_started_before_the_daemons_and_its_socket_is_its_alone() -> None:
    (ini,) = snippets("ini")
    at = tomllib.loads(snippets("toml")[-1])["sockets"]["counter"]
    assert at in ini
    assert f"RuntimeDirectory={Path(at).parent.name}\n" in ini
    assert "RuntimeDirectoryMode=0700\n" in ini
    assert f"Before={unit.NAME}" in ini


def test_what_a_failed_check_looks_like_is_what_the_checks_say() -> None:
    from hands.conformance.hand import _OFFSET
    from hands.conformance.suite import CHECKS

    fail, change = snippets("text")[0].splitlines()
    assert any(check.sentence in fail for check in CHECKS)
    assert change.strip() == f"change: {_OFFSET}"
