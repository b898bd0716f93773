"""What calls did and what the log says of them, held against each other.

Each call writes a line to a file when it begins and one when it ends, and says
the same. So the file is the truth of what happened, whoever died meanwhile.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brain.recorded.rebuilt import rebuild
from brain.recorded.recording import Recording
from brain.session.log import entry_of
from carpal.v1 import types_pb2
from carpal.verified import Verified

MAYBE = "may have partly happened"
NOT_RUN = (
    "not run",
    "did not run",
    "did not start",
    "before it ran",
    "before it started",
    "before it was sent",
)


@dataclass(frozen=True)
class Effects:
    """The file that calls write to."""

    file: Path

    def command(self, name: str, seconds: float = 0.05, lines: int = 0) -> str:
        """A call that takes about that long, with a pid that nobody could guess.

        It says so many lines more; with some thousands its output has a stream of its own.
        """
        return (
            f"$ echo begin {name} $$ >> {self.file}; echo did {name} $$; seq {lines}; "
            f"sleep {seconds}; echo end {name} $$ >> {self.file}"
        )

    def held(self, name: str, work: Path) -> str:
        """A call that tells by the pipe `started` that it runs, and waits at the pipe `go`."""
        return (
            f"$ echo begin {name} $$ >> {self.file}; echo did {name} $$; echo > {work}/started; "
            f"read x < {work}/go; echo end {name} $$ >> {self.file}"
        )

    def of(self, name: str) -> tuple[list[str], list[str]]:
        """Pids that began a call, and that ended it."""
        lines = self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
        words = [line.split() for line in lines]
        begun = [pid for what, whose, pid in words if (what, whose) == ("begin", name)]
        ended = [pid for what, whose, pid in words if (what, whose) == ("end", name)]
        return begun, ended


def check_log(session_id: str, log: list[types_pb2.Event]) -> None:
    """Positions without gaps, and a chain that holds from the session's genesis."""
    chain = Verified(session_id)
    for event in log:
        chain.take(event)


def check_calls(
    log: list[types_pb2.Event], effects: Effects, names: Iterable[str], *, all_ok: bool
) -> None:
    """Each call ended with exactly one outcome, which is true; it happened at most once.

    `names` are those of the calls, in order. With `all_ok` nothing happened that could
    make any of them end in another way.
    """
    calls = [(event.id, json.loads(event.data)) for event in log if event.type == "agent.tool_use"]
    results = [json.loads(event.data) for event in log if event.type == "agent.tool_result"]
    assert [result["tool_use_id"] for result in results] == [call_id for call_id, _ in calls]
    for name, (_, call), result in zip(names, calls, results, strict=True):
        assert f"begin {name} " in call["input"]["command"], "the model asked for another call"
        check_outcome(name, result, effects, ok=all_ok)


def check_each_call(log: list[types_pb2.Event], effects: Effects, *, all_ok: bool) -> list[str]:
    """The same, whatever the order in which results came; the names of the calls."""
    calls = {event.id: json.loads(event.data) for event in log if event.type == "agent.tool_use"}
    names = {call_id: _name_of(call) for call_id, call in calls.items()}
    assert len(set(names.values())) == len(names), (
        f"a call was made twice: {sorted(names.values())}"
    )
    results = [json.loads(event.data) for event in log if event.type == "agent.tool_result"]
    told = Counter(result["tool_use_id"] for result in results)
    assert told == Counter(calls.keys()), f"not one result each: {told}"
    for result in results:
        check_outcome(names[result["tool_use_id"]], result, effects, ok=all_ok)
    return list(names.values())


def check_requests(session_id: str, log: list[types_pb2.Event], sent: Mapping[str, int]) -> None:
    """Every request of the model can be made again from the log, and no other was sent.

    `sent`: the digest of each request that the model got → how often it did.
    """
    recording = Recording([entry_of(event) for event in log])
    asked = recording.asked()
    for each in asked:
        rebuilt = rebuild(recording, each)
        assert rebuilt.same, f"{session_id}: request {each.number}: {rebuilt.why}"
    noted = Counter(each.sha256 for each in asked)
    beyond = Counter(sent) - noted
    assert not beyond, f"{session_id}: sent, and not in the log: {beyond}"


def _name_of(call: dict[str, Any]) -> str:
    return str(call["input"]["command"]).split("begin ", 1)[1].split()[0]


def check_outcome(name: str, result: dict[str, Any], effects: Effects, *, ok: bool) -> None:
    """What the log says of a call is what happened."""
    begun, ended = effects.of(name)
    outcome, text = result["outcome"], result["content"][0]["text"]
    told = f"{name}: {outcome} {text!r}; began {begun}, ended {ended}"
    assert len(begun) <= 1, f"it ran more than once: {told}"
    assert len(ended) <= 1, f"it ran more than once: {told}"
    if outcome == "ok":
        assert begun == ended != [], f"it did not happen: {told}"
        assert text.splitlines()[0] == f"did {name} {begun[0]}", f"another's output: {told}"
        return
    assert not ok, f"nothing happened that excuses it: {told}"
    assert result["is_error"], told
    if MAYBE in text:
        assert outcome in ("interrupted", "lost"), told
    else:
        assert any(words in text for words in NOT_RUN), f"is that to say it ran? {told}"
        assert not begun, f"it did run: {told}"
