"""`carpal agent` keeps agents by name, every version of each, and refuses what is none."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carpal.identity import Role
from carpal.v1 import session_pb2
from tests.command import Command, Ended
from tests.operator.real import lines, real_sessiond
from tests.pki import Pki
from tests.sessiond.serving import Serving

FIXER = "name: fixer\nmodel: m\nsystem: |\n  You fix.\n  Say no more.\n"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Serving]:
    async with real_sessiond(tmp_path) as served:
        yield served


def alone(tmp_path: Path) -> None:
    """An operator whose sessiond does not serve."""
    operator = tmp_path / "state" / "operator"
    Pki(tmp_path / "pki").issue(Role.OPERATOR, "ann", directory=operator / "identity")
    (operator / "operator.toml").write_text('sessiond = "127.0.0.1:1"\n')


async def create(carpal: Command, text: str = FIXER) -> Ended:
    return await carpal("agent", "create", "-", stdin=text)


async def test_an_agent_is_kept_under_its_name_and_shown_as_it_was_written(
    server: Serving, carpal: Command
) -> None:
    created = await create(carpal)
    assert (created.code, created.stdout) == (0, "fixer version 1\n"), created.stderr
    shown = await carpal("agent", "show", "fixer")
    assert shown.stdout.startswith("# fixer, version 1 of ")
    assert shown.stdout.partition("\n")[2] == FIXER
    (row,) = lines((await carpal("agent", "ls", "--json")).stdout)
    assert (row["name"], row["version"], row["model"], row["harness"]) == (
        "fixer",
        1,
        "m",
        "tool_loop",
    )
    (shown_json,) = lines((await carpal("agent", "show", "fixer", "--json")).stdout)
    assert shown_json["agent"] == {
        "name": "fixer",
        "model": "m",
        "system": "You fix.\nSay no more.\n",
    }


async def test_what_is_shown_can_be_given_to_edit_and_every_version_stays(
    server: Serving, carpal: Command, tmp_path: Path
) -> None:
    await create(carpal)
    shown = await carpal("agent", "show", "fixer")
    same = await carpal("agent", "edit", "fixer", "--file", "-", stdin=shown.stdout)
    assert (same.code, same.stdout) == (0, "fixer version 1\n")
    assert "fixer is as it was" in same.stderr
    changed = shown.stdout.replace("model: m", "model: other")
    edited = await carpal("agent", "edit", "fixer", "--file", "-", stdin=changed)
    assert edited.stdout == "fixer version 2\n"
    assert "model: other" in (await carpal("agent", "show", "fixer")).stdout
    assert "model: m\n" in (await carpal("agent", "show", "fixer", "--version", "1")).stdout
    missing = await carpal("agent", "show", "fixer", "--version", "3")
    assert (missing.code, missing.stdout) == (5, "")
    assert "agent 'fixer' has no version 3" in missing.stderr


async def test_a_second_agent_of_the_name_is_refused_and_says_how_to_change_the_first(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    again = await create(carpal)
    assert again.stdout == "fixer version 1\n", "the same once more is the first answer"
    other = await create(carpal, FIXER.replace("model: m", "model: other"))
    assert other.code == 1
    assert "there is an agent 'fixer' already" in other.stderr
    assert "carpal agent edit fixer" in other.stderr


async def test_an_edit_over_what_somebody_else_changed_is_refused(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    newer = FIXER.replace("model: m", "model: other")
    assert (await carpal("agent", "edit", "fixer", "--file", "-", stdin=newer)).code == 0
    late = await carpal("agent", "edit", "fixer", "--file", "-", "--replaces", "1", stdin=FIXER)
    assert late.code == 1
    assert "agent 'fixer' is at version 2, not 1: somebody else changed it" in late.stderr
    assert "model: other" in (await carpal("agent", "show", "fixer")).stdout


async def test_an_editor_is_given_the_yaml_and_what_it_leaves_is_the_next_version(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    carpal.environ["EDITOR"] = "sed -i s/You.fix/You.mend/"
    edited = await carpal("agent", "edit", "fixer")
    assert (edited.code, edited.stdout) == (0, "fixer version 2\n"), edited.stderr
    assert "You.mend." in (await carpal("agent", "show", "fixer")).stdout


async def test_an_edit_with_a_mistake_changes_nothing_and_keeps_what_was_written(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    carpal.environ["EDITOR"] = "sed -i s/model/modle/"
    edited = await carpal("agent", "edit", "fixer")
    assert edited.code == 2
    mistake = next(line for line in edited.stderr.splitlines() if "is no key" in line)
    assert "line 3: modle" in mistake
    kept = Path(mistake.removeprefix("carpal: ").partition(":")[0])
    assert "modle: m" in kept.read_text()
    assert str(kept) in edited.stderr.replace(mistake, "")
    kept.unlink()
    assert "version 1" in (await carpal("agent", "show", "fixer")).stdout


@pytest.mark.parametrize("editor", ["false", "no-such-editor"])
async def test_an_editor_that_fails_changes_nothing(
    server: Serving, carpal: Command, editor: str, tmp_path: Path
) -> None:
    await create(carpal)
    carpal.environ |= {"EDITOR": editor, "TMPDIR": str(tmp_path)}
    edited = await carpal("agent", "edit", "fixer")
    assert edited.code == 2
    assert "$EDITOR" in edited.stderr
    assert "Traceback" not in edited.stderr
    assert not list(tmp_path.glob("fixer-*")), "nothing was written that could be lost"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("modle: m\nname: x", "stdin: line 1: modle: is no key"),
        ("name: on", "stdin: line 1: name: `on` is true to some"),
        (
            "model: m",
            "stdin: line 1: name: is missing: an agent is kept under its name; write `name: ",
        ),
        (
            "model: m\nname: my fixer",
            "stdin: line 2: name: must be 1 to 128 letters, digits, '_' or",
        ),
        (
            "name: x\nhands:\n  a: {type: process,\n    orphan_deadline: 0}",
            "line 4: hands.a.orphan_",
        ),
        ("[]", "must be a mapping"),
    ],
)
async def test_what_is_no_agent_is_refused_before_anything_is_sent(
    carpal: Command, tmp_path: Path, text: str, says: str
) -> None:
    # No sessiond serves: a refusal that needed one would say that it does not answer.
    alone(tmp_path)
    refused = await create(carpal, text)
    assert refused.code == 2
    assert says in refused.stderr


async def test_a_file_that_is_not_there_is_said_in_one_line(
    carpal: Command, tmp_path: Path
) -> None:
    alone(tmp_path)
    refused = await carpal("agent", "create", "nowhere.yaml")
    assert (refused.code, refused.stderr) == (
        2,
        "carpal: nowhere.yaml: no such file or directory\n",
    )


async def test_an_edit_under_another_name_is_refused(server: Serving, carpal: Command) -> None:
    await create(carpal)
    text = FIXER.replace("fixer", "mender")
    refused = await carpal("agent", "edit", "fixer", "--file", "-", stdin=text)
    assert refused.code == 2
    assert "is 'mender', and the agent to edit is 'fixer'" in refused.stderr


async def test_a_harness_that_is_not_installed_here_is_a_word_and_no_refusal(
    server: Serving, carpal: Command
) -> None:
    created = await create(carpal, FIXER + "harness: of_mine\n")
    assert created.code == 0
    assert "no harness 'of_mine' is installed here" in created.stderr


async def test_a_session_says_which_agent_and_version_it_started_with(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    text = FIXER.replace("model: m", "model: other")
    await carpal("agent", "edit", "fixer", "--file", "-", stdin=text)
    ran = await carpal("run", "hello", "--agent", "fixer", "--detach")
    assert ran.code == 0, ran.stderr
    ann = await server.operator("ann")
    answer = await ann.GetEvents(session_pb2.GetEventsRequest(session_id=ran.stdout.strip()))
    agent = json.loads(answer.events[0].data)["agent"]
    assert (agent["name"], agent["version"], agent["model"]) == ("fixer", 2, "other")


async def test_an_agent_that_nobody_keeps_is_not_found(server: Serving, carpal: Command) -> None:
    for command in (["agent", "show", "x"], ["run", "hello", "--agent", "x"]):
        refused = await carpal(*command)
        assert refused.code == 5
        assert "no agent 'x': list them with `carpal agent ls`" in refused.stderr


async def test_a_document_that_is_no_agent_is_not_run(server: Serving, carpal: Command) -> None:
    ann = await server.operator("ann")
    for name, data in (("odd", b'{"modle": "m"}'), ("list", b"[1]")):
        await ann.PutDocument(session_pb2.PutDocumentRequest(kind="agent", name=name, data=data))
    refused = await carpal("run", "hello", "--agent", "odd")
    assert refused.code == 2
    assert "agent odd, version 1: modle: is no key" in refused.stderr
    listed = lines((await carpal("agent", "ls", "--json")).stdout)
    assert [row["name"] for row in listed] == ["list", "odd"]


async def test_the_content_of_an_older_version_creates_nothing_and_says_so(
    server: Serving, carpal: Command
) -> None:
    await create(carpal)
    newer = FIXER.replace("model: m", "model: other")
    assert (await carpal("agent", "edit", "fixer", "--file", "-", stdin=newer)).code == 0
    again = await create(carpal)
    assert (again.code, again.stdout) == (1, "")
    assert "there is an agent 'fixer' already" in again.stderr


async def test_a_file_without_an_end_and_a_version_beyond_all_are_refused(
    tmp_path: Path, carpal: Command
) -> None:
    alone(tmp_path)
    endless = await carpal("agent", "create", "/dev/zero")
    assert endless.code == 2
    assert "/dev/zero: has more than the 262144 bytes" in endless.stderr
    beyond = await carpal("agent", "show", "fixer", "--version", "99999999999999999999999")
    assert beyond.code == 2
    assert "bug" not in beyond.stderr
