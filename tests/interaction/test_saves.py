"""A workspace outlives its session: saved by one, and mounted by another."""

import json
from pathlib import Path

from tests.command import Command
from tests.interaction.play import session
from tests.world import World


async def test_what_a_person_saves_of_one_session_another_has_mounted(
    whole: World, tmp_path: Path
) -> None:
    address = whole.running["sessiond"].facts["address"]
    carpal = Command(tmp_path, {"CARPAL_STATE": str(whole.state), "CARPAL_SESSIOND": address})
    async with session(whole, "$ mkdir d; echo kept > d/f; chmod 755 d/f; ln -s d/f l") as made:
        await made.until_type("session.status_idle")
        out = tmp_path / "w.tar"
        ended = await carpal("session", "save", made.session_id, "--out", str(out), "--json")
        assert ended.code == 0, ended
        saved = json.loads(ended.stdout)
        assert saved["source"] == f"tar:{made.data('hand.saved')[0]['blob'][7:]}"
        assert out.stat().st_size == saved["size"]
        assert len(made.data("span.model_request_start")) == 2, "the model hears nothing of it"
    task = "$ cat l; stat -c %a d/f"
    async with session(whole, task, resources=((saved["source"], "."),)) as made:
        await made.until_type("session.status_idle")
        assert made.results() == ["kept\n755\n"]
