"""A log is read by code: mounted in a hand, of another session and of its own."""

import json
from hashlib import sha256
from pathlib import Path

from tests.command import Command
from tests.interaction.play import session
from tests.world import World


async def test_a_person_runs_a_task_over_another_sessions_log(whole: World, tmp_path: Path) -> None:
    address = whole.running["sessiond"].facts["address"]
    carpal = Command(tmp_path, {"CARPAL_STATE": str(whole.state), "CARPAL_SESSIOND": address})
    async with session(whole, "$ echo what was done") as made:
        await made.until_type("session.status_idle")
        head = made.log[-1].position
        code = (
            "import json; events = [json.loads(l) for l in open('log/events.jsonl')]; "
            "print(len(events), sum(e['type'] == 'agent.tool_use' for e in events))"
        )
        task = f'$ python3 -c "{code}"; sha256sum < log/events.jsonl'
        mount = f"log=session:{made.session_id}"
        ended = await carpal("run", "--mount", mount, "--json", task)
        assert ended.code == 0, ended
        exported = await carpal("session", "export", made.session_id)
    lines = exported.stdout.encode().splitlines(keepends=True)[1 : head + 1]
    shown = await carpal("session", "export", json.loads(ended.stdout)["session_id"])
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    (result,) = [e["data"] for e in events if e.get("type") == "agent.tool_result"]
    counted, digest = result["content"][0]["text"].splitlines()
    assert counted == f"{head} 1"
    assert digest.split()[0] == sha256(b"".join(lines)).hexdigest(), "as an export has them"


async def test_a_session_reads_its_own_log_by_code(whole: World) -> None:
    task = "$ cat log/about.json; sha256sum < log/events.jsonl; ls -l log/events.jsonl"
    async with session(whole, task, resources=(("session:self", "log"),)) as made:
        await made.until_type("session.status_idle")
        (asked,) = made.data("hand.provision_requested")
        (told,) = asked["sessions"]
        assert told["session_id"] == made.session_id
        about = json.JSONDecoder().raw_decode(made.results()[0])[0]
        assert about["through"] == told["through"]
        assert about["events"] == told["through"]
