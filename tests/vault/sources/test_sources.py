"""Who may have what fetched, once for all who ask, and kept by nobody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from carpal.errors import CarpalError
from carpal.status import Reason
from tests.pace import SCALE
from vault.guard.transport import Guard
from vault.secret import Secret
from vault.sources import sources as module
from vault.sources.configured import configured
from vault.sources.reference import Reference
from vault.sources.source import Failure, SourceFailed
from vault.sources.sources import Configured, Sources

LIMIT = 20.0 * SCALE
VALUE = "tok-CANARY-of-a-source"
REFERENCE = Reference("corp", "agents/a", "token")


@dataclass
class Manager:
    """A plug-in whose value comes when the gate is open."""

    value: str = VALUE
    asked: int = 0
    ended: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    began: asyncio.Event = field(default_factory=asyncio.Event)

    async def fetch(self, reference: Reference, guard: Guard) -> Secret:
        self.asked += 1
        self.began.set()
        try:
            await self.gate.wait()
        finally:
            self.ended += 1
        return Secret(self.value)


@asynccontextmanager
async def there(manager: Manager) -> AsyncIterator[tuple[Sources, Guard]]:
    async with asyncio.timeout(LIMIT), Guard() as guard:
        yield Sources({"corp": Configured(manager, ("default",), ("agents/",))}), guard


async def test_all_who_ask_while_it_is_fetched_have_the_same_fetch() -> None:
    manager = Manager()
    async with there(manager) as (sources, guard), asyncio.TaskGroup() as group:
        asked = [group.create_task(sources.fetch("default", REFERENCE, guard)) for _ in range(100)]
        await manager.began.wait()
        manager.gate.set()
    assert {each.result().reveal().decode() for each in asked} == {VALUE}
    assert manager.asked == 1


async def test_what_was_fetched_is_not_kept() -> None:
    manager = Manager()
    manager.gate.set()
    async with there(manager) as (sources, guard):
        await sources.fetch("default", REFERENCE, guard)
        manager.value = "tok-the-next-value"
        found = await sources.fetch("default", REFERENCE, guard)
        assert found.reveal() == b"tok-the-next-value"
        assert sources._flights == {}


async def test_one_that_leaves_ends_the_fetch_for_nobody_and_the_last_one_ends_it() -> None:
    manager = Manager()
    async with there(manager) as (sources, guard):

        def ask() -> asyncio.Task[Secret]:
            return asyncio.create_task(sources.fetch("default", REFERENCE, guard))

        leaves, stays = ask(), ask()
        await manager.began.wait()
        leaves.cancel()
        await asyncio.wait({leaves})
        assert manager.ended == 0
        stays.cancel()
        await asyncio.wait({stays})
        again = ask()
        manager.gate.set()
        assert (await again).reveal().decode() == VALUE
    assert (manager.asked, manager.ended) == (2, 2)


async def test_a_failure_is_of_all_who_asked_and_of_none_after_them() -> None:
    manager = Manager(value="short")
    manager.gate.set()
    async with there(manager) as (sources, guard):
        asks = [sources.fetch("default", REFERENCE, guard) for _ in range(2)]
        told = await asyncio.gather(*asks, return_exceptions=True)
        assert [each.failure for each in told if isinstance(each, SourceFailed)] == (
            [Failure.UNUSABLE] * 2
        )
        manager.value = VALUE
        assert (await sources.fetch("default", REFERENCE, guard)).reveal().decode() == VALUE


@pytest.mark.parametrize(
    "value", ["short", "with a space in it", "a-line\r\nX-Evil: 1", "x" * 9000]
)
async def test_v25_a_value_that_could_end_a_header_or_is_no_secret_is_not_used(value: str) -> None:
    manager = Manager(value=value)
    manager.gate.set()
    async with there(manager) as (sources, guard):
        with pytest.raises(SourceFailed) as caught:
            await sources.fetch("default", REFERENCE, guard)
    assert caught.value.failure is Failure.UNUSABLE
    assert value not in caught.value.detail


async def test_a_plug_in_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS", 0.2)
    manager = Manager()
    async with there(manager) as (sources, guard):
        with pytest.raises(SourceFailed) as caught:
            await sources.fetch("default", REFERENCE, guard)
    assert caught.value.failure is Failure.TIMEOUT
    assert manager.ended == 1


async def test_a_plug_in_that_breaks_is_a_source_that_failed_and_its_words_are_nobodys() -> None:
    class Broken(Manager):
        async def fetch(self, reference: Reference, guard: Guard) -> Secret:
            raise KeyError(VALUE)

    async with there(Broken()) as (sources, guard):
        with pytest.raises(SourceFailed) as caught:
            await sources.fetch("default", REFERENCE, guard)
    assert (caught.value.failure, caught.value.detail) == (
        Failure.FAILED,
        "its plug-in failed by KeyError",
    )
    assert caught.value.__suppress_context__


REFUSED = {
    "another source": ("default", Reference("other", "agents/a", "token"), Failure.NOT_CONFIGURED),
    "another workspace": ("evil", REFERENCE, Failure.NOT_ALLOWED),
    "another path": ("default", Reference("corp", "finance/a", "token"), Failure.NOT_ALLOWED),
}


@pytest.mark.parametrize(("workspace", "wanted", "failure"), REFUSED.values(), ids=REFUSED)
async def test_a_source_is_for_its_workspaces_and_paths_alone_and_says_the_same_to_all_others(
    workspace: str, wanted: Reference, failure: Failure
) -> None:
    manager = Manager()
    async with there(manager) as (sources, guard):
        with pytest.raises(SourceFailed) as caught:
            await sources.fetch(workspace, wanted, guard)
        assert caught.value.failure is failure
        with pytest.raises(CarpalError) as told:
            sources.check(workspace, wanted, "policy.sources.token")
    assert manager.asked == 0
    assert told.value.message == (
        "policy.sources.token: is in no source that the workspace "
        f"{workspace!r} may use: the vault's own settings say which there are, for whom, and for "
        "which paths"
    )


GOOD = {
    "plugin": "command",
    "workspaces": ["default"],
    "paths": ["agents/"],
    "argv": ["/bin/cat"],
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"plugin": "nothing"}, "plugin must be one of command, hashicorp"),
        ({"plugin": None}, "plugin must be one of command, hashicorp"),
        ({"workspaces": []}, "workspaces must be a list"),
        ({"workspaces": None}, "workspaces must be a list"),
        ({"paths": None}, "paths must be a list"),
        ({"argv": ["cat"]}, "a whole path"),
        ({"shell": True}, "shell is not known"),
    ],
)
def test_the_vaults_settings_name_what_is_wrong_with_a_source(
    wrong: dict[str, object], said: str
) -> None:
    configured({"corp": GOOD})
    with pytest.raises(CarpalError, match=said) as caught:
        configured({"corp": {**GOOD, **wrong}})
    assert caught.value.reason is Reason.CONFIG_INVALID
    assert "[sources.corp]" in caught.value.message
