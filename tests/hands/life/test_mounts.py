"""Mounts of a hand: there before its first call, as its own files, or no hand at all."""

import asyncio
import hashlib
import io
import json
import ssl
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import IO

import pytest

from carpal.errors import CarpalError, refuse
from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import types_pb2
from hands.blobs import Blobs
from hands.builtin.process import ProcessType
from hands.inside import tree
from hands.isolation import probe
from tests.git_server import GitServer, git, git_server
from tests.hands.forwarder.place import self_signed
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.test_restart import DRIVER, child


class Kept(Blobs):
    """Blobs that are here."""

    def __init__(self, *blobs: bytes) -> None:
        super().__init__()
        self.blobs = {hashlib.sha256(blob).digest(): blob for blob in blobs}
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.writes = asyncio.Event()
        self.writes.set()
        self.writing = asyncio.Event()

    async def write(self, session_id: str, file: IO[bytes], info: types_pb2.BlobInfo) -> None:
        self.writing.set()
        await self.writes.wait()
        file.seek(0)
        data = file.read()
        assert (hashlib.sha256(data).digest(), len(data)) == (info.digest, info.size)
        self.blobs[info.digest] = data
        self.asked.append(session_id)

    async def read(self, session_id: str, digest: bytes) -> AsyncIterator[bytes]:
        self.asked.append(session_id)
        if digest not in self.blobs:
            raise refuse(Reason.BLOB_NOT_FOUND, f"no blob {digest.hex()}")
        data = self.blobs[digest]
        for begin in range(0, len(data), 100_000):
            yield data[begin : begin + 100_000]
            await self.gate.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A git server."""
    with git_server(tmp_path / "git") as serving:
        yield serving


def request(place: Place, *mounts: tuple[str, str], **config: object) -> pb.ProvisionRequest:
    """A provision with mounts."""
    asked = pb.ProvisionRequest(
        driver=place.driver(),
        hand_id=place.new_id("h"),
        type="process",
        config=json.dumps(config).encode(),
        mounts=[pb.Mount(source_ref=source, mount_path=path) for source, path in mounts],
    )
    asked.orphan_deadline.FromSeconds(60)
    return asked


async def refused(place: Place, *mounts: tuple[str, str], **config: object) -> CarpalError:
    """Why a hand with such mounts is not made; nothing is left of it."""
    asked = request(place, *mounts, **config)
    with pytest.raises(CarpalError) as caught:
        await place.provision(asked)
    assert not place.inventory.folder_of(asked.hand_id).exists()
    assert place.journal.hand(asked.hand_id) is None
    return caught.value


def archive(**files: bytes) -> bytes:
    """A tar."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return made.getvalue()


def ref(kind: str, data: bytes) -> str:
    """What names a blob."""
    return f"{kind}:{hashlib.sha256(data).hexdigest()}"


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[tuple[Place, Kept]]:
    """A service whose blobs are here."""
    blobs = Kept()
    async with open_place(tmp_path / "state", blobs=blobs) as place:
        yield place, blobs


def keep(blobs: Kept, data: bytes) -> None:
    """One more blob."""
    blobs.blobs[hashlib.sha256(data).digest()] = data


async def test_what_is_mounted_is_there_before_the_first_call_and_the_note_says_so(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    large, tar = bytes(range(256)) * 4000, archive(a=b"1", sub__b=b"22")
    keep(blobs, large)
    keep(blobs, tar)
    asked = request(
        place,
        (ref("blob", large), "in/large"),
        (ref("tar", tar), "/workspace/unpacked"),
        ("text:a: b\n#c", "note.txt"),
    )
    result = await place.provision(asked)
    found = await place.sh(
        asked.hand_id, "cat note.txt unpacked/a unpacked/sub/b; cksum < in/large"
    )
    assert found.content.startswith("a: b\n#c122")
    assert str(len(large)) in found.content
    assert "Mounted: in/large: 1024000 bytes" in result.note
    assert "Mounted: unpacked: 2 members, 3 bytes" in result.note
    assert blobs.asked == ["s", "s"]
    assert not found.files, "what was mounted is no call's doing"


async def test_a_mount_replaces_a_file_of_a_bound_workspace_and_follows_no_symlink_of_it(
    kept: tuple[Place, Kept], tmp_path: Path
) -> None:
    """H16, H39."""
    place, _ = kept
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (work / "a").write_text("old")
    (work / "link").symlink_to(outside)
    (work / "dangling").symlink_to(outside / "new")
    asked = request(place, ("text:new", "a"), ("text:x", "dangling"), workspace=str(work))
    await place.provision(asked)
    assert (work / "a").read_text() == "new"
    assert (work / "dangling").read_text() == "x"
    error = await refused(place, ("text:x", "link/b"), workspace=str(work))
    assert error.reason is Reason.PROVISION_FAILED
    assert "mounts[0] (link/b): link passes through a symlink" in error.message
    assert list(outside.iterdir()) == []


async def test_a_blob_that_is_not_there_is_a_mount_not_found_and_names_the_field(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    error = await refused(place, ("text:x", "a"), ("blob:" + "0" * 64, "b"))
    assert error.reason is Reason.MOUNT_NOT_FOUND
    assert error.fields["field"] == "mounts[1].source_ref"
    assert "no blob 0000" in error.message


async def test_a_mount_that_cannot_be_is_refused_before_anything_is_made(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    for source, path, field in (
        ("blob:12", "a", "mounts[0].source_ref"),
        ("text:x", "../a", "mounts[0].mount_path"),
        ("git:ssh://h/x", "a", "mounts[0].source_ref"),
    ):
        error = await refused(place, (source, path))
        assert error.reason is Reason.INVALID_FIELD
        assert error.fields["field"] == field


async def test_a_hostile_archive_makes_no_hand(kept: tuple[Place, Kept]) -> None:
    """H15."""
    place, blobs = kept
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        leak = tarfile.TarInfo("leak")
        leak.type, leak.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(leak)
    keep(blobs, made.getvalue())
    error = await refused(place, (ref("tar", made.getvalue()), "."))
    assert "leak is a symlink that leads out" in error.message


async def test_the_same_provision_again_waits_for_the_same_mounts_and_gets_the_same_answer(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    data = bytes(300_000)
    keep(blobs, data)
    blobs.gate.clear()
    asked = request(place, (ref("blob", data), "d"))
    first, second = (asyncio.create_task(place.provision(asked)) for _ in range(2))
    await asyncio.sleep(0)
    blobs.gate.set()
    assert await first == await second
    assert blobs.asked == ["s"]
    asked.mounts[0].mount_path = "e"
    with pytest.raises(CarpalError) as caught:
        await place.provision(asked)
    assert caught.value.reason is Reason.ID_REUSED


async def test_a_release_ends_the_mounts_of_a_hand_being_made_and_its_id_is_spent(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    data = bytes(300_000)
    keep(blobs, data)
    blobs.gate.clear()  # for ever: a repository, say, that takes an hour
    asked = request(place, (ref("blob", data), "d"), ("text:t", "e"))
    making = asyncio.create_task(place.provision(asked))
    async with asyncio.timeout(PATIENCE):
        while not blobs.asked:  # noqa: ASYNC110 - it is asked in a moment
            await asyncio.sleep(0.01)
    assert await place.release(asked.hand_id)
    for again in (making, place.provision(asked)):
        with pytest.raises(CarpalError) as caught:
            await again
        assert caught.value.reason is Reason.HAND_GONE
    assert not place.inventory.folder_of(asked.hand_id).exists()
    assert place.inventory.count == 0


async def test_a_git_repository_is_cloned_at_its_branch_tag_or_commit_by_the_hands_own_git(
    kept: tuple[Place, Kept], server: GitServer
) -> None:
    place, _ = kept
    old, new = server.repository("r", {"a": "old"}, {"a": "new", "d/b": "x"})
    git(server.folder / "r", "tag", "v1", old)
    git(server.folder / "r", "branch", "side", old)
    url = f"git:{server.url}/r"
    asked = request(
        place,
        (url, "whole"),
        (f"{url}#side", "at/side"),
        (f"{url}#v1", "tag"),
        (f"{url}#{old}", "commit"),
    )
    result = await place.provision(asked)
    assert f"Mounted: whole: {server.url}/r at {new}" in result.note
    shown = await place.sh(
        asked.hand_id,
        "cat whole/a at/side/a tag/a commit/a; git -C at/side branch --show-current",
    )
    assert shown.content == "newoldoldoldside\n"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("/none", "not found"),
        ("/r#none", "has no branch, tag or commit 'none'"),
        ("/r#" + "1" * 40, "has no branch, tag or commit"),
    ],
)
async def test_a_repository_or_a_commit_that_is_not_there_is_a_mount_not_found(
    kept: tuple[Place, Kept], server: GitServer, source: str, words: str
) -> None:
    place, _ = kept
    server.repository("r", {"a": "x"})
    error = await refused(place, (f"git:{server.url}{source}", "r"))
    assert error.reason is Reason.MOUNT_NOT_FOUND
    assert words in error.message


async def test_an_unreachable_repository_is_a_mount_not_found_in_good_time(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    error = await refused(place, ("git:http://127.0.0.1:1/r", "r"))
    assert error.reason is Reason.MOUNT_NOT_FOUND
    assert error.fields["field"] == "mounts[0].source_ref"


async def test_a_repository_is_cloned_into_no_folder_that_holds_something(
    kept: tuple[Place, Kept], server: GitServer
) -> None:
    place, _ = kept
    server.repository("r", {"a": "x"})
    error = await refused(place, ("text:x", "r/b"), (f"git:{server.url}/r", "r"))
    assert "r is there already, and is not empty" in error.message


async def test_no_model_can_ask_for_what_the_daemon_asks_for_to_mount(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    hand = await place.hand()
    with pytest.raises(CarpalError) as caught:
        await place.run(hand, ".place", kind="file", path="x", socket="socket")
    assert caught.value.reason is Reason.TOOL_NOT_FOUND


_NO_SANDBOX = probe.problem()


@pytest.mark.skipif(bool(_NO_SANDBOX), reason=_NO_SANDBOX)
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://127.0.0.1:1/r", "127.0.0.1:1 is not reached: connection refused"),
        ("https://nowhere.invalid/r", "nowhere.invalid has no address here"),
    ],
)
async def test_a_repository_that_the_forwarder_does_not_reach_is_said_with_why(
    url: str, why: str, tmp_path: Path
) -> None:
    async with open_place(tmp_path / "state", process=ProcessType(sandbox="required")) as place:
        error = await refused(place, (f"git:{url}", "r"))
    assert error.reason is Reason.MOUNT_NOT_FOUND
    assert why in error.message


@pytest.mark.skipif(bool(_NO_SANDBOX), reason=_NO_SANDBOX)
async def test_what_is_mounted_in_a_sandbox_belongs_to_the_hands_own_user_never_to_root(
    tmp_path: Path, server: GitServer
) -> None:
    """H40, H38: and a mount's repository is reached by the forwarder, while it is cloned."""
    (commit,) = server.repository("r", {"a": "from git"})
    blobs, process = Kept(), ProcessType(sandbox="required")
    async with open_place(tmp_path / "state", process=process, blobs=blobs) as place:
        tar = archive(a=b"from tar")
        keep(blobs, tar)
        asked = request(
            place,
            ("text:t", "/workspace/t"),
            (ref("tar", tar), "tar"),
            (f"git:{server.url}/r", "r"),
        )
        result = await place.provision(asked)
        assert commit in result.note
        found = await place.sh(
            asked.hand_id,
            "cat t tar/a r/a; echo; find . ! -user $(id -u) -o ! -group $(id -g); "
            "echo more >> r/a && git -C r status -s; "
            "no_proxy= NO_PROXY= git -C r fetch 2>&1 | grep -c 'error: 403'",
        )
        assert found.content.splitlines()[:3] == ["tfrom tarfrom git", " M a", "1"]
        folder = place.inventory.folder_of(asked.hand_id)
        left = [path.name for path in folder.iterdir() if path.name.startswith("passage")]
        assert not left
        await place.release(asked.hand_id)
        assert not folder.exists()


@pytest.mark.skipif(bool(_NO_SANDBOX), reason=_NO_SANDBOX)
async def test_a_repository_is_cloned_over_https_by_connect_to_a_host_that_shows_its_certificate(
    tmp_path: Path,
) -> None:
    """H38. The authority is the hand's own to trust, by what was mounted before."""
    pem = self_signed("127.0.0.1")
    (tmp_path / "host.pem").write_bytes(pem)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "host.pem")
    certificate = pem[pem.index(b"-----BEGIN CERT") :].decode()
    process = ProcessType(sandbox="required")
    with git_server(tmp_path / "git", tls) as server:
        (commit,) = server.repository("r", {"a": "x"})
        source = f"git:{server.url}/r"
        async with open_place(tmp_path / "state", process=process) as place:
            trusts = {"GIT_SSL_CAINFO": "/workspace/ca.pem"}
            asked = request(place, (f"text:{certificate}", "ca.pem"), (source, "r"), env=trusts)
            result = await place.provision(asked)
            assert f"{server.url}/r at {commit}" in result.note
            assert (await place.sh(asked.hand_id, "cat r/a")).content == "x"
            error = await refused(place, (source, "r"))
            assert error.reason is Reason.MOUNT_NOT_FOUND
            assert "certificate" in error.message


async def test_a_daemon_killed_in_a_mount_leaves_nothing_and_a_new_hand_has_its_mounts(
    tmp_path: Path,
) -> None:
    """H44."""
    state, connected = tmp_path / "state", asyncio.Event()

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(says_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with child(state) as daemon:
            asked = pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="process")
            asked.mounts.add(source_ref="text:x", mount_path="a")
            asked.mounts.add(source_ref=f"git:http://127.0.0.1:{port}/r", mount_path="r")
            daemon.ask(provision=asked)
            async with asyncio.timeout(PATIENCE):
                await connected.wait()
            folder = state / "hands/h"
            assert (folder / "workspace/a").read_text() == "x"
            await daemon.kill()
        async with open_place(state) as place:
            await until(lambda: not folder.exists(), "the hand's folder is left")
            assert place.journal.hand("h") is None
            assert not tree.kill_marked(mark(folder))
            again = request(place, ("text:x", "a"))
            await place.provision(again)
            assert (await place.sh(again.hand_id, "cat a")).content == "x"


async def save(place: Place, hand: str, save_id: str = "s1") -> pb.Attachment:
    """A save's answer."""
    asked = pb.SaveRequest(driver=place.driver(), hand_id=hand, save_id=save_id)
    async with asyncio.timeout(PATIENCE):
        steps = [step async for step in place.service.save(asked)]
    assert [step.WhichOneof("step") for step in steps] == ["progress", "saved"]
    return steps[-1].saved


async def test_a_saved_workspace_is_restored_by_a_mount_in_another_hand(
    kept: tuple[Place, Kept],
) -> None:
    place, blobs = kept
    hand = await place.hand()
    await place.sh(hand, "mkdir -p d/e; seq 100000 > d/n; chmod +x d/n; ln -s d/n l; ln -s / out")
    running = place.begin(place.request(hand, command="sleep 0.5; echo late > d/late"))
    saved = await save(place, hand)
    await running.result()
    assert saved.media_type == "application/x-tar"
    assert saved.size == len(blobs.blobs[saved.digest])
    assert "left out, since they could not be restored: 1 ('out')" in saved.name
    asked = request(place, (f"tar:{saved.digest.hex()}", "."))
    await place.provision(asked)
    same = await place.sh(asked.hand_id, "seq 100000 | cmp - l && test -x d/n -a -d d/e && find .")
    assert sorted(same.content.split()) == ["."] + [
        "./" + n for n in ("d", "d/e", "d/late", "d/n", "l")
    ]


async def test_a_save_asked_for_again_answers_the_first_result_also_after_a_restart(
    tmp_path: Path,
) -> None:
    blobs = Kept()
    async with open_place(tmp_path / "state", end=False, blobs=blobs) as place:
        hand = await place.hand()
        first = await save(place, hand)
        await place.sh(hand, "echo more > more")
        assert await save(place, hand) == first
        assert blobs.asked == ["s"]
        assert await save(place, hand, "s2") != first
    async with open_place(tmp_path / "state") as place:
        assert await save(place, hand) == first
        assert (await place.sh(hand, "cat more")).content == "more\n", "it goes on all the same"
        await place.release(hand)
        with pytest.raises(CarpalError) as caught:
            await save(place, hand)
        assert caught.value.reason is Reason.HAND_NOT_FOUND


async def test_a_workspace_that_cannot_be_sent_is_not_saved_and_the_hand_goes_on(
    kept: tuple[Place, Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    place, _ = kept
    hand = await place.hand()
    await place.sh(hand, "head -c 1000000 /dev/zero > zeros")
    monkeypatch.setattr("hands.life.saving.BYTES_MAX", 100_000)
    with pytest.raises(CarpalError) as caught:
        await save(place, hand)
    assert caught.value.reason is Reason.SAVE_FAILED
    assert "more than 100000 bytes" in caught.value.message
    assert (await place.sh(hand, "ls")).content == "zeros\n"


async def test_a_save_under_way_ends_with_its_hand(kept: tuple[Place, Kept]) -> None:
    place, blobs = kept
    blobs.writes.clear()
    hand = await place.hand()
    saving = asyncio.create_task(save(place, hand))
    await asyncio.wait_for(blobs.writing.wait(), PATIENCE)
    assert await place.release(hand)
    with pytest.raises(CarpalError) as caught:
        await saving
    assert caught.value.reason is Reason.HAND_GONE
    assert place.journal.saved(hand, "s1") is None
