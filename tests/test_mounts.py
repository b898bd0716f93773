"""What a mount's two texts say."""

import pytest

from carpal.errors import CarpalError
from carpal.mounts import Mount, digest_of, parse, refuse_twice
from carpal.status import Reason

HEX = "ab" * 32


@pytest.mark.parametrize(
    ("source", "path", "mount"),
    [
        (f"blob:{HEX}", "a/b.csv", Mount("blob", HEX, "a/b.csv")),
        (f"tar:{HEX}", ".", Mount("tar", HEX, ".")),
        (f"tar:{HEX}", "/workspace", Mount("tar", HEX, ".")),
        ("text:", "/workspace/./notes//a", Mount("text", "", "notes/a")),
        ("text:a:b#c", "t", Mount("text", "a:b#c", "t")),
        ("git:https://h/r.git", "r", Mount("git", "https://h/r.git", "r")),
        ("git:https://h:8/r#v1.0", "r", Mount("git", "https://h:8/r", "r", "v1.0")),
        ("git:http://127.0.0.1:8/r", "r", Mount("git", "http://127.0.0.1:8/r", "r")),
    ],
)
def test_a_mount_is_read(source: str, path: str, mount: Mount) -> None:
    assert parse(source, path) == mount


@pytest.mark.parametrize(
    ("source", "path", "field"),
    [
        ("", "a", "source_ref"),
        ("text", "a", "source_ref"),
        ("file:/etc/passwd", "a", "source_ref"),
        ("blob:abc", "a", "source_ref"),
        (f"blob:{HEX.upper()}", "a", "source_ref"),
        ("git:ssh://h/r", "a", "source_ref"),
        ("git:http://h/r", "a", "source_ref"),
        ("git:https://u:p@h/r", "a", "source_ref"),
        ("git:--upload-pack=x", "a", "source_ref"),
        ("git:https://h/r#--x", "a", "source_ref"),
        ("git:https://h/r#a..b", "a", "source_ref"),
        ("git:https://h:port/r", "a", "source_ref"),
        ("git:ext::sh -c id", "a", "source_ref"),
        ("session:", "a", "source_ref"),
        ("session:../x", "a", "source_ref"),
        ("session:s#", "a", "source_ref"),
        ("session:s#-", "a", "source_ref"),
        ("session:s#0-3", "a", "source_ref"),
        ("session:s#9-3", "a", "source_ref"),
        ("session:s#a-b", "a", "source_ref"),
        ("text:x", "", "mount_path"),
        ("text:x", ".", "mount_path"),
        ("text:x", "/workspace", "mount_path"),
        ("text:x", "../a", "mount_path"),
        ("text:x", "a/../../b", "mount_path"),
        ("text:x", "/etc/passwd", "mount_path"),
        ("text:x", "/workspaces/a", "mount_path"),
        ("text:x", "a\0b", "mount_path"),
        ("text:x", "a" * 1025, "mount_path"),
    ],
)
def test_a_mount_that_cannot_be_is_refused_by_the_name_of_its_field(
    source: str, path: str, field: str
) -> None:
    with pytest.raises(CarpalError) as caught:
        parse(source, path, "mounts[1]")
    assert caught.value.reason is Reason.INVALID_FIELD
    assert caught.value.fields["field"] == f"mounts[1].{field}"


def test_two_mounts_on_one_path_are_refused_by_the_field_of_the_second() -> None:
    text = parse("text:x", "a/b")
    refuse_twice([text, parse("text:x", "a")], "mounts")
    archive = parse(f"tar:{HEX}", ".")
    refuse_twice([archive, archive], "mounts")  # they add up
    with pytest.raises(CarpalError) as caught:
        refuse_twice([text, archive, parse("text:y", "/workspace/a//b")], "mounts")
    assert caught.value.fields["field"] == "mounts[2].mount_path"


@pytest.mark.parametrize(
    ("source", "positions"),
    [
        ("session:sesn_1", (1, 0)),
        ("session:self", (1, 0)),
        ("session:sesn_1#12-90", (12, 90)),
        ("session:sesn_1#12-", (12, 0)),
        ("session:sesn_1#-90", (1, 90)),
    ],
)
def test_a_session_is_its_id_and_which_positions(source: str, positions: tuple[int, int]) -> None:
    mount = parse(source, ".")
    assert (mount.kind, mount.positions) == ("session", positions)
    assert mount.source == source[8:].partition("#")[0]


def test_only_blobs_and_archives_have_a_digest() -> None:
    assert digest_of(f"tar:{HEX}") == bytes.fromhex(HEX)
    assert digest_of("tar:abc") is None
    assert digest_of("text:x") is None
