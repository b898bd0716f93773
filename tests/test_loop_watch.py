"""One loop a process uses gRPC, and when it stands still the log says where."""

import asyncio
import logging
import threading
import time
from pathlib import Path

import pytest

from carpal.client import dial
from carpal.errors import CarpalError
from carpal.identity import Role
from carpal.loop_watch import watched
from carpal.server import serve
from carpal.status import Reason
from carpal.tls import server_credentials
from tests.pace import SCALE
from tests.pki import Pki

WAIT = 10.0 * SCALE
LIMIT = 0.2


async def test_a_second_event_loop_in_the_process_is_refused_at_the_start_l38(
    tmp_path: Path,
) -> None:
    pki = Pki(tmp_path)
    credentials = server_credentials(pki.issue(Role.BRAIN, "b"))
    refused: list[CarpalError] = []

    async def second(address: str) -> None:
        for opening in (
            dial(address, Role.BRAIN, pki.issue(Role.DAEMON, "d")),
            serve("127.0.0.1:0", credentials, lambda server: None),
        ):
            try:
                async with opening:
                    pass
            except CarpalError as error:
                refused.append(error)

    async with serve("127.0.0.1:0", credentials, lambda server: None) as serving:
        await asyncio.to_thread(asyncio.run, second(serving.address))
    assert [error.reason for error in refused] == [Reason.CONFIG_INVALID] * 2
    assert "another event loop" in refused[0].message


async def test_a_loop_that_stands_still_is_logged_with_the_line_it_stands_at() -> None:
    said = threading.Event()
    records: list[logging.LogRecord] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)  # not caplog's, which hears of it after us
            said.set()

    handler = Handler()
    logging.getLogger("carpal.loop_watch").addHandler(handler)
    try:
        with watched(asyncio.get_running_loop(), LIMIT):
            _block(6 * LIMIT)
            assert await asyncio.to_thread(said.wait, WAIT)
    finally:
        logging.getLogger("carpal.loop_watch").removeHandler(handler)
    (record,) = records
    assert record.getMessage() == "the event loop stood still"
    assert record.__dict__["at"].startswith("_block (")


def _block(seconds: float) -> None:
    time.sleep(seconds)  # the fault itself


async def test_a_loop_that_comes_round_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with watched(asyncio.get_running_loop(), 2.0 * SCALE):
        await asyncio.sleep(0.1)  # a moment in which it is looked at
    assert not caplog.records
