"""Mounts and saves of container hands: as in any hand, and never as root."""

import asyncio
import io
import shutil
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin.container import ContainerType
from hands.isolation import uids
from tests import images
from tests.engine import Engine
from tests.git_server import GitServer, git_server
from tests.hands.container.conftest import box
from tests.hands.life.test_mounts import Kept, archive, keep, ref, request, save
from tests.hands.place import Place, open_place
from tests.png import png


@pytest.fixture
async def kept(
    engine: Engine, kind: ContainerType, state: Path
) -> AsyncIterator[tuple[Place, Kept]]:
    """A service that has container hands, and whose blobs are here."""
    blobs = Kept()
    async with open_place(state, more={"container": kind}, blobs=blobs) as place:
        yield place, blobs
        for row in place.journal.hands():
            await place.release(row.hand_id)
    assert not engine.containers()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    """A git server."""
    with git_server(tmp_path / "git") as serving:
        yield serving


def ask(
    place: Place, *mounts: tuple[str, str], image: str = images.SHELL, **config: object
) -> pb.ProvisionRequest:
    """A container hand with mounts."""
    asked = request(place, *mounts, image=image, **config)
    asked.type = "container"
    return asked


async def test_what_is_mounted_in_a_container_belongs_to_the_hands_own_user_never_to_root_h40(
    kept: tuple[Place, Kept], state: Path
) -> None:
    place, blobs = kept
    tar, large = archive(a=b"from tar", d__b=b"2"), bytes(range(256)) * 4000
    keep(blobs, tar)
    keep(blobs, large)
    asked = ask(place, ("text:t", "t"), (ref("tar", tar), "tar"), (ref("blob", large), "in/large"))
    result = await place.provision(asked)
    assert "Mounted: tar: 2 members, 9 bytes" in result.note
    said = await place.sh(asked.hand_id, "cat t tar/a tar/d/b; wc -c <in/large; echo x >>tar/a")
    assert said.content == f"tfrom tar2{len(large)}\n"
    workspace = state / "hands" / asked.hand_id / "workspace"
    owners = {path.lstat().st_uid for path in workspace.rglob("*")}
    assert owners == {uids.owner(state / "hands" / asked.hand_id)}
    assert 0 not in owners


def _hostile(kind: bytes, target: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("leak")
        info.type, info.linkname = kind, target
        tar.addfile(info)
    return made.getvalue()


@pytest.mark.parametrize(
    "tar",
    [
        _hostile(tarfile.SYMTYPE, "/etc/passwd"),
        _hostile(tarfile.LNKTYPE, "/etc/passwd"),
        _hostile(tarfile.CHRTYPE, ""),
        archive(**{"..__..__out": b"x"}),
    ],
)
async def test_a_hostile_archive_makes_no_container_h15(
    kept: tuple[Place, Kept], engine: Engine, tar: bytes
) -> None:
    place, blobs = kept
    keep(blobs, tar)
    asked = ask(place, (ref("tar", tar), "in"))
    with pytest.raises(CarpalError) as refused:
        await place.provision(asked)
    assert refused.value.reason is Reason.PROVISION_FAILED
    assert "mounts[0] (in)" in refused.value.message
    assert not place.inventory.folder_of(asked.hand_id).exists()
    assert not engine.containers()


async def test_a_save_of_a_container_is_restored_in_a_hand_of_another_type(
    kept: tuple[Place, Kept],
) -> None:
    place, _ = kept
    hand = await box(place)
    await place.sh(hand, "mkdir d; seq 1000 >d/n; chmod 700 d/n; ln -s d/n l; ln -s / out")
    saved = await save(place, hand)
    assert "left out, since they could not be restored: 1 ('out')" in saved.name
    asked = request(place, (f"tar:{saved.digest.hex()}", "."))
    await place.provision(asked)
    same = await place.sh(asked.hand_id, "seq 1000 | cmp - l && test -x d/n && ls")
    assert same.content == "d\nl\n"
    again = ask(place, (f"tar:{saved.digest.hex()}", "."))
    await place.provision(again)
    assert (await place.sh(again.hand_id, "stat -c %a d/n; tail -n 1 l")).content == "700\n1000\n"


async def test_a_picture_leaves_a_container_as_an_attachment_h46(kept: tuple[Place, Kept]) -> None:
    place, blobs = kept
    hand = await box(place, limits={"disk_bytes": 32 << 20, "memory_bytes": 256 << 20})
    data = png(64)
    octal = "".join(f"\\{byte:03o}" for byte in data)
    await place.sh(hand, f"printf '{octal}' >shot.png")
    result = await place.run(hand, "read", file_path="shot.png")
    (image,) = result.attachments
    assert blobs.blobs == {image.digest: data}
    assert result.content.startswith(f"[image/png, {len(data)} bytes")


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_a_repository_is_cloned_into_a_container_by_its_own_git_and_forwarder(
    kept: tuple[Place, Kept], engine: Engine, server: GitServer
) -> None:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("no mmdebstrap here: Debian's package of that name brings it")
    await asyncio.to_thread(images.add_debian, engine.client)
    place, _ = kept
    first, second = server.repository("r", {"a": "one"}, {"a": "two"})
    for at, text in ((first, "one"), (second, "two")):
        asked = ask(place, (f"git:{server.url}/r#{at}", "r"), image=images.DEBIAN)
        assert at in (await place.provision(asked)).note
        said = await place.sh(asked.hand_id, "cat r/a; find . ! -user hand; git -C r status -s")
        assert said.content == text
        await place.release(asked.hand_id)
