"""A script file is played as written, or refused in one line that says where it is wrong."""

from pathlib import Path

import pytest

from brain.practice import answer
from brain.practice.answer import Answer, Cut, Delay, Failure, StopDetails, ToolCall, Usage
from brain.practice.script import load_script
from carpal.errors import BadInput
from carpal.status import Reason

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "practice-model.md"


def test_a_whole_script_is_read(tmp_path: Path) -> None:
    path = tmp_path / "whole.yaml"
    path.write_text(
        """
match: fix the bug
turns:
  - thinking: Hm.
    text: I'll look.
    tools:
      - {name: bash, input: {command: ls, since: 2026-01-01}}
      - name: web__bash
    usage: {input_tokens: 10, output_tokens: 20, cache_read_input_tokens: 30}
    delay: {first: 0.5, chunk: 0.01}
    chunk: 7
    error: {status: 529, retry_after: 1, times: 2}
    cut: {after: 9}
  - when: again
    text: ""
    stop_reason: refusal
    stop_details: {category: cyber}
  - error: {status: 500, times: always}
""",
        encoding="utf-8",
    )
    script = load_script(path)
    assert (script.name, script.match) == ("whole", "fix the bug")
    assert script.turns == [
        Answer(
            thinking="Hm.",
            text="I'll look.",
            tools=[
                ToolCall("bash", {"command": "ls", "since": "2026-01-01"}),
                ToolCall("web__bash"),
            ],
            usage=Usage(10, 20, cache_read_input_tokens=30),
            delay=Delay(0.5, 0.01),
            chunk=7,
            error=Failure(529, retry_after=1, times=2),
            cut=Cut(9),
        ),
        Answer(when="again", text="", stop_reason="refusal", stop_details=StopDetails("cyber")),
        Answer(error=Failure(500, times="always")),
    ]


BAD: list[tuple[str, str]] = [
    ("turns: [{txt: hi}]", "turns[0]: unknown key 'txt': use one of: chunk, cut, delay, error, "),
    ("turn: []", "unknown key 'turn': use one of: match, name, turns"),
    ("name: x", "'turns' is missing: add it"),
    ("turns: []", "turns: expected `array` of length >= 1: correct the value"),
    ("", "expected `object`, got `null`: correct the value"),
    ("turns: [{text: yes}]", "turns[0].text: expected `str | null`, got `bool`: put the value in"),
    ("turns: [{text: 42}]", "turns[0].text: expected `str | null`, got `int`: put the value in"),
    ("turns: [{tools: [{input: {}}]}]", "turns[0].tools[0]: 'name' is missing: add it"),
    (
        "turns: [{tools: [{name: bash, inputs: {}}]}]",
        "turns[0].tools[0]: unknown key 'inputs': use one of: input, name",
    ),
    ("turns: [{text: a, error: {status: 200}}]", "turns[0].error.status: expected `int` >= 400"),
    ("turns: [{text: a, error: {code: 529}}]", "use one of: after, message, retry_after, status,"),
    ("turns: [{text: a, cut: {after: 1, times: 0}}]", "turns[0].cut.times: "),
    ("turns: [{text: a, delay: 3}]", "turns[0].delay: expected `object`, got `int`"),
    ("turns: [{text: a, stop_reason: done}]", "turns[0].stop_reason: invalid enum value 'done'"),
    ("turns: [{text: a, chunk: 0}]", "turns[0].chunk: expected `int` >= 1"),
    ("turns: [{}]", "turns[0]: says nothing: give it text, thinking, tools or a stop_reason"),
    ("turns: [{error: {status: 429}}]", "turns[0]: says nothing"),
    ("turns: [{text: a}, {text: a, stop_reason: tool_use}]", "turns[1]: stop_reason is tool_use"),
    ("turns: [{text: a, stop_sequence: x}]", "set stop_reason: stop_sequence"),
    ("turns: [{text: a, stop_details: {}}]", "set stop_reason: refusal"),
    ("turns:\n  - text: a\n    text: b", "line 3, column 5: the key 'text' is given twice"),
    ("turns:\n  - text: 'a", "line 2, column 13: found unexpected end of stream"),
    ("turns: [{? [a] : b}]", "a key must be text"),
    ("turns: [{text: !!python/name:os.system x}]", "could not determine a constructor"),
    ("turns: \x00", "special characters are not allowed"),
]


@pytest.mark.parametrize(("text", "expected"), BAD, ids=[text for text, _ in BAD])
def test_a_wrong_script_is_refused_with_its_file_the_place_and_what_to_do(
    tmp_path: Path, text: str, expected: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as caught:
        load_script(path)
    line = str(caught.value)
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert line.startswith(f"{path}: ")
    assert expected in line
    assert "\n" not in line


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.yaml: no such file or directory: check --script"):
        load_script(tmp_path / "none.yaml")
    with pytest.raises(BadInput, match="is a directory"):
        load_script(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"turns: [{text: \xe9}]")
    with pytest.raises(BadInput, match="not UTF-8 text: save it as UTF-8"):
        load_script(tmp_path / "latin.yaml")


def test_every_script_in_the_reference_loads(tmp_path: Path) -> None:
    blocks = REFERENCE.read_text(encoding="utf-8").split("```yaml\n")[1:]
    assert blocks
    for index, block in enumerate(blocks):
        path = tmp_path / f"{index}.yaml"
        path.write_text(block.split("```")[0], encoding="utf-8")
        load_script(path)


def test_the_reference_names_every_key() -> None:
    text = REFERENCE.read_text(encoding="utf-8")
    for struct in (answer.Script, Answer, ToolCall, Usage, Delay, Failure, Cut, StopDetails):
        for field in struct.__struct_fields__:
            assert f"`{field}`" in text, f"{struct.__name__}.{field} is not documented"
