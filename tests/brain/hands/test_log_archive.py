"""A log as files: exact for code, readable for a person, and of a size that is bounded."""

import io
import json
import tarfile

import pytest

from brain.hands import log_archive
from brain.hands.log_archive import LogArchive
from carpal.errors import CarpalError
from carpal.event_lines import event_of, loads
from carpal.v1 import types_pb2


def event(position: int, text: str = "hi", kind: str = "user.message") -> types_pb2.Event:
    """One as sessiond gives it."""
    data = json.dumps({"content": [{"type": "text", "text": text}]}).encode()
    return types_pb2.Event(id=f"e{position}", position=position, type=kind, source="s", data=data)


def archive(*groups: list[types_pb2.Event]) -> dict[str, bytes]:
    """The files of an archive by name."""
    file = io.BytesIO()
    made = LogArchive(file, "sesn_1")
    for events in groups:
        made.add(events)
    made.end()
    file.seek(0)
    with tarfile.open(fileobj=file) as tar:
        members = tar.getmembers()
        assert all(member.mode == 0o444 for member in members)
        return {m.name: tar.extractfile(m).read() for m in members}  # type: ignore[union-attr]


def test_a_small_log_is_its_events_its_conversation_and_what_it_is() -> None:
    events = [event(1, "héllo"), event(2, "spent", "span.model_request_end"), event(3, "bye")]
    files = archive(events[:2], events[2:])
    assert list(files) == ["events.jsonl", "conversation.md", "about.json"]
    read = [event_of(loads(line)) for line in files["events.jsonl"].splitlines()]
    assert [e.data for e in read] == [e.data for e in events], "to the byte, as an export has them"
    said = files["conversation.md"].decode()
    assert "## 1 user.message 1970-01-01T00:00:00Z\n\nhéllo\n" in said
    assert "spent" not in said
    about = json.loads(files["about.json"])
    expected = {"session_id": "sesn_1", "from": 1, "through": 3, "events": 3, "folders": []}
    assert about == expected


def test_a_large_log_is_in_folders_named_by_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_archive, "FOLDER_EVENTS", 2)
    files = archive([event(n) for n in range(3, 8)])
    folders = ["000000003-000000004", "000000005-000000006", "000000007-000000007"]
    assert json.loads(files["about.json"])["folders"] == folders
    assert [name for name in files if name.endswith("jsonl")] == [
        f"{folder}/events.jsonl" for folder in folders
    ]
    assert len(files[f"{folders[0]}/events.jsonl"].splitlines()) == 2


def test_a_log_that_is_too_large_is_refused_with_the_part_that_would_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_archive, "ARCHIVE_BYTES", 100_000)
    with pytest.raises(CarpalError) as caught:
        archive([event(n, "x" * 1000) for n in range(1, 100)])
    assert "mount a part of it: session:sesn_1#1-" in str(caught.value)


def test_what_is_held_is_one_folder_however_long_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_archive, "FOLDER_BYTES", 10_000)
    made = LogArchive(io.BytesIO(), "sesn_1")
    for n in range(1, 200):
        made.add([event(n, "x" * 1000)])
        assert len(made._lines) < 13_000
        assert len(made._said) < 13_000


def test_a_redacted_event_stays_redacted() -> None:
    redacted = types_pb2.Event(id="e1", position=1, type="user.message", source="s")
    redacted.redaction.reason = "secret"
    files = archive([redacted])
    assert loads(files["events.jsonl"].strip())["redaction"]["reason"] == "secret"
    assert b"[redacted]" in files["conversation.md"]
