"""`carpal dev` keeps its ports, holds its folder, and finds what a killed run left."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from carpal import children
from carpal.dev_state import HOST, Kept, Process, end_supervisors, only_one
from carpal.errors import BadInput


def test_ports_stay_the_same_from_run_to_run(tmp_path: Path) -> None:
    kept = Kept()
    assert kept.choose_ports(["vault", "brain-1"]) == {"vault", "brain-1"}
    assert kept.ports["vault"] != kept.ports["brain-1"]
    kept.save(tmp_path)
    again = Kept.load(tmp_path)
    assert again.choose_ports(["vault", "brain-1"]) == set()
    assert again.ports == kept.ports


def test_a_port_that_another_took_is_replaced(tmp_path: Path) -> None:
    kept = Kept()
    kept.choose_ports(["vault", "brain-1"])
    before = dict(kept.ports)
    with socket.socket() as taken:
        taken.bind((HOST, before["vault"]))
        taken.listen()
        assert kept.choose_ports(["vault", "brain-1"]) == {"vault"}
    assert kept.ports["vault"] != before["vault"]
    assert kept.ports["brain-1"] == before["brain-1"]


def test_a_damaged_file_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "dev.json").write_text('{"ports": 3}')
    assert Kept.load(tmp_path) == Kept()


def test_a_second_run_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with only_one(tmp_path), pytest.raises(BadInput, match="already runs"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        pass


async def test_what_a_killed_run_left_is_ended_and_what_took_its_pid_is_not() -> None:
    left = await asyncio.create_subprocess_exec("sleep", "60")
    other = await asyncio.create_subprocess_exec("sleep", "60")
    began = children.start_time(left.pid)
    assert began is not None
    kept = Kept(processes=[Process("vault", left.pid, began), Process("brain-1", other.pid, 1)])
    try:
        async with asyncio.timeout(10):
            assert await kept.end_leftovers() == 1
            assert await left.wait() == -15
        assert other.returncode is None
        assert kept.processes == []
    finally:
        other.kill()
        await other.wait()


async def test_the_hands_of_the_folder_are_ended_and_no_others(tmp_path: Path) -> None:
    code = "import signal; print('up', flush=True); signal.pause()"

    async def supervisor(state: Path) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-S", "-c", code, "--folder", str(state / "hand" / "hands" / "h1")),
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        await process.stdout.readline()
        return process

    async with asyncio.timeout(20):
        ours = await supervisor(tmp_path / "ours")
        others = await supervisor(tmp_path / "ours-too")
        try:
            assert await end_supervisors(tmp_path / "ours") == 1
            assert await ours.wait() == -15
            assert others.returncode is None
        finally:
            for process in (ours, others):
                if process.returncode is None:
                    process.kill()
                await process.communicate()
