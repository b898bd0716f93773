"""What a daemon keeps of people in its hands, until some log has it."""

from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from hands.journal import Journal
from hands.people.tunnel_records import MOST, Record, Records


def _record(tunnel_id: str) -> Record:
    return Record(tunnel_id, "s", "h", "shell", "spiffe://t/operator/o", "shell", True, 1.0)


def test_a_tunnel_is_kept_through_a_restart_and_ended_by_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    records = Records(journal)
    records.begin(_record("t1"))
    records.begin(_record("t2"))
    records.end("t2", "they left")
    journal.close()
    journal = Journal(tmp_path / "j")
    kept = {each.tunnel_id: each for each in Records(journal)}
    assert {each.because for each in kept.values()} == {"the daemon ended", "they left"}
    assert all(each.ended for each in kept.values())
    journal.close()


def test_what_a_log_has_is_forgotten_also_when_it_has_it_before_the_end(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    records = Records(journal)
    for tunnel_id in ("t1", "t2"):
        records.begin(_record(tunnel_id))
    records.end("t1", "they left")
    records.settle(["t1", "t2", "none"])
    assert [each.tunnel_id for each in records] == ["t2"], "it is open still"
    records.end("t2", "the person's command ended")
    assert len(records) == len(Records(journal)) == 0
    journal.close()


def test_nobody_enters_where_logs_cannot_be_told(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j")
    records = Records(journal)
    for number in range(MOST):
        records.check_room()
        records.begin(_record(f"t{number}"))
        records.end(f"t{number}", "x" * 10_000)
    with pytest.raises(CarpalError) as caught:
        records.check_room()
    assert caught.value.reason is Reason.AT_CAPACITY
    journal.close()
