"""A shell: what it says, what it is given, and what carries over from call to call."""

from carpal.ids import new_id
from carpal.v1 import hand_pb2 as pb
from carpal.verdict import equal, must
from hands.conformance.bench import Bench, Stopwatch
from hands.conformance.group import Group

shell = Group("shell")

_FAST = 1.5
"""Seconds for a command that does nothing."""
_ENDINGS: dict[str, int | None] = {
    "exit 3": 3,
    "set -e; false; echo no": 1,
    "exec true": 0,
    "kill $$": 143,
    "kill -9 $$": 137,
    "echo 'open": 2,
    "cat <<EOF\nhi\nEOF": 0,
    "true # a comment": 0,
    "return 4": None,
    "exec >&-; exec 2>&-": 0,
    "set -u; echo $nothing_here": None,
    "trap 'exit 5' EXIT": 5,
}
"""Ways to end a shell, and the exit codes; None where versions of bash differ."""


@shell("h24")
async def merged_in_order(bench: Bench) -> None:
    """Standard output and error come merged, in order, with the exit code."""
    hand = await bench.hand()
    answer = (await hand.sh("echo 1; echo 2 >&2; echo 3; exit 7")).fails()
    must(answer.text.startswith("1\n2\n3\n"), f"the output is {answer.text!r}")
    must("7" in answer.text[6:], "the text does not say the exit code")
    equal("the exit code", answer.result.exit_code, 7)
    equal("bytes of output", answer.result.output_bytes, 6)
    equal("the output", answer.output, b"1\n2\n3\n")


@shell("h24", "h02", alone=True)
async def silent(bench: Bench) -> None:
    """A silent command is answered within 1.5 s, by a text that is not empty."""
    hand = await bench.hand()
    for command, outcome, code in (("true", pb.OUTCOME_OK, 0), ("false", pb.OUTCOME_ERROR, 1)):
        answer = await hand.sh(command)
        answer.ended(outcome, code).within(bench.slow(_FAST))
        must(bool(answer.text.strip()), f"{command} is answered by nothing")


@shell("h25", "h01", alone=True)
async def input_is_empty(bench: Bench) -> None:
    """Standard input is at its end."""
    hand = await bench.hand()
    (await hand.sh("cat")).ended(pb.OUTCOME_OK, 0).within(bench.slow(_FAST))
    (await hand.sh("read -r line")).ended(pb.OUTCOME_ERROR, 1).within(bench.slow(_FAST))


@shell("h25")
async def no_terminal(bench: Bench) -> None:
    """There is no terminal, no pager waits for a key, and git asks for no password."""
    hand = await bench.hand()
    answer = await hand.sh(
        "for n in 0 1 2; do [ -t $n ] && echo tty; done; (: </dev/tty) 2>/dev/null && echo tty;"
        ' echo "$PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT"'
    )
    equal("pagers and prompt", answer.text, "cat cat 0\n")


@shell("h26", "h17")
async def carries_over(bench: Bench) -> None:
    """The working directory and exported variables, newlines too, are there in the next call."""
    hand = await bench.hand()
    await hand.sh("mkdir -p 'd e' && cd 'd e' && export A=$'two\nlines' B=; C=gone")
    answer = await hand.sh('basename "$PWD"; echo "$A"; echo "${B-unset}[$C]"')
    equal("what is there", answer.text, "d e\ntwo\nlines\n[]\n")


@shell("h26", "h17")
async def reset_is_said(bench: Bench) -> None:
    """A working directory that is gone is reset to another, and the result says so."""
    hand = await bench.hand()
    await hand.sh("mkdir d && cd d && rmdir ../d")
    answer = (await hand.sh("pwd")).ended(pb.OUTCOME_OK)
    must("reset" in answer.text, f"nothing is said of a reset: {answer.text!r}")


@shell("h26")
async def restarted(bench: Bench) -> None:
    """A restart is back in the workspace, without what was exported, and kills what runs there."""
    hand = await bench.hand()
    first = (await hand.sh("pwd")).text
    await hand.sh("mkdir d; cd d; export A=1; (sleep 600; echo no) & :")
    (await hand.run("bash", {"restart": True})).ended(pb.OUTCOME_OK)
    answer = await hand.sh('pwd; echo "[$A]"')
    equal("what is there", answer.text, f"{first}[]\n")
    equal("processes in the background", answer.result.background, 0)


@shell("h27", alone=True)
async def whatever_ends_it(bench: Bench) -> None:
    """Whatever ends a shell, the answer is fast and the next call works."""
    hand = await bench.hand()
    for command, code in _ENDINGS.items():
        answer = (await hand.sh(command)).within(bench.slow(_FAST))
        if code is not None:
            equal(f"the exit code of {command!r}", answer.result.exit_code, code)
        await hand.works()


@shell("h28", "h07")
async def any_bytes(bench: Bench) -> None:
    """Bytes that are no UTF-8, NUL, and characters in two pieces become valid text."""
    hand = await bench.hand()
    answer = await hand.sh(r"printf '\xff\0ok\xe2\x82'; sleep 0.2; printf '\xac'; exit 3")
    answer.ended(pb.OUTCOME_ERROR, 3)
    must(answer.text.startswith("\ufffd\0ok€"), f"the text is {answer.text!r}")
    equal("the output", answer.output, b"\xff\0ok\xe2\x82\xac")


@shell("h36", "h11")
async def no_zombies(bench: Bench) -> None:
    """Two hundred short background jobs leave no zombie."""
    hand = await bench.hand()
    name = new_id("z")[-12:]
    await hand.sh(f"for i in $(seq 200); do ( (echo {name} >/proc/self/comm; true) & ); done")
    count = (
        "n=0; for f in /proc/[0-9]*/stat; do read -r l <$f;"
        f' case $l in *"({name}) Z"*) n=$((n+1));; esac; done 2>/dev/null; echo $n'
    )
    watch = Stopwatch()
    while (answer := await hand.sh(count)).text != "0\n":
        must(watch.seconds < bench.slow(2.0), f"zombies: {answer.text.strip()}")


@shell("h41", "h14")
async def locale(bench: Bench) -> None:
    """Every call has LANG=C.UTF-8 and a time zone, also after one that took them away."""
    hand = await bench.hand()
    for _ in range(2):
        answer = await hand.sh('echo "$LANG"; [ -n "$TZ" ] && echo zone; unset LANG TZ')
        equal("what is set", answer.text, "C.UTF-8\nzone\n")
