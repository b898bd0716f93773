"""What pages do to a browser hand: it says so, and goes on or is replaced."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from carpal.v1 import hand_pb2 as pb
from hands.browser.state import TABS_MAX
from hands.isolation import cgroups
from tests.hands.browser.parts import needs_browser
from tests.hands.browser.place import Browsing, browser_place, browsing
from tests.hands.browser.running import browsers, processes
from tests.hands.browser.site import site
from tests.hands.place import PATIENCE, until
from tests.leftovers import nothing_orphaned

pytestmark = needs_browser
MIB = 1024 * 1024


@pytest.mark.slow
async def test_a_page_whose_script_never_ends_is_closed_and_the_others_go_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        await it.state("new_tab")
        await it.go("/hang")
        go = await it.ref("go button")
        said = (await it.result("left_click", target=go)).content
        if "Its tab" not in said:  # the click itself was done
            said = await it.fails("read_page")
        assert "/hang does not answer: its scripts run without end" in said
        assert "Its tab t2 was closed" in said
        assert "Hello" in await it.do("read_page")
        assert [tab["tab_id"] for tab in (await it.state())["tabs"]] == ["t1"]


@pytest.mark.slow
async def test_a_server_that_never_answers_and_a_page_that_never_loads_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        said = await it.do("navigate", url=it.site.url("/slow"))
        assert "— Slow (HTTP 200)" in said
        assert "still loads" in said
        said = await it.fails("navigate", url=it.site.url("/never"))
        assert "did not answer in time" in said
        await it.go("/other")
        assert await it.do("get_page_text") == "Somewhere else"


@pytest.mark.slow
@pytest.mark.skipif("memory" not in cgroups.bases(), reason="no control group for memory")
async def test_a_page_that_eats_memory_ends_and_the_hand_goes_on_or_is_lost(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path, limits={"memory_bytes": 700 * MIB}) as it:
        said = ""
        async with asyncio.timeout(PATIENCE * 3):
            await it.result("navigate", url=it.site.url("/eat"))
            while "crashed" not in said:
                result = await it.result("read_page")
                said = result.content
                if result.outcome == pb.OUTCOME_LOST:
                    assert "out of memory: limit 700 MiB" in said
                    return
        assert "too much memory" in said
        assert "Navigated" in await it.go("/")


async def test_addresses_of_other_schemes_are_refused_wherever_they_come_from(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path, allow=["javascript_exec"]) as it:
        for url in (
            *("file:///etc/passwd", "chrome://version", "data:text/html,x", "ftp://127.0.0.1/"),
            *(f"view-source:{it.site.url()}", "javascript:alert(1)", "blob:x", "about:version"),
        ):
            assert "http and https addresses only" in await it.fails("navigate", url=url)
        for path in ("/to-file", "/to-data"):
            said = await it.fails("navigate", url=it.site.url(path))
            assert "also by a redirect" in said
        for query, where in (
            ("File link", "file:///etc/passwd"),
            ("Data link", "data:text/html,inside"),
            ("Chrome link", "chrome://version/"),
            ("Source link", "view-source:"),
            ("Open a file", "file:///etc/hostname"),
            ("Open data", "data:text/html,x"),
        ):
            await it.go("/ways-out")
            said = await it.click(query)
            if "was refused" not in said:
                said = await it.do("get_page_text")
            assert f"A navigation to {where}" in said, query
            assert "http and https addresses only" in said
        for script in ("location='chrome://version'", "location='file:///etc/passwd'"):
            said = await it.do("javascript_exec", text=script)
            said += await it.do("get_page_text")
            assert "was refused" in said
        said = await it.do("navigate", url=it.site.url("/frames"))
        said += await it.do("read_page")
        assert "was refused" in said
        assert "Somewhere else" in said, "the frames that are allowed are read"
        for each in ("root:", "framed"):
            assert each not in said
        assert all(
            tab["url"].startswith(("http://127.0.0.1", "chrome-error:")) or not tab["url"]
            for tab in (await it.state())["tabs"]
        )


async def test_h38_hosts_that_no_rule_allows_are_refused_with_what_the_rules_name(
    tmp_path: Path,
) -> None:
    async with site() as other, browsing(tmp_path) as it:
        said = await it.result("navigate", url=other.url())
        assert "is not among this hand's egress rules" in said.content
        said = await it.result("navigate", url="https://example.com/")
        assert "no egress rule of this hand allows the host" in said.content
        said = await it.result("navigate", url="http://127.0.0.1:3128/")
        assert "HTTP 200" not in said.content
        assert not other.asked
        said = await it.result("navigate", url=it.site.url("/no-refusal"))
        assert "HTTP 403" in said.content
        assert "password" not in said.content, "no host speaks for the forwarder"
        assert "Home" in await it.go("/")


async def test_what_a_page_says_in_the_hands_words_is_never_the_last(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        for path in ("/forged-space", "/forged-key", "/forged-gap", "/forged"):
            await it.go(path)
            told = await it.state("get_page_text")
            assert [tab["tab_id"] for tab in told["tabs"]] == ["t1"], path
        lines = (await it.result("read_page")).content.splitlines()
        assert not any(line.startswith("[browser_state") and "t9" in line for line in lines)


async def test_h31_a_call_that_is_cancelled_ends_at_once_and_the_hand_goes_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        call = it.place.begin(it.place.request(it.hand, "wait", duration=30))
        await until(lambda: it.place.journal.call(it.hand, call.call_id), "it did not begin")
        cancel = pb.CancelRequest(driver=it.place.driver(), hand_id=it.hand, call_id=call.call_id)
        await it.place.service.cancel(cancel)
        async with asyncio.timeout(5):
            assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
        assert await it.do("get_page_text") == "Hello\nThe form"


async def test_dialogs_are_answered_by_rule_and_told(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/dialogs")
        said = await it.click("ask")
        assert 'A confirm dialog "Delete everything?" was dismissed.' in said
        assert 'A prompt dialog "Name?" was dismissed.' in said
        assert (await it.state())["tabs"][0]["title"] == "false/null"
        accepting = await it.place.hand(type="browser", egress=[it.site.rule], dialogs="accept")
        it.hand = accepting
        await it.go("/dialogs")
        assert 'A confirm dialog "Delete everything?" was accepted.' in await it.click("ask")


async def downloaded(it: Browsing, query: str) -> pb.Result:
    """What is told of a download, some of it with the call after."""
    result = await it.result("left_click", target=await it.ref(query))
    async with asyncio.timeout(PATIENCE):
        while not any(each in result.content for each in ("_completed", "_failed")):
            result = await it.result("wait", duration=0.1)
    return result


async def test_what_is_off_says_what_turns_it_on_and_then_works(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/noise")
        target = {"type": "ref", "ref": "e1"}
        for name, given in (
            ("javascript_exec", {"text": "1"}),
            ("read_console", {}),
            ("read_network", {}),
            ("file_upload", {"target": target, "paths": ["x"]}),
        ):
            assert f"{name} is off in this hand" in await it.fails(name, **given)
        await it.go("/download")
        said = (await downloaded(it, "Get it")).content
        assert '"download_failed"' in said
        assert "downloads are off in this hand" in said


async def test_downloads_uploads_scripts_console_and_network_where_they_are_allowed(
    tmp_path: Path,
) -> None:
    names = ("downloads", "file_upload", "javascript_exec", "read_console", "read_network")
    async with browsing(tmp_path, allow=list(names)) as it:
        await it.go("/download")
        result = await downloaded(it, "Get it")
        (file,) = result.attachments
        assert (file.name, it.blobs.blobs[file.digest]) == ("file.csv", b"a,b\n1,2\n")
        assert '"download_completed"' in result.content
        assert '"path":"downloads/file.csv"' in result.content
        result = await downloaded(it, "Get all")
        assert '"size_bytes":6291456' in result.content, "it is too large to attach"
        assert not result.attachments
        await it.go("/form")
        field = await it.ref("File button")
        for wrong in ("../../etc/passwd", "/etc/passwd", "none", "a\0b", "x" * 300):
            said = await it.fails("file_upload", target=field, paths=[wrong])
            assert "the workspace" in said
        assert "no documents" in await it.fails("file_upload", target=field, document_ids=["d"])
        said = await it.do("file_upload", target=field, paths=["downloads/file.csv"])
        assert said == "Uploaded."
        script = "document.querySelector('#file').files[0].name"
        assert await it.do("javascript_exec", text=script) == '"file.csv"'
        assert "boom" in await it.fails("javascript_exec", text="throw new Error('boom')")
        await it.do("read_console")
        await it.do("read_network")
        await it.go("/noise")
        console = await it.do("read_console")
        assert "[log] one" in console
        assert "[error] two" in console
        async with asyncio.timeout(PATIENCE):
            while (more := await it.do("read_console")) != "(empty)":
                assert "[log] one" not in more, "what was read is not told again"
        network = await it.do("read_network")
        assert f"GET {it.site.url('/missing')} 404 text/html" in network
        said = await it.fails("javascript_exec", text="while(true){}")
        assert "does not answer" in said
        assert "Home" in await it.go("/")


async def test_chromiums_own_sandbox_is_on_and_it_is_never_root_h37(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        supervisor = it.place.supervisor(it.hand)
        (main,) = browsers(supervisor)
        assert browsers(supervisor, "renderer")
        for pid in browsers(supervisor, "renderer"):
            namespaces = {Path(f"/proc/{each}/ns/user").readlink() for each in (pid, main)}
            assert len(namespaces) == 2, "it has no more of its own than the browser"
            status = Path(f"/proc/{pid}/status").read_text()
            assert "Seccomp_filters:\t2" in status, "its own filter is on top of the hand's"
        for pid, arguments in processes(supervisor).items():
            assert not any("--no-sandbox" in each for each in arguments)
            if os.geteuid() == 0:
                assert Path(f"/proc/{pid}").stat().st_uid > 1_000_000


async def test_h21_whoever_is_killed_no_chromium_and_no_profile_is_left(tmp_path: Path) -> None:
    async with browsing(tmp_path) as it:
        await it.go("/")
        supervisor = it.place.supervisor(it.hand)
        pids = list(processes(supervisor))
        assert len(pids) > 5
        call = it.place.begin(it.place.request(it.hand, "wait", duration=30))
        os.kill(supervisor, signal.SIGKILL)
        async with asyncio.timeout(5):
            assert (await call.result()).outcome == pb.OUTCOME_LOST
        await it.place.release(it.hand)
        assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        assert not (tmp_path / "state/hands" / it.hand).exists(), "its profile went with it"
    await nothing_orphaned(tmp_path / "state")


async def test_h44_a_daemon_that_was_killed_finds_the_browser_as_it_was(tmp_path: Path) -> None:
    async with site() as there:
        async with browser_place(tmp_path / "state", end=False) as (place, _):
            hand = await place.hand(type="browser", egress=[there.rule])
            await place.run(hand, "navigate", url=there.url("/form"))
        async with browser_place(tmp_path / "state") as (place, _):
            result = await place.run(hand, "find", query="send button")
            assert 'button "Send"' in result.content
            result = await place.run(hand, "navigate", url=there.url("/other"))
            assert "Other (HTTP 200)" in result.content, "its way out is open again"
            assert await place.release(hand)
    await nothing_orphaned(tmp_path / "state")


async def test_there_are_only_so_many_tabs(tmp_path: Path) -> None:
    async with browsing(tmp_path, allow=["javascript_exec"]) as it:
        await it.go("/")
        script = f"for (let i = 0; i < {TABS_MAX + 2}; i++) window.open('about:blank'); 1"
        await it.result("javascript_exec", text=script)
        async with asyncio.timeout(PATIENCE * 3):
            while f"{TABS_MAX} tabs already" not in (said := await it.do("wait", duration=0.5)):
                pass
        assert "closed: there are" in said
        assert "dialog" not in said
        assert len((await it.state())["tabs"]) == TABS_MAX
        assert "close some" in await it.fails("new_tab")


async def test_a_page_that_closes_itself_as_the_last_one_leaves_a_hand_that_goes_on(
    tmp_path: Path,
) -> None:
    async with browsing(tmp_path, allow=["javascript_exec"]) as it:
        await it.go("/")
        await it.result("javascript_exec", text="window.open('about:blank'); 1")
        first, second = (await it.state())["tabs"]
        told = await it.state("close_tab", tab_id=first["tab_id"])
        assert [each["tab_id"] for each in told["tabs"]] == [second["tab_id"]]
        await it.result("javascript_exec", text="window.close(); 1")
        async with asyncio.timeout(PATIENCE):
            while second in (tabs := (await it.state())["tabs"]) or not tabs:
                pass
        assert len(tabs) == 1, tabs
        assert "there is no tab" in await it.fails("switch_tab", tab_id=second["tab_id"])
        await it.go("/")
