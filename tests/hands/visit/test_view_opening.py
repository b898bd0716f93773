"""The page's secret is in no command line: a browser is led to it by a file of its owner's."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import async_playwright

from hands.builtin.browser import PROGRAM
from hands.visit.view_opening import leading
from hands.visit.view_page import serving
from tests.hands.visit.test_view_page import Watched


def test_a_file_that_only_its_owner_reads_leads_there_and_is_gone_afterwards() -> None:
    with leading("http://127.0.0.1:9/#a-secret") as url:
        path = Path(urlsplit(url).path)
        assert "a-secret" not in url
        assert "http://127.0.0.1:9/#a-secret" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not path.parent.exists()


def test_what_a_killed_command_left_is_removed_by_the_next_and_what_is_in_use_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = (
        "import os, signal\nfrom hands.visit.view_opening import leading\n"
        "with leading('http://127.0.0.1:9/#a-secret'):\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=False, timeout=60)
    (left,) = tmp_path.iterdir()
    with leading("http://127.0.0.1:9/#first") as first:
        used = Path(urlsplit(first).path).parent
        for each in (left, used):
            os.utime(each, (1, 1))
        with leading("http://127.0.0.1:9/#second"):
            assert not left.exists()
            assert used.exists()
    assert list(tmp_path.iterdir()) == []


def test_the_browsers_command_line_has_no_secret(tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\nprintf "%s" "$*" > {tmp_path}/seen\n')
    browser.chmod(0o700)
    code = (
        "import webbrowser\nfrom hands.visit.view_opening import leading\n"
        "with leading('http://127.0.0.1:9/#a-secret') as url:\n    webbrowser.open(url)\n"
    )
    environ = {**os.environ, "BROWSER": f"{browser} %s"}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)
    seen = (tmp_path / "seen").read_text()
    assert seen.startswith("file:///")
    assert "a-secret" not in seen


async def test_a_browser_that_opens_the_file_has_the_page() -> None:
    watched = Watched()
    async with serving(watched) as served, async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(PROGRAM), args=["--no-sandbox"]
        )
        try:
            page = await browser.new_page()
            with leading(served.address) as url:
                await page.goto(url)
                await page.wait_for_function("document.title === 'game'", timeout=20000)
        finally:
            await browser.close()
