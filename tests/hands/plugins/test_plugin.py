"""A hand type that somebody wrote against `hands/api.py`, in a daemon."""

import asyncio
import io
import os
import signal
import tarfile
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.hand_mark import mark
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.inside import tree
from hands.owner.gate import Gate
from hands.owner.policy_file import PolicyFile
from tests.hands.life.test_mounts import Kept
from tests.hands.place import PATIENCE, open_place, until
from tests.hands.plugins.written import Plugins

COUNTER = """
class It(HandType):
    'Counts.'

    def provision(self, context: Context, begin: int = 0) -> str:
        print('one moment')
        self.n, self.folder = begin, context.folder
        (context.folder.parent.parent.parent / 'pid').write_text(str(os.getpid()))
        return f'It begins at {begin}.'

    def release(self) -> None:
        (self.folder.parent.parent.parent / 'released').touch()

    @tool()
    def more(self, by: int = 1) -> str:
        'Count on.'
        self.n += by
        return str(self.n)

    @tool()
    def slow(self, context: Context) -> str:
        'Says so, and ends when there is a file.'
        context.say('began')
        while not (context.folder.parent.parent.parent / 'go').exists():
            time.sleep(0.01)
        self.n += 1
        return 'ended'

    @tool(time_limit=0.2)
    def hurried(self) -> None:
        'Takes too long.'
        try:
            time.sleep(600)
        except Cancelled:
            print('cleaned up')
            raise

    @tool()
    async def waits(self, context: Context) -> str:
        'Waits.'
        context.say('began')
        try:
            await asyncio.sleep(600)
        finally:
            (context.folder / 'cleaned').touch()
        return ''

    @tool()
    def says(self, context: Context) -> None:
        'Gives output alone.'
        context.say('one\\n')
        print('two')

    @tool()
    def shows(self, context: Context, count: int) -> str:
        'Attaches.'
        for n in range(count):
            context.attach(b'x' * n, 'image/png', f'{n}.png')
        return f'{len(context.attached)} attached'
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    return Plugins(tmp_path / "plugins", monkeypatch)


async def test_a_class_is_a_hand_type_with_its_tools_its_config_and_a_state_of_its_own(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        request = pb.ProvisionRequest(
            driver=place.driver(), hand_id="a", type="it", config=b'{"begin": 5}'
        )
        steps = [step async for step in place.service.provision(request)]
        assert steps[0].progress.message == "one moment"
        assert steps[-1].result.note == "It begins at 5."
        other = await place.hand(type="it")
        for hand, first in (("a", "6"), (other, "1")):
            assert (await place.run(hand, "more")).content == first
        assert (await place.run("a", "more", by=4)).content == "10"
        said = await place.run("a", "says")
        assert (said.content, said.output_bytes) == ("one\ntwo\n", 8)
        with pytest.raises(CarpalError) as caught:
            await place.run("a", "more", by="4")
        assert caught.value.fields["field"] == "by"
        with pytest.raises(CarpalError) as caught:
            await place.hand(type="it", begin="soon")
        assert caught.value.reason is Reason.INVALID_FIELD
        assert caught.value.fields["field"] == "config.begin"


async def test_a_cancelled_call_is_stopped_where_it_is_and_the_hand_goes_on(
    plugins: Plugins,
) -> None:
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        hand = await place.hand(type="it")
        for name in ("slow", "waits"):
            call = place.begin(place.request(hand, name))
            assert await call.output() == b"began"
            await place.service.cancel(
                pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
            )
            result = await call.result()
            assert result.outcome == pb.OUTCOME_CANCELLED, name
            assert result.content == "began\n[cancelled; stopped]"
        assert (place.inventory.folder_of(hand) / "workspace" / "cleaned").exists()
        result = await place.run(hand, "hurried")
        assert result.outcome == pb.OUTCOME_TIMED_OUT
        assert result.content == "cleaned up\n[timed out after 0.2 s; stopped]"
        assert (await place.run(hand, "more")).content == "1"


async def test_too_many_attachments_are_a_failed_call(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        hand = await place.hand(type="it")
        result = await place.run(hand, "shows", count=21)
        assert result.outcome == pb.OUTCOME_ERROR
        assert result.content.startswith(
            "a result has at most 20 attachments\n[0.png is left out: "
        )


async def test_its_process_and_its_call_outlive_the_daemon_and_are_taken_up_again(
    plugins: Plugins, tmp_path: Path
) -> None:
    it = plugins.write("it", COUNTER)
    state = tmp_path / "state"
    async with open_place(state, more={"it": it}, end=False) as place:
        hand = await place.hand(type="it")
        assert (await place.run(hand, "more", by=41)).content == "41"
        request = place.request(hand, "slow")
        call = place.begin(request)
        assert await call.output() == b"began"
        await call.leave()
    async with open_place(state, more={"it": it}) as place:
        call = place.begin(request)
        assert await call.output() == b"began"
        (state / "go").touch()
        assert (await call.result()).content == "ended"
        assert (await place.run(hand, "more")).content == "43"
        assert await place.release(hand)
        assert (state / "released").exists()


async def test_a_hand_whose_brain_is_gone_is_released_and_ends_with_all_it_started(
    plugins: Plugins, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        hand = await place.hand(1.0, type="it")
        await until((state / "released").exists, "it was not released")
        await until(lambda: hand not in place.inventory.keepers, "it was not lost")
        assert tree.find(int((state / "pid").read_text())) is None


async def test_its_process_dies_with_its_supervisor(plugins: Plugins, tmp_path: Path) -> None:
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        hand = await place.hand(type="it")
        os.kill(place.supervisor(hand), signal.SIGKILL)
        pid = int((tmp_path / "state" / "pid").read_text())
        await until(lambda: tree.find(pid) is None, "it lives on")
        await until(lambda: hand not in place.inventory.keepers, "it was not lost")


async def test_nothing_of_the_daemons_environment_reaches_it_but_what_says_where_things_are(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    source = COUNTER + (
        "    @tool()\n    def env(self) -> str:\n        'x'\n"
        "        return json.dumps(dict(os.environ))\n"
    )
    async with plugins.place(plugins.write("it", source)) as place:
        hand = await place.hand(type="it")
        content = (await place.run(hand, "env")).content
        assert "secret" not in content
        folder = place.inventory.folder_of(hand)
        assert mark(folder).partition("=")[2] in content
        assert str(folder / "home") in content


async def test_a_call_that_waits_in_line_is_cancelled_before_it_starts(plugins: Plugins) -> None:
    async with plugins.place(plugins.write("it", COUNTER)) as place:
        hand = await place.hand(type="it")
        first = place.begin(place.request(hand, "waits"))
        assert await first.output() == b"began"
        second = place.begin(place.request(hand, "more"))
        await asyncio.sleep(0)  # until it is in line
        for call in (second, first):
            await place.service.cancel(
                pb.CancelRequest(driver=place.driver(), hand_id=hand, call_id=call.call_id)
            )
        for call in (first, second):
            async with asyncio.timeout(PATIENCE):
                assert (await call.result()).outcome == pb.OUTCOME_CANCELLED
        assert (await place.run(hand, "more")).content == "1"


async def test_a_tool_of_a_name_that_claude_knows_may_take_what_it_likes(plugins: Plugins) -> None:
    source = """
    class It(HandType):
        'A hand.'
        @tool()
        def memory(self, what: str) -> str:
            'Remember.'
            return what
        @tool()
        def bash(self, restart: bool = False) -> str:
            'Begin.'
            return f'restart {restart}'
    """
    async with plugins.place(plugins.write("it", source)) as place:
        hand = await place.hand(type="it")
        assert (await place.run(hand, "memory", what="a\0b")).content == "a\0b"
        assert (await place.run(hand, "bash")).content == "restart False"
        assert (await place.run(hand, "bash", restart=True)).content == "restart True"


READER = """
class It(HandType):
    'Reads what was mounted.'
    capabilities = ('mounts', 'save')

    @tool()
    def read(self, path: str, context: Context) -> str:
        'Reads it.'
        return (context.folder / path).read_text()
"""


async def test_what_a_session_mounts_is_in_its_folder_before_its_first_call_and_can_be_saved(
    plugins: Plugins, tmp_path: Path
) -> None:
    kind, blobs = plugins.write("it", READER), Kept(b"from a blob")
    (digest,) = blobs.blobs
    async with open_place(tmp_path / "state", more={"it": kind}, blobs=blobs) as place:
        asked = pb.ProvisionRequest(
            driver=place.driver(),
            hand_id=place.new_id("h"),
            type="it",
            mounts=[
                pb.Mount(source_ref=f"blob:{digest.hex()}", mount_path="in/blob"),
                pb.Mount(source_ref="text:of a text", mount_path="text"),
            ],
        )
        asked.orphan_deadline.FromSeconds(60)
        assert "Mounted: in/blob: 11 bytes" in (await place.provision(asked)).note
        for path, says in (("in/blob", "from a blob"), ("text", "of a text")):
            assert (await place.run(asked.hand_id, "read", path=path)).content == says
        keeper = place.inventory.keepers[asked.hand_id]
        saved = await keeper.save("s", "save-1")
        with tarfile.open(fileobj=io.BytesIO(blobs.blobs[saved.digest])) as tar:
            assert {each.lstrip("./") for each in tar.getnames()} >= {"in/blob", "text"}


TAKER = """
from hands.api import Blob
class It(HandType):
    'Takes what was given.'
    capabilities = ('mounts',)

    @tool()
    def give(self, text: str, context: Context) -> str:
        'Gives it.'
        context.attach(text.encode(), 'text/plain', 'it')
        return context.attached[0].digest

    @tool()
    def take(self, what: Blob, context: Context) -> str:
        'Takes it.'
        return context.blob(what).decode()
"""


async def test_what_one_hand_attached_another_takes_by_its_digest(
    plugins: Plugins, tmp_path: Path
) -> None:
    blobs, more = Kept(), {"it": plugins.write("it", TAKER)}
    async with open_place(tmp_path / "state", more=more, blobs=blobs) as place:
        one, other = await place.hand(type="it"), await place.hand(type="it")
        digest = (await place.run(one, "give", text="of one")).content
        for _ in range(2):
            assert (await place.run(other, "take", what=digest)).content == "of one"
        reads = len(blobs.asked) - 1
        assert reads == 1, "what is there is not fetched again"
        for nothing in ("0" * 64, "../x", "x"):
            result = await place.run(other, "take", what=nothing)
            assert result.outcome == pb.OUTCOME_ERROR
            assert "nothing of this session's log is" in result.content
        assert (await place.run(other, "take", what=digest)).content == "of one"


async def test_an_owner_who_lets_no_blob_into_hands_lets_none_in_by_a_call_either(
    plugins: Plugins, tmp_path: Path
) -> None:
    blobs, more = Kept(b"secret"), {"it": plugins.write("it", TAKER)}
    (digest,) = blobs.blobs
    policy = tmp_path / "policy.toml"
    policy.write_text('mounts = ["text"]')
    gate = Gate(PolicyFile(policy))
    async with open_place(tmp_path / "state", more=more, blobs=blobs, gate=gate) as place:
        hand = await place.hand(type="it")
        result = await place.run(hand, "take", what=digest.hex())
        assert "nothing of this session's log is" in result.content
        assert not blobs.asked
