"""`carpal proto`: what it writes is all that protoc needs."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tests.command import ROOT, Command


def compile_all(folder: Path, written: list[str], out: Path) -> None:
    """With what comes with protoc, and no other folder to find anything in."""
    spec = find_spec("grpc_tools")
    assert spec is not None
    assert spec.origin is not None
    well_known = Path(spec.origin).parent / "_proto"
    out.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{well_known}"),
            *(f"--python_out={out}", *written),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


async def test_what_is_written_compiles_with_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "protos"
    ended = await Command(tmp_path)("proto", str(folder))
    assert ended.code == 0, ended.stderr
    written = [Path(line).relative_to(folder).as_posix() for line in ended.stdout.splitlines()]
    assert {"carpal/v1/hand.proto", "google/rpc/status.proto"} <= set(written)
    assert "google/rpc/error_details.proto" in written
    compile_all(folder, written, tmp_path / "out")
    assert (tmp_path / "out" / "carpal" / "v1" / "hand_pb2.py").exists()


async def test_it_is_the_contract_of_this_version_and_writes_it_again_over_what_is_there(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        assert (await Command(tmp_path)("proto", str(tmp_path / "p"))).code == 0
    for path in (ROOT / "proto" / "carpal" / "v1").glob("*.proto"):
        assert (tmp_path / "p" / "carpal" / "v1" / path.name).read_bytes() == path.read_bytes()


async def test_a_folder_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ended = await Command(tmp_path)("proto", str(tmp_path / "file" / "p"))
    assert ended.code == 2
    assert "cannot be written" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
