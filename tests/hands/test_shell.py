"""bash calls, by a real supervisor."""

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from hands.inside.shell import Shell
from tests.hands.place import Place, until
from tests.pace import AT_ONCE

OK, ERROR = pb.OUTCOME_OK, pb.OUTCOME_ERROR


async def test_a_program_that_reads_its_input_gets_eof_at_once_h01(place: Place, hand: str) -> None:
    begun = time.monotonic()
    result = await place.sh(hand, "cat")
    assert result.outcome == OK
    assert time.monotonic() - begun < AT_ONCE


async def test_a_silent_failure_returns_at_once_and_shows_its_exit_code_h02_h24(
    place: Place, hand: str
) -> None:
    begun = time.monotonic()
    result = await place.sh(hand, "false")
    assert (result.outcome, result.exit_code, result.content) == (ERROR, 1, "[exit code 1]")
    assert time.monotonic() - begun < AT_ONCE


async def test_a_silent_success_still_says_something_h24(place: Place, hand: str) -> None:
    result = await place.sh(hand, "true")
    assert (result.outcome, result.exit_code, result.content) == (OK, 0, "[no output]")


@pytest.mark.parametrize("command", ["echo 'a", 'echo "a', "echo $(a", "if", "echo (", "}", "`a"])
async def test_what_bash_says_of_a_command_it_cannot_read_is_of_that_command_alone(
    command: str, place: Place, hand: str
) -> None:
    result = await place.sh(hand, command)
    assert "line 1" in result.content or "unexpected" in result.content
    assert "__carpal" not in result.content
    assert "bash: -c" not in result.content


async def test_standard_output_and_error_come_merged_in_order_h24(place: Place, hand: str) -> None:
    result = await place.sh(hand, "echo 1; echo 2 >&2; echo 3; exit 7")
    assert result.content == "1\n2\n3\n[exit code 7]"
    assert result.output_bytes == 6


async def test_a_double_forked_server_holding_the_pipe_does_not_hold_the_call_h03_l19(
    place: Place, hand: str
) -> None:
    begun = time.monotonic()
    result = await place.sh(hand, "(setsid sh -c 'while sleep 0.02; do echo .; done' &); echo up")
    assert time.monotonic() - begun < AT_ONCE
    assert result.outcome == OK
    assert result.content.startswith("up\n")
    assert "background process" in result.content


async def test_a_background_job_lives_on_and_its_late_output_is_in_no_result_h32_l19(
    place: Place, hand: str
) -> None:
    first = await place.sh(
        hand, "(sleep 0.3; echo late; echo survived > mark; exec sleep 60) & echo hi"
    )
    assert first.content.splitlines()[0] == "hi"
    assert first.background >= 1  # the job's shell, and what that runs just then
    assert f"[{first.background} background process" in first.content
    # It is not killed by SIGPIPE when it writes to the pipe nobody shows any more.
    second = await place.sh(hand, "while [ ! -e mark ]; do sleep 0.02; done; cat mark")
    assert second.content == "survived\n"
    assert second.background == 1
    (job,) = [p for p in tree.descendants(place.supervisor(hand)) if _is_sleep(p.pid)]
    await place.release(hand)
    assert not tree.alive(job.pid, job.start)


def _is_sleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


async def test_bytes_that_are_not_utf8_become_replacement_characters_h07_h28(
    place: Place, hand: str
) -> None:
    result = await place.sh(hand, r"printf '\xff\xfe\0ok'; exit 3")
    assert result.content == "\ufffd\ufffd\0ok\n[exit code 3]"
    assert result.exit_code == 3


async def test_a_character_split_across_writes_arrives_whole_h07_l20(
    place: Place, hand: str
) -> None:
    request = place.request(hand, command=r"printf '\xe2\x82'; sleep 0.2; printf '\xac\xff\0'")
    steps = await place.steps(request)
    assert b"".join(step.output.data for step in steps[:-1]) == b"\xe2\x82\xac\xff\0"
    assert steps[-1].result.content == "€\ufffd\0"


async def test_one_line_of_a_megabyte_is_capped_text_h08(place: Place, hand: str) -> None:
    result = await place.sh(hand, "head -c 1000000 /dev/zero | tr '\\0' x")
    assert result.output_bytes == 1_000_000
    assert result.omitted_bytes == 1_000_000 - 2 * 64 * 1024
    assert f"\n[{result.omitted_bytes} bytes omitted]\n" in result.content
    assert len(result.content) < 140_000


async def test_output_that_is_no_text_stays_small_even_as_text_h28(place: Place, hand: str) -> None:
    result = await place.sh(hand, "head -c 20000000 /dev/zero | tr '\\0' '\\377'")
    assert len(result.content.encode()) <= 2 * 64 * 1024 + 200
    assert result.output_bytes == 20_000_000


async def test_two_hundred_background_jobs_leave_no_zombie_h11_h36(place: Place, hand: str) -> None:
    await place.sh(hand, "for i in $(seq 200); do (true &) ; (setsid true &); done; sleep 0.2")
    supervisor = place.supervisor(hand)
    await until(lambda: not _zombies(supervisor), "zombies are left")


def _zombies(supervisor: int) -> list[int]:
    """Zombies whose parent is the supervisor, or a process it has as a child."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] == "Z" and int(fields[1]) == supervisor:
            found.append(int(stat.parent.name))
    return found


async def test_every_call_has_a_utf8_locale_and_a_time_zone_h14_h41(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "unset LANG TZ")
    result = await place.sh(hand, "echo $LANG $TZ; python3 -c 'print(\"äß…\")'")
    assert result.content == "C.UTF-8 UTC\näß…\n"
    background = "(echo $LANG $TZ > said &); while [ ! -s said ]; do sleep 0.01; done; cat said"
    assert (await place.sh(hand, background)).content == "C.UTF-8 UTC\n"
    await place.run(hand, restart=True)
    assert (await place.sh(hand, "echo $LANG $TZ")).content == "C.UTF-8 UTC\n"


async def test_there_is_no_terminal_no_pager_and_no_prompt_h25(place: Place, hand: str) -> None:
    result = await place.sh(hand, "tty; cat /dev/tty; echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT")
    assert "not a tty" in result.content
    assert "No such device" in result.content
    assert "cat cat 0" in result.content
    await place.sh(
        hand, "git init -q; git -c user.name=a -c user.email=a@b commit -qm 1 --allow-empty"
    )
    log = await place.sh(hand, "for i in 1 2 3; do git log --oneline; done; git log | head -n 1")
    assert log.content.count(" 1\n") == 3


async def test_the_daemons_environment_does_not_reach_a_hand(
    place: Place, hand: str, monkeypatch: object
) -> None:
    result = await place.sh(hand, "env | cut -d= -f1 | sort | tr '\\n' ' '")
    names = set(result.content.split())
    assert names <= {
        *("CARPAL_HAND", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "HOME", "LANG", "LOGNAME", "PAGER"),
        *("PATH", "PWD", "OLDPWD", "SHELL", "SHLVL", "TERM", "TMPDIR", "TZ", "USER", "_"),
    }


async def test_the_working_directory_and_exports_carry_over_h17_h26(
    place: Place, hand: str
) -> None:
    await place.sh(
        hand, "mkdir d && cd d && export A=$'two\nlines' && f() { echo f; }; export -f f"
    )
    result = await place.sh(hand, 'basename "$PWD"; echo "$A"; f; [ -z "$__carpal_kept" ]')
    assert result.content == "d\ntwo\nlines\nf\n"
    await place.sh(hand, "unset A; export -nf f; cd -; B=not-exported")
    after = await place.sh(hand, 'echo "[$A$B]"; basename "$PWD"; f 2>/dev/null || echo gone')
    assert after.content == "[]\nworkspace\ngone\n"


async def test_what_is_exported_carries_over_with_functions_and_without_h17_h26(
    place: Place,
) -> None:
    hand = await place.hand(env={"B": "first"})
    odd = "A=$'\\'\"\\\\ \\xff\\x01\\x7f\\n$x`y`\\n'"
    tell = 'printf %s "$A" | od -An -tx1; echo "[$B$C$L]"; f 2>&-'
    await place.sh(hand, f"export {odd} C; declare -ax L=(1); unset B; f() {{ echo f; }}")
    without = await place.sh(hand, f"{tell}; f() {{ echo f; }}; export -f f")
    with_function = await place.sh(hand, f"{tell}; export -nf f; declare -rx B='a  b'")
    after = await place.sh(hand, tell)
    told = " 27 22 5c 20 ff 01 7f 0a 24 78 60 79 60 0a\n"
    assert without.content.startswith(f"{told}[]\n")
    assert with_function.content.startswith(f"{told}[]\nf\n")
    assert after.content.startswith(f"{told}[a  b]\n[exit code 127]")


def test_a_variable_whose_name_bash_cannot_have_carries_over_h26(tmp_path: Path) -> None:
    shell = Shell(tmp_path, tmp_path, {"no.name": "1", "PATH": os.environ["PATH"]})
    for command in ("export A=1", "f() { :; }; export -f f", "unset -f f"):
        argv, environment, _ = shell.prepare(command)
        subprocess.run(argv, env=environment, check=True)
        assert shell.carry() == ""
    assert {b"no.name": b"1", b"A": b"1"}.items() <= shell.environment.items()
    assert not [name for name in shell.environment if name.startswith(b"BASH_FUNC")]


async def test_a_shell_whose_exports_cannot_be_told_keeps_those_before_it(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "f() { echo f; }; export -f f; export A=1")
    result = await place.sh(hand, "export A=2; ulimit -u 0 2>&-; env() { :; }; enable -n declare")
    assert "state was not kept; cwd and exports are as before it" in result.content
    assert (await place.sh(hand, "echo $A; f")).content == "1\nf\n"


async def test_a_working_directory_that_is_gone_is_reset_and_said_so_h17_h26(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "mkdir d && cd d && rmdir ../d")
    result = await place.sh(hand, "pwd")
    assert "cwd reset to" in result.content
    assert result.content.splitlines()[0].endswith("/workspace")


async def test_a_working_directory_that_no_command_can_start_in_is_reset_and_said_so_h17_h26(
    place: Place, hand: str
) -> None:
    deep = "n=$(printf 'd%.0s' $(seq 200)); for i in $(seq 30); do mkdir $n; cd $n; done"
    await place.sh(hand, deep)
    after = await place.sh(hand, "basename $PWD")
    assert after.content.startswith("workspace\n[/")
    assert "cannot be entered: file name too long; cwd reset to" in after.content
    assert len(after.content) < 1000
    await place.sh(hand, "touch f; mkdir g; cd g; rmdir ../g; mv ../f ../g")
    after = await place.sh(hand, "basename $PWD")
    assert "is no folder any more; cwd reset to" in after.content


async def test_options_are_no_exports_and_no_function_hides_what_the_shell_needs_h27(
    place: Place, hand: str
) -> None:
    for command in ("set -e -u", "set -x", "set -n", "shopt -s extdebug", "set -f"):
        await place.sh(hand, f"export SHELLOPTS BASHOPTS; {command}")
        assert (await place.sh(hand, "false; echo on $none")).content == "on\n", command
    hiding = 'for f in builtin set trap exit eval read; do eval "$f() { echo no; }"; done'
    result = await place.sh(hand, f"{hiding}; export -f set trap exit builtin")
    assert result.content
    assert (await place.sh(hand, "cd /; echo on")).content == "on\n"
    result = await place.sh(hand, "set() { echo no; }; export -f set; export A=kept")
    assert "[functions not carried over, for they hide builtins: set]" in result.content
    assert (await place.sh(hand, "echo $A; pwd; exit 3")).content == "kept\n/\n[exit code 3]"


async def test_what_set_x_prints_is_the_commands_own(place: Place, hand: str) -> None:
    assert (await place.sh(hand, "set -x; echo hi")).content.lstrip("+") == " echo hi\nhi\n"


async def test_a_variable_too_large_to_carry_over_is_left_out_and_said_so_h26(
    place: Place, hand: str
) -> None:
    result = await place.sh(hand, "export BIG=$(head -c 130000 /dev/zero | tr '\\0' x); export B=1")
    assert "[too large to carry over: BIG]" in result.content
    assert (await place.sh(hand, "echo ${#BIG} $B")).content == "0 1\n"


@pytest.mark.parametrize("functions", ["", "f() { echo f; }; export -f f; "])
@pytest.mark.parametrize(
    ("large", "dropped"),
    [
        ("export BIG=$(head -c 200000 /dev/zero | tr '\\0' x)", "BIG"),
        ("export BIG=$(printf 'é%.0s' $(seq 100000))", "BIG"),
        (
            "x=$(head -c 99999 /dev/zero | tr '\\0' x); for n in {1..40}; do export BIG$n=$x; done",
            "BIG40",
        ),
        ("eval \"BIG() { : $(head -c 200000 /dev/zero | tr '\\0' x); }\"; export -f BIG", "BIG"),
    ],
    ids=["one", "letters of two bytes", "all together", "function"],
)
async def test_exports_past_what_the_kernel_takes_are_left_out_by_name_and_all_else_goes_on_h26(
    large: str, dropped: str, functions: str, place: Place, hand: str
) -> None:
    exports = f"export SMALL=$'two\\nlines'; {functions}cd /"
    result = await place.sh(hand, f"{exports}; {large}")
    assert "[too large to carry over: " in result.content
    said = result.content.rpartition("over: ")[2].rstrip("]")
    assert dropped in said
    assert "SMALL" not in said
    assert len(result.content) < 1000
    for _ in range(2):
        after = await place.sh(hand, 'pwd; echo "$SMALL"; env | grep -c ^HOME; f || true')
        assert after.content.startswith("/\ntwo\nlines\n1\n")
        if functions:
            assert after.content == "/\ntwo\nlines\n1\nf\n"


async def test_whatever_ends_a_shell_the_next_call_works_h27(place: Place, hand: str) -> None:
    for command, code in {
        "exit 3": 3,
        "set -e; false; echo no": 1,
        "exec true": 0,
        "kill $$": 143,
        "kill -9 $$": 137,
        "echo 'open": 2,
        "cat <<EOF\nhi\nEOF": 0,
        "true # a comment": 0,
        "trap 'exit 5' EXIT": 5,
        "set -u; echo $nothing_here": 127,
        "return 4": 1,
        "exec >&-; exec 2>&-": 0,
        "set -x; cd /": 0,
        "set -C; cd /": 0,
        "IFS=x; cd /": 0,
    }.items():
        begun = time.monotonic()
        result = await place.sh(hand, command)
        # `return` and an unset variable end an eval in ways bash versions differ on.
        assert result.exit_code == code or (code in {1, 127} and result.exit_code), command
        assert time.monotonic() - begun < AT_ONCE, command
    assert (await place.sh(hand, "echo usable; pwd")).content == "usable\n/\n"


async def test_a_shell_that_ended_abruptly_says_that_nothing_carried_over_h26(
    place: Place, hand: str
) -> None:
    result = await place.sh(hand, "cd /; kill -9 $$")
    assert "the shell ended abruptly; cwd and exports are as before it" in result.content
    assert (await place.sh(hand, "pwd")).content.endswith("/workspace\n")


async def test_restart_kills_what_runs_in_the_background_and_starts_over(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "cd /; export A=1; sleep 60 & true")
    result = await place.run(hand, restart=True)
    assert result.outcome == OK
    assert "restarted" in result.content
    after = await place.sh(hand, "echo [$A]; pwd")
    assert after.content.startswith("[]\n")
    assert "/workspace" in after.content
    assert after.background == 0


async def test_a_timeout_kills_the_whole_tree_and_the_session_goes_on_h30(
    place: Place, hand: str
) -> None:
    stubborn = (
        "trap '' TERM; export MARK=h30; setsid nohup sleep 60 & (sleep 61 &); "
        "sh -c 'trap \"\" TERM; sleep 62' & cd /; sleep 63"
    )
    begun = time.monotonic()
    result = await place.sh(hand, stubborn, timeout_ms=400)
    assert time.monotonic() - begun < 0.4 + AT_ONCE
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert "[timed out after 0.4 s; " in result.content
    assert not result.HasField("exit_code")
    assert not _below(place, hand)
    assert (await place.sh(hand, "echo on")).content == "on\n"


def _below(place: Place, hand: str) -> list[tree.Process]:
    return tree.descendants(place.supervisor(hand))


async def test_a_timeout_spares_what_an_earlier_call_left_running(place: Place, hand: str) -> None:
    await place.sh(hand, "sleep 60 & true")
    result = await place.sh(hand, "sleep 61 & sleep 62", timeout_ms=200)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert result.background == 1


async def test_the_callers_time_limit_bounds_the_tools_own(place: Place, hand: str) -> None:
    result = await place.sh(hand, "sleep 60", timeout_ms=60_000, limit=0.2)
    assert result.outcome == pb.OUTCOME_TIMED_OUT


async def test_a_cancel_is_term_then_kill_and_one_result_with_the_output_h31_l24(
    place: Place, hand: str
) -> None:
    call = place.begin(
        place.request(hand, command="trap 'echo term' TERM; echo up; while :; do sleep 0.02; done")
    )
    assert await call.output() == b"up\n"
    begun = time.monotonic()
    cancel = pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    cancel.grace.FromMilliseconds(200)
    assert (await place.service.cancel(cancel)).state == pb.CALL_STATE_RUNNING
    await place.service.cancel(cancel)
    result = await call.result()
    assert time.monotonic() - begun < 0.2 + AT_ONCE
    assert result.outcome == pb.OUTCOME_CANCELLED
    assert result.content.startswith("up\n")
    assert result.content.count("term\n") == 1
    assert "[cancelled" in result.content
    assert not _below(place, hand)
    assert (await place.service.cancel(cancel)).state == pb.CALL_STATE_TERMINAL
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_a_cancel_ends_at_once_what_obeys_term_l24(place: Place, hand: str) -> None:
    call = place.begin(place.request(hand, command="echo up; sleep 60"))
    await call.output()
    begun = time.monotonic()
    await place.service.cancel(
        pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
    )
    assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
    assert time.monotonic() - begun < AT_ONCE


async def test_a_detached_process_is_gone_once_its_hand_is_released_h04(
    place: Place, hand: str
) -> None:
    await place.sh(hand, "setsid sleep 72 & (setsid nohup sleep 73 &) ; true")
    left = _below(place, hand)
    assert len([p for p in left if _is_sleep(p.pid)]) == 2
    assert await place.release(hand)
    assert not [p for p in left if tree.alive(p.pid, p.start)]


async def test_a_fork_bomb_is_swept_when_its_time_is_up_l16(place: Place, hand: str) -> None:
    bomb = (
        "f() { [ $1 -gt 5 ] || { f $(($1+1)) & f $(($1+1)) & }; setsid sleep 60 & "
        "while :; do (setsid sleep 61 &); sleep 0.05; done; }; f 0"
    )
    result = await place.sh(hand, bomb, timeout_ms=500)
    assert result.outcome == pb.OUTCOME_TIMED_OUT
    assert not _below(place, hand)
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_killing_the_process_at_a_calls_root_is_told_and_leaves_nothing(
    place: Place, hand: str
) -> None:
    result = await place.sh(hand, "setsid sleep 60 & kill -9 $PPID; sleep 61")
    assert result.outcome == ERROR
    assert "ended unexpectedly" in result.content
    assert not _below(place, hand)
    assert (await place.sh(hand, "echo on")).content == "on\n"


async def test_every_byte_of_a_thousand_fast_writers_arrives_before_the_result_l18(
    place: Place, hand: str
) -> None:
    result = await place.sh(
        hand, 'for i in $(seq 1000); do printf "%s\\n" $i; done; /bin/echo last', limit=20
    )
    assert result.content == "".join(f"{i}\n" for i in range(1, 1001)) + "last\n"
    for number in range(50):
        assert (await place.sh(hand, f"exec printf %s {number}")).content.startswith(str(number))


async def test_calls_of_one_hand_run_in_order_and_two_hands_apart_h42(place: Place) -> None:
    one, two = await place.hand(), await place.hand()
    calls = [place.request(one, command=f"sleep 0.05; echo {i} >> log") for i in range(4)]
    other = place.request(two, command="ls")
    async with asyncio.TaskGroup() as group:
        for call in (*calls, other):
            group.create_task(place.steps(call))
    assert (await place.sh(one, "cat log")).content == "0\n1\n2\n3\n"
    assert (await place.sh(two, "ls")).content == "[no output]"


@pytest.mark.parametrize("made", ["mkfifo", "ln -s /dev/zero", "mkdir"])
async def test_what_a_command_puts_in_place_of_the_shells_own_files_ends_no_hand(
    place: Place, hand: str, made: str
) -> None:
    state, command = '"$HOME"/../state', '"$HOME"/../command'
    abrupt = await place.sh(hand, f"{made} {state}; rm {command}; {made} {command}; kill -9 $$")
    assert "the shell ended abruptly" in abrupt.content
    after = await place.sh(hand, "echo goes on")
    # A folder in their place is said, not removed: it is not ours.
    assert "goes on" in after.content or "could not start: is a directory" in after.content
    assert place.inventory.count == 1


async def test_a_shell_that_cannot_write_down_where_it_is_says_so_in_one_line(
    place: Place, hand: str
) -> None:
    full = "trap '' XFSZ; ulimit -f 0"  # as on a full disk
    result = await place.sh(hand, f"{full}; cd /; echo hi")
    output, note = result.content.splitlines()
    assert output == "hi"
    assert note.startswith("[the shell's state was not kept; cwd and exports are as before it: ")
    assert result.outcome == OK
    assert (await place.sh(hand, "pwd")).content != "/\n"
