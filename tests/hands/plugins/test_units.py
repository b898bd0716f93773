"""Units of a class of `hands/api.py`: named and reset in processes that harm nobody."""

import asyncio
import json
from pathlib import Path

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from carpal.v1 import hand_pb2 as pb
from hands.builtin import kept_units
from hands.inside import tree
from hands.life import units
from hands.plugins import answering
from tests.faults import Points
from tests.hands.place import PATIENCE, Place, open_place, until
from tests.hands.plugins.written import Plugins, Steady, probe
from tests.hands.test_restart import DRIVER, child
from tests.hands.test_service import provision, refused

PHONES = """
from pathlib import Path
from hands.api import Unit
HERE = Path(__file__).parent
def note(line):
    with (HERE / 'log').open('a') as log:
        log.write(line + '\\n')
def does(what):
    path = HERE / what
    if path.exists():
        exec(path.read_text())

class It(HandType):
    'A phone.'

    @classmethod
    def units(cls):
        does('units')
        named = (HERE / 'named').read_text().split() if (HERE / 'named').exists() else ['a', 'b']
        return [Unit(each, {'name': each, 'kind': 'phone'}) for each in named]

    @classmethod
    def reset(cls, unit_id):
        (HERE / f'resetting-{unit_id}').write_text(str(os.getpid()))
        does(f'reset-{unit_id}')
        note(f'reset {unit_id}')

    def provision(self, context: Context, loud: bool = False) -> str:
        self.unit = context.unit
        note(f'made {context.unit}')
        return f'It is {context.unit}, {loud}.'

    def release(self) -> None:
        note(f'over {self.unit}')

    @tool()
    def which(self, context: Context) -> str:
        'Which phone it is.'
        return context.unit

    @tool()
    def dies(self) -> str:
        'Breaks.'
        os._exit(3)
"""


class Phones:
    """Such a class in its folder, and what a test has it do."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self.kind = plugins.write("it", PHONES)
        self.folder = plugins.folder

    @property
    def log(self) -> list[str]:
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    def does(self, what: str, source: str) -> Path:
        path = self.folder / what
        path.write_text(source)
        return path


@pytest.fixture
def phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phones:
    monkeypatch.setattr(kept_units, "AGAIN", 0.2)
    # A busy machine takes longer than a daemon's start waits; these tests are of what comes then.
    monkeypatch.setattr(kept_units, "FIRST", PATIENCE)
    return Phones(Plugins(tmp_path / "plugins", monkeypatch))


async def take(place: Place, hand_id: str, **config: object) -> str:
    request = provision(place, hand_id, type="it", config=json.dumps(config).encode())
    return (await place.provision(request)).note


async def not_taken(place: Place, hand_id: str, **config: object) -> CarpalError:
    request = provision(place, hand_id, type="it", config=json.dumps(config).encode())
    async with asyncio.timeout(PATIENCE):
        return await refused(place.service.provision(request))


def holders(place: Place) -> dict[str, str]:
    return {each.unit_id: each.holder for each in place.inventory.units.infos("it")}


def reason(place: Place, unit_id: str) -> str:
    (found,) = [
        each.reason for each in place.inventory.units.infos("it") if each.unit_id == unit_id
    ]
    return found


async def settled(place: Place) -> None:
    await until(
        lambda: not any(row["resetting"] for row in place.inventory.units.rows()), "still resets"
    )


async def test_each_hand_has_a_unit_of_its_own_by_labels_and_knows_which_and_a_third_is_refused(
    phones: Phones,
) -> None:
    async with phones.plugins.place(phones.kind) as place:
        told = {each.type: each for each in place.service.types()}["it"]
        assert "units" in told.capabilities
        assert [(each.unit_id, each.labels["kind"], each.healthy) for each in told.units] == [
            ("a", "phone", True),
            ("b", "phone", True),
        ]
        assert set(json.loads(told.config_schema)["properties"]) == {"loud", "unit"}
        assert await take(place, "h1", unit={"name": "b"}, loud=True) == "It is b, True."
        assert await take(place, "h2") == "It is a, False."
        assert (await place.run("h1", "which")).content == "b"
        error = await not_taken(place, "h3")
        assert error.reason is Reason.AT_CAPACITY
        assert "2 held, 0 quarantined" in error.message
        assert (await not_taken(place, "h3", unit={"name": "c"})).fields["field"] == "config.unit"
        await place.release("h1")
        assert holders(place) == {"a": "h2", "b": ""}
        assert await take(place, "h3") == "It is b, False."
    assert phones.log[:6] == ["reset b", "made b", "reset a", "made a", "over b", "reset b"]


async def test_two_hands_that_want_one_unit_at_once_are_one_that_has_it_and_one_that_is_refused(
    phones: Phones,
) -> None:
    async with phones.plugins.place(phones.kind) as place:
        came = await asyncio.gather(
            *(take(place, each, unit={"name": "a"}) for each in ("h1", "h2")),
            return_exceptions=True,
        )
        (error,) = [each for each in came if isinstance(each, CarpalError)]
        assert error.reason is Reason.AT_CAPACITY
        assert sorted(filter(None, holders(place).values())) in (["h1"], ["h2"])
        assert phones.log == ["reset a", "made a"]


async def test_a_hand_whose_process_dies_gives_its_unit_back_after_a_reset(phones: Phones) -> None:
    async with phones.plugins.place(phones.kind) as place:
        await take(place, "h")
        assert (await place.run("h", "dies")).outcome == pb.OUTCOME_LOST
        await until(lambda: holders(place)["a"] == "", "its unit is not free")
        assert phones.log == ["reset a", "made a", "reset a"]


_MUCH = answering.MEMORY + 2**29
"""Bytes that nobody touches: the machine need not have them."""
WRONG_RESETS = {
    "takes_all_memory": (f"bytearray({_MUCH})", "its reset failed: MemoryError"),
    "starts_what_takes_all_memory": (
        f"subprocess.run([sys.executable, '-c', 'bytearray({_MUCH})'], check=True)",
        "its reset failed: CalledProcessError",
    ),
    "says_that_it_is_killed_first": (
        "raise ToolError(Path('/proc/self/oom_score_adj').read_text())",
        "its reset failed: 1000",
    ),
    "raises": ("raise OSError('no power')", "its reset failed: OSError: no power"),
    "says_why": ("raise ToolError('plug it in')", "its reset failed: plug it in"),
    "exits": ("os._exit(7)", "its process ended by exit code 7 in `reset`"),
    "exits_as_if_well": ("os._exit(0)", "its process ended by exit code 0 in `reset`"),
    "segfaults": ("ctypes.string_at(0)", "its process ended by SIGSEGV in `reset`"),
    "hangs": ("time.sleep(600)", "its reset took longer than"),
    "hangs_in_c": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
        "its reset took longer than",
    ),
    "floods": ("while True: print('x' * 65536)", "its reset took longer than"),
    "says_junk": ("os.write(int(sys.argv[3]), b'\\xff\\n')", "what it says is no JSON"),
    "says_another": (
        "os.write(int(sys.argv[3]), b'{}\\n'); time.sleep(9)",
        "it does not say that it was reset",
    ),
    "says_too_much": (
        "while True: os.write(int(sys.argv[3]), b'x' * 65536)",
        "what it says is no JSON",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_RESETS)
async def test_a_reset_that_goes_wrong_in_any_way_quarantines_its_unit_alone_and_says_why(
    phones: Phones, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, says = WRONG_RESETS[name]
    async with phones.plugins.place(phones.kind) as place, Steady().serving(place):
        if "longer" in says:
            monkeypatch.setattr(units, "RESET_LIMIT", 1.0)
        wrong = phones.does("reset-a", source)
        error = await not_taken(place, "h")
        assert error.reason is Reason.PROVISION_FAILED
        assert says in error.message
        assert not [each for each in caplog.records if each.exc_info], "a traceback, of its words"
        monkeypatch.setattr(units, "RESET_LIMIT", PATIENCE)
        assert says in reason(place, "a")
        assert await take(place, "h") == "It is b, False."
        if (pid := phones.folder / "resetting-a").exists():
            await until(lambda: tree.find(int(pid.read_text())) is None, "it runs on")
        wrong.unlink()
        await place.inventory.units.clear("a")
        assert reason(place, "a") == ""
        assert await take(place, "h2") == "It is a, False."


async def test_a_reset_that_gives_something_has_not_said_that_it_went_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = PHONES.replace("note(f'reset {unit_id}')", "return False")
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    async with plugins.place(plugins.write("it", source)) as place:
        assert "`reset` gave a bool" in (await not_taken(place, "h")).message


async def test_an_async_units_and_reset_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins = Plugins(tmp_path / "plugins", monkeypatch)
    source = PHONES.replace("def units", "async def units").replace("def reset", "async def reset")
    async with plugins.place(plugins.write("it", source)) as place:
        assert await take(place, "h") == "It is a, False."
    assert (plugins.folder / "log").read_text().startswith("reset a\nmade a\n")


WRONG_UNITS = {
    "takes_all_memory": (f"bytearray({_MUCH})", "its `units` failed: MemoryError"),
    "raises": ("raise OSError('no bus')", "its `units` failed: OSError: no bus"),
    "exits": ("os._exit(7)", "its process ended by exit code 7 in `units`"),
    "segfaults": ("ctypes.string_at(0)", "SIGSEGV"),
    "hangs": ("time.sleep(600)", "did not name its units within"),
    "floods": ("while True: print('x' * 65536)", "did not name its units within"),
    "says_junk": ("os.write(int(sys.argv[3]), b'junk\\n'); time.sleep(9)", "is no JSON"),
    "says_a_number": ("os.write(int(sys.argv[3]), b'7\\n'); time.sleep(9)", "is no object"),
    "names_bad_ids": (
        'os.write(int(sys.argv[3]), b\'{"units": [["../a", {}]]}\\n\'); time.sleep(9)',
        "the id of a unit is not",
    ),
    "labels_wrongly": (
        'os.write(int(sys.argv[3]), b\'{"units": [["a", {"n": 1}]]}\\n\'); time.sleep(9)',
        "the labels of unit a are not all strings",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG_UNITS)
async def test_units_that_are_not_named_are_said_by_probe_and_provision_and_harm_no_other(
    phones: Phones, name: str
) -> None:
    source, says = WRONG_UNITS[name]
    wrong = phones.does("units", source)
    kind = phones.kind
    if "within" in says:
        kind = phones.plugins.write("it", PHONES, limit=3.0)
    async with phones.plugins.place(kind) as place, Steady().serving(place):
        await until(lambda: says in _unknown(place), "it is not said")
        assert says in (await probe(place, "it")).reason
        error = await not_taken(place, "h")
        assert error.reason is Reason.PROVISION_FAILED
        assert says in error.message
        wrong.unlink()
        await until(lambda: holders(place) == {"a": "", "b": ""}, "they are not named again")
        assert await take(place, "h") == "It is a, False."


def _unknown(place: Place) -> str:
    return "".join(each["reason"] for each in place.inventory.units.unknown())


async def test_a_daemon_waits_for_the_first_answer_and_no_longer(phones: Phones) -> None:
    begun = asyncio.get_running_loop().time()
    await phones.kind.prepare()
    try:
        assert [each.unit_id for each in phones.kind.units()] == ["a", "b"]
        assert asyncio.get_running_loop().time() - begun < kept_units.FIRST
    finally:
        await phones.kind.close()


async def test_units_that_come_and_go_are_seen_and_a_failed_question_takes_none_away(
    phones: Phones,
) -> None:
    async with phones.plugins.place(phones.kind) as place:
        phones.does("named", "b c")
        await until(lambda: set(holders(place)) == {"b", "c"}, "they are not named")
        wrong = phones.does("units", "raise OSError('no bus')")
        await until(lambda: "no bus" in phones.kind.unnamed, "it is not said")
        assert "no bus" in (await probe(place, "it")).reason
        assert set(holders(place)) == {"b", "c"}
        wrong.unlink()
        await until(lambda: not phones.kind.unnamed, "it is said for ever")
        assert (await probe(place, "it")).state == pb.PROBE_STATE_READY


@pytest.mark.slow
async def test_a_daemon_killed_while_a_unit_is_held_finds_it_held_by_the_same_hand(
    phones: Phones, tmp_path: Path
) -> None:
    state, environ = tmp_path / "state", {"CARPAL_TEST_PLUGIN": "it=it:It"}
    async with child(state, environ) as daemon:
        daemon.ask(provision=pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="it"))
        while not (await daemon.reply()).last:
            pass
    async with open_place(state, more={"it": phones.kind}) as place:
        assert holders(place) == {"a": "h", "b": ""}
        assert (await place.run("h", "which")).content == "a"
        assert await take(place, "h2") == "It is b, False."
        await place.release("h")
        assert holders(place) == {"a": "", "b": "h2"}
    assert phones.log[:6] == ["reset a", "made a", "reset b", "made b", "over a", "reset a"]


@pytest.mark.slow
async def test_a_daemon_killed_during_a_reset_takes_its_process_along_and_the_next_resets_again(
    phones: Phones, tmp_path: Path
) -> None:
    state, points = tmp_path / "state", Points(tmp_path / "points")
    hangs = phones.does(
        "reset-a",
        "subprocess.Popen(['sleep', '600']);"
        " signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); time.sleep(600)",
    )
    pid = phones.folder / "resetting-a"
    async with child(state, {**points.environ, "CARPAL_TEST_PLUGIN": "it=it:It"}) as daemon:
        daemon.ask(provision=pb.ProvisionRequest(driver=DRIVER, hand_id="h", type="it"))
        await until(lambda: pid.exists() and pid.read_text() != "", "no reset begins")
    await until(lambda: tree.find(int(pid.read_text())) is None, "it outlives its daemon")
    hangs.unlink()
    async with open_place(state, more={"it": phones.kind}) as place:
        await settled(place)
        assert holders(place) == {"a": "", "b": ""}
        assert await take(place, "h2") == "It is a, False."
    assert phones.log[:3] == ["reset a", "reset a", "made a"]
