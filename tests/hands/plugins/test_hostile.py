"""A plugin that is slow, crashes, floods, answers wrongly, lies or hangs harms no other hand."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.server import serve_locally
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from carpal.v1 import hand_pb2_grpc
from hands.builtin.supervised import Pulse
from hands.conformance.run import judge
from hands.conformance.subject import subject_at
from hands.conformance.suite import CHECKS
from hands.service import HandService
from hands.serving import HandServicer
from tests.hands.place import PATIENCE, Place
from tests.hands.plugins.written import LIMIT, Plugins, Steady, probe
from tests.pace import SCALE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

GOOD = """
class It(HandType):
    'A hand.'
    @tool()
    def echo(self) -> str:
        'Says so.'
        return 'echoed'
"""
SAYS = "os.write(int(sys.argv[3]), json.dumps({}).encode() + b'\\n'); time.sleep(60)"
"""What a plugin says of itself, past our own code."""
LIE = {
    "described": {
        "description": "d",
        "tools": [
            {
                "name": "t",
                "description": "d",
                "input_schema": {"type": "object"},
                "time_limit": 1,
            }
        ],
        "config_schema": {"type": "object"},
        "capabilities": [],
    },
    "unready": "",
}


def lie(**told: object) -> str:
    """A description that is well-formed but for `told`."""
    return SAYS.format({**LIE, "described": {**LIE["described"], **told}})  # type: ignore[dict-item]


def a_tool(**told: object) -> str:
    """The same, of its one tool."""
    (one,) = LIE["described"]["tools"]  # type: ignore[index]
    return lie(tools=[{**one, **told}])


IMPORTED = {
    "raises": ("raise ValueError('no driver')", "no driver"),
    "cannot_import": ("import no_such_module", "No module named 'no_such_module'"),
    "exits": ("os._exit(7)", "exit code 7"),
    "exits_politely": ("sys.exit('no')", "SystemExit"),
    "segfaults": ("ctypes.string_at(0)", "SIGSEGV"),
    "hangs": ("time.sleep(600)", "did not say what it is within"),
    "hangs_for_good": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
        "did not say what it is within",
    ),
    "floods": ("while True: print('x' * 65536)", "did not say what it is within"),
    "says_junk": ("os.write(int(sys.argv[3]), b'\\xff junk\\n'); time.sleep(60)", "no JSON"),
    "says_a_number": (SAYS.format(7), "no object"),
    "says_nesting": ("os.write(int(sys.argv[3]), b'[' * 60000 + b'\\n')", "no JSON"),
    "says_too_much": (
        "\nwhile True: os.write(int(sys.argv[3]), b'x' * 65536)",
        "more than",
    ),
    "is_no_type": ("class It: pass", "no class derived from"),
    "has_no_class": ("", "no attribute 'It'"),
    "has_no_tool": ("\nclass It(HandType):\n 'x'", "has no tool"),
    "hints_wrongly": (
        GOOD.replace("self)", "self, weight: complex)"),
        "It.echo: parameter 'weight': no JSON is complex",
    ),
    "claims_too_much": (lie(capabilities=["isolated", "mounts"]), "capabilities"),
    "claims_numbers": (lie(capabilities=7), "capabilities"),
    "has_bad_names": (a_tool(name="../x"), "the name of a tool"),
    "has_bad_words": (a_tool(description=chr(0xD800)), "no text"),
    "has_no_schema": (a_tool(input_schema=7), "the schema of tool t"),
    "has_bad_schema": (
        a_tool(input_schema={"type": "object", "properties": {"a": {"type": "magic"}}}),
        "the schema of tool t",
    ),
    "takes_for_ever": (a_tool(time_limit=1e99), "time limit"),
    "is_too_large": (a_tool(description="x" * 40_000), "more than 32768 bytes"),
    "probe_raises": (
        GOOD + "\n    @classmethod\n    def probe(cls): raise OSError('no bus')",
        "its probe failed: OSError: no bus",
    ),
    "probe_lies": (GOOD + "\n    @classmethod\n    def probe(cls): return 7", "gave an int"),
    "probe_hangs": (
        GOOD + "\n    @classmethod\n    def probe(cls): time.sleep(600)",
        "did not say what it is within",
    ),
}
"""Name → what its module does, and what its probe then says."""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    return Plugins(tmp_path / "plugins", monkeypatch)


async def at_once(tasks: Sequence[Callable[[], Awaitable[None]]], most: int = 3) -> None:
    """Do them, a few at once."""
    room = asyncio.Semaphore(most)

    async def one(task: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await task()

    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(one(task))


async def test_one_that_is_no_good_from_the_start_is_said_to_be_and_harms_no_other(
    plugins: Plugins,
) -> None:
    types = [
        # Those that hang need not be waited for as long as those that are only slow to start.
        plugins.write(name, source, limit=1.0 if "did not say" in says else LIMIT)
        for name, (source, says) in IMPORTED.items()
    ]
    good_one = plugins.write("good", GOOD)
    async with plugins.place(*types, good_one) as place, Steady().serving(place):
        for name, (_, says) in IMPORTED.items():
            found = await probe(place, name)
            assert found.state == pb.PROBE_STATE_BROKEN, name
            assert says in found.reason, name
            if "probe" not in name:
                with pytest.raises(CarpalError, match="the hand did not start") as caught:
                    await place.hand(type=name)
                assert says in str(caught.value), name
                assert caught.value.reason is Reason.PROVISION_FAILED
        good = await place.hand(type="good")
        assert (await place.run(good, "echo")).content == "echoed"


PROVISIONS = {
    "raises": ("raise OSError('no bus')", "provision failed: OSError: no bus"),
    "refuses": ("raise ToolError('turn it on')", "turn it on"),
    "exits": ("os._exit(3)", "its process ended with exit code 3"),
    "segfaults": ("ctypes.string_at(0)", "its process died by SIGSEGV"),
    "hangs": ("time.sleep(600)", "timed out after"),
    "hangs_for_good": ("while True:\n  try: time.sleep(9)\n  except BaseException: pass", "killed"),
    "answers_wrongly": ("return 7", "gave an int, and a result is text"),
    # No faster than that it is out of time before it has written too much.
    "floods": ("while True: print('x' * 65536); time.sleep(0.01)", "timed out after"),
    "is_killed": ("os.kill(os.getppid(), 9)", "its supervisor died"),
    "closes_all": ("os.closerange(3, 99); time.sleep(600)", "its process "),  # ended, or hung up
}


async def test_one_that_fails_to_make_a_hand_leaves_none_and_harms_no_other(
    plugins: Plugins,
) -> None:
    source = GOOD + "    def provision(self, how: str) -> str:\n        "
    for name, (does, _) in PROVISIONS.items():
        lines = does.replace("\n", "\n" + " " * 12)
        source += f"\n        if how == {name!r}:\n            {lines}\n"
    it = plugins.write("it", source, provision_limit=5.0 * SCALE)
    async with plugins.place(it) as place, Steady().serving(place):

        async def fails(name: str, says: str) -> None:
            with pytest.raises(CarpalError, match="the hand did not start") as caught:
                await place.hand(type="it", how=name)
            assert says in str(caught.value), name

        await at_once(
            [lambda n=name, s=says: fails(n, s) for name, (_, says) in PROVISIONS.items()]  # type: ignore[misc]
        )
        left = {path.name for path in place.inventory.folder_of("x").parent.iterdir()}
        assert left == set(place.inventory.keepers)  # the steady one's alone


async def test_one_that_writes_more_than_anyone_reads_is_killed_and_said_to_be(
    plugins: Plugins,
) -> None:
    floods = "    def provision(self) -> str:\n        while True: print('x' * 65536)\n"
    it = plugins.write("it", GOOD + floods, provision_limit=90.0 * SCALE)
    async with plugins.place(it) as place, Steady().serving(place):
        with pytest.raises(CarpalError, match="the hand did not start") as caught:
            await place.hand(type="it")
        assert "killed after 1073741824 bytes of output" in str(caught.value)


CALLS = {
    # What it does, the outcome, what it says, and whether the hand goes on.
    "fails": ("raise ToolError('no paper')", "ERROR", "no paper", True),
    "raises": ("{}['x']", "ERROR", "the tool failed: KeyError: 'x'", True),
    "exits_politely": ("sys.exit(3)", "ERROR", "the tool failed: SystemExit: 3", True),
    "recurses": ("f = lambda: f(); f()", "ERROR", "RecursionError", True),
    "cannot_say_why": (
        "class E(Exception):\n  def __str__(self): raise self\nraise E",
        "ERROR",
        "it cannot say why",
        True,
    ),
    "gives_a_number": ("return 7", "ERROR", "the tool gave an int, and a result is text", True),
    "gives_bytes": ("return b'\\xff'", "ERROR", "the tool gave a bytes", True),
    "gives_no_text": ("return 'a' + chr(0xd800)", "OK", "a?", True),
    "gives_much": ("return 'x' * 30_000_000", "OK", "bytes omitted]", True),
    "prints_no_text": ("os.write(1, b'\\xff\\xfe')", "OK", "\ufffd\ufffd", True),
    "floods": (
        # No faster than that it is out of time before it has written too much.
        "while True: sys.stdout.write('x' * 65536); time.sleep(0.001)",
        "TIMED_OUT",
        "bytes omitted]",
        True,
    ),
    "is_slow": ("time.sleep(600)", "TIMED_OUT", "timed out after 1 s; stopped", True),
    "hangs": (
        "while True:\n  try: time.sleep(9)\n  except BaseException: pass",
        "TIMED_OUT",
        "the hand is lost",
        False,
    ),
    "hangs_in_c": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
        "TIMED_OUT",
        "killed, for it did not stop",
        False,
    ),
    "exits": ("os._exit(3)", "LOST", "its process ended with exit code 3", False),
    "segfaults": ("ctypes.string_at(0)", "LOST", "its process died by SIGSEGV", False),
    "is_gone": ("raise HandLost('the cable is out')", "LOST", "the cable is out", False),
    "was_gone": (
        "from hands.plugins.hosted import NotBegun; raise NotBegun('it was out')",
        "LOST",
        "it was out; this call did not start",
        False,
    ),
    "kills_its_parent": ("os.kill(os.getppid(), 9)", "LOST", "its supervisor died", False),
    "stops_its_parent": (
        "os.kill(os.getppid(), 19); time.sleep(600)",
        "LOST",
        "its supervisor did not answer",
        False,
    ),
    "closes_all": ("os.closerange(3, 99)", "LOST", "its process ", False),
    "says_junk": ("LINE.sendall(b'\\0\\0\\0\\4junk')", "LOST", "is not understood", False),
    "says_too_much": ("LINE.sendall(b'\\xff' * 8)", "LOST", "is not understood", False),
    "says_a_list": ("LINE.sendall(b'\\0\\0\\0\\2[]')", "LOST", "is not understood", False),
    "answers_another": (
        "say(call_id='other', outcome='ok', content='', attachments=[])",
        "LOST",
        "is not understood",
        False,
    ),
    "attaches_wrongly": (
        "say(call_id=context.call_id, outcome='ok', content='', attachments=[7])",
        "LOST",
        "is not understood",
        False,
    ),
    "lies_about_its_end": (
        "say(call_id=context.call_id, outcome='perfect', content='', attachments=[])",
        "LOST",
        "is not understood",
        False,
    ),
    "removes_its_folder": ("import shutil; shutil.rmtree(context.folder.parent)", "OK", "", True),
    "forks": ("\nif os.fork(): return 'forked'\ntime.sleep(600)", "OK", "forked", True),
    "leaves_a_flood": (
        "subprocess.Popen(['yes'], start_new_session=True); return 'began'",
        "OK",
        "began",
        True,
    ),
}
LINE = """
import socket, struct
from hands.plugins.host import Host
LINE = next(
    socket.socket(fileno=os.dup(int(f))) for f in os.listdir('/proc/self/fd')
    if int(f) == int(sys.argv[3])
) if sys.argv[1] == 'run' else None
def say(**answer):
    data = json.dumps(answer).encode()
    LINE.sendall(struct.pack('>I', len(data)) + data)
    time.sleep(600)
"""


async def test_a_call_that_goes_wrong_in_any_way_ends_by_itself_and_harms_no_other(
    plugins: Plugins,
) -> None:
    source = LINE + GOOD
    for name, (does, *_) in CALLS.items():
        lines = does.replace("\n", "\n        ")
        source += f"    @tool()\n    def {name}(self, context: Context) -> str:\n"
        source += f"        'x'\n        {lines}\n"
    it = plugins.write("it", source, pulse=Pulse(0.5, 0.5, 2))
    async with plugins.place(it) as place, Steady().serving(place):

        async def goes_wrong(name: str) -> None:
            _, outcome, says, goes_on = CALLS[name]
            hand = await place.hand(type="it")
            result = await place.run(hand, name, limit=1.0)
            assert pb.Outcome.Name(result.outcome) == f"OUTCOME_{outcome}", (name, result.content)
            assert says in result.content, (name, result.content[:500])
            assert len(result.content) < 200_000
            if goes_on:
                assert (await place.run(hand, "echo")).content == "echoed", name
            else:
                gone = await until_refused(place, hand)
                assert gone.reason is Reason.HAND_GONE, name
            assert await place.release(hand)

        await at_once([lambda n=name: goes_wrong(n) for name in CALLS])  # type: ignore[misc]


async def until_refused(place: Place, hand: str) -> CarpalError:
    """What a hand is refused with once the daemon has seen that it is gone."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await place.run(hand, "echo")
            except CarpalError as error:
                return error


RELEASES = {
    "raises": "raise OSError('stuck')",
    "exits": "os._exit(3)",
    "segfaults": "ctypes.string_at(0)",
    "hangs": "while True:\n  try: time.sleep(9)\n  except BaseException: pass",
    "floods": "while True: print('x' * 65536)",
    "starts_more": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
}


async def test_a_hand_whose_release_goes_wrong_is_ended_all_the_same(plugins: Plugins) -> None:
    source = GOOD + "    def provision(self, how: str) -> str:\n        self.how = how\n"
    source += "    def release(self) -> None:\n        pass\n"
    for name, does in RELEASES.items():
        lines = does.replace("\n", "\n            ")
        source += f"        if self.how == {name!r}:\n            {lines}\n"
    async with plugins.place(plugins.write("it", source)) as place, Steady().serving(place):

        async def ends(name: str) -> None:
            hand = await place.hand(type="it", how=name)
            assert await place.release(hand), name
            assert not place.inventory.folder_of(hand).exists()

        await at_once([lambda n=name: ends(n) for name in RELEASES])  # type: ignore[misc]


async def test_one_that_claims_what_it_cannot_is_found_out_by_the_checks_and_told_what_to_change(
    plugins: Plugins,
) -> None:
    boasts = GOOD.replace("    @tool()", "    capabilities = ('visual',)\n    @tool()")
    (check,) = [one for one in CHECKS if one.name == "tools_of_capabilities"]
    async with plugins.place(plugins.write("it", boasts)) as place, serving(place) as socket:
        verdict = await judge(check, await subject_at(socket, "it", {}), SCALE)
    assert verdict.verdict == "fail"
    assert verdict.detail == "missing of visual: ['screenshot'], not []"
    assert verdict.change.startswith("Add the tools that are missing, or take the capability out")


@asynccontextmanager
async def serving(place: Place) -> AsyncIterator[Path]:
    """The socket of a server of a place's service."""
    servicer = HandServicer(HandService(place.inventory, "d", "check"))
    # Short: a socket's address holds 107 bytes, and the folders of tests are deep.
    with tempfile.TemporaryDirectory(prefix="carpal-") as folder:
        socket = Path(folder) / "socket"
        async with serve_locally(
            socket, lambda server: hand_pb2_grpc.add_HandServicer_to_server(servicer, server)
        ):
            yield socket
