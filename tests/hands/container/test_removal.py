"""A container that sticks, or an engine that hangs, is in no other hand's way."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from hands.builtin.container import ContainerType
from hands.builtin.container_box import FOLDER, HANDS, name_of
from hands.builtin.container_engine import Box, EngineGone, EngineRefused
from hands.builtin.container_engine import Engine as Client
from hands.contract import Order
from tests import images
from tests.engine import Engine
from tests.hands.place import Place
from tests.pace import SCALE


class _Sticky:
    """An engine that keeps one container for ever."""

    address = "unix:///nowhere"

    def __init__(self, labels: Mapping[str, Mapping[str, str]], error: Exception) -> None:
        self.there = dict(labels)
        self.error = error

    def labelled(self, *_: str) -> dict[str, tuple[str, Mapping[str, str]]]:
        return {each: (name_of(Path(its[FOLDER])), its) for each, its in self.there.items()}

    def remove(self, container: str, *, insist: bool = True) -> None:
        if container == "stuck":
            raise self.error
        del self.there[container]


@pytest.mark.parametrize("error", [EngineRefused("busy", 500), EngineGone("no answer")])
def test_an_orphan_the_engine_will_not_remove_is_in_no_other_hands_way(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    mine, beside = tmp_path / "mine", tmp_path / "beside"
    for folder in (mine, beside):
        folder.mkdir()
    theirs = {"stuck": tmp_path / "a", "mine": mine, "beside": beside, "gone": tmp_path / "b"}
    labels = {name: {FOLDER: str(folder)} for name, folder in theirs.items()}
    kind = ContainerType(_Sticky.address)
    sticky = _Sticky(labels, error)
    kind._known = sticky  # type: ignore[assignment]
    assert kind._clear(mine) == 1
    assert set(sticky.there) == {"stuck", "beside"}
    assert "not removed yet" in caplog.text


class _Answers:
    """An engine's interface that removes a container in as many steps."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)

    @contextmanager
    def api(self) -> Iterator["_Answers"]:
        yield self

    def remove_container(self, _: str, **__: bool) -> None:
        if (status := self.statuses.pop(0)) != 204:
            raise EngineRefused("no", status)


@pytest.mark.parametrize("before", [(204,), (409, 409), (500, 204, 409), (204, 204), ()])
def test_a_container_counts_as_removed_once_the_engine_knows_of_none(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, ...]
) -> None:
    answers = _Answers(*before, 404)
    client = Client(_Sticky.address)
    monkeypatch.setattr(client, "_api", answers.api)
    client.remove("it")
    assert not answers.statuses


@pytest.mark.parametrize("status", [400, 500])
def test_an_engine_that_cannot_remove_an_orphan_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    answers = _Answers(status, 404)
    client = Client(_Sticky.address)
    monkeypatch.setattr(client, "_api", answers.api)
    with pytest.raises(EngineRefused, match="no"):
        client.remove("it", insist=False)
    assert answers.statuses == [404]


async def test_a_container_that_has_our_labels_by_its_image_alone_is_left_alone(
    boxes: Place, engine: Engine
) -> None:
    client = engine.client.api
    base = client.create_container(images.SHELL, command=["true"])["Id"]
    label = f"LABEL {HANDS}={boxes.inventory.folder_of('').resolve()} {FOLDER}=/gone"
    client.commit(base, "carpal-test/labels", "1", changes=[label])
    client.remove_container(base)
    theirs = client.create_container("carpal-test/labels:1", command=["true"], name="theirs")["Id"]
    try:
        hand = await boxes.hand(type="container", image=images.SHELL)
        assert "/theirs" in engine.containers()
        await boxes.release(hand)
        assert engine.containers() == ["/theirs"]
    finally:
        client.remove_container(theirs)
        client.remove_image("carpal-test/labels:1")


async def test_a_hand_made_again_under_its_id_is_not_in_its_own_remains_way(
    engine: Engine, kind: ContainerType, state: Path
) -> None:
    folder = state / "hands" / "h"
    folder.mkdir(parents=True)
    order = Order("h", folder, {"image": images.SHELL}, {}, 60.0)
    first = await kind.provision(order, lambda _: None)
    await first.hand.detach()
    (folder / "socket").unlink()
    second = await kind.provision(order, lambda _: None)
    assert len(engine.containers()) == 1
    await second.hand.detach()
    await kind.reap("h", folder)
    assert not engine.containers()


@pytest.mark.slow
async def test_an_engine_that_hangs_holds_up_a_daemons_start_once_and_no_other_thread(
    boxes: Place, engine: Engine, kind: ContainerType, state: Path
) -> None:
    fresh = ContainerType(engine.url, pythons=kind._pythons)
    folders = [state / "hands" / f"gone-{number}" for number in range(12)]
    for folder in folders:
        folder.mkdir(parents=True)
    engine.pause()
    try:
        started = time.monotonic()
        asked = [asyncio.create_task(fresh.reap(folder.name, folder)) for folder in folders]
        assert await asyncio.to_thread(lambda: "free") == "free"
        assert time.monotonic() - started < 5 * SCALE
        await asyncio.gather(*asked)
        for folder in folders:  # one after the other, as a daemon does
            await fresh.reap(folder.name, folder)
        assert time.monotonic() - started < 25 * SCALE
        assert "hangs" in (await fresh.probe()).reason
    finally:
        engine.go_on()
    for folder in folders:
        folder.rmdir()


async def test_what_the_engine_warns_of_is_told_when_no_limit_hangs_on_it(
    kind: ContainerType, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = Client.create

    def warning(self: Client, made: Box) -> tuple[str, list[str]]:
        return create(self, made)[0], ["no swap limit support"]

    monkeypatch.setattr(Client, "create", warning)
    folder = state / "hands" / "h"
    folder.mkdir(parents=True)
    order = Order("h", folder, {"image": images.SHELL}, {}, 60.0)
    provisioned = await kind.provision(order, lambda _: None)
    assert "the engine warns: no swap limit support" in provisioned.not_enforced
    await provisioned.hand.release()
    await kind.reap("h", folder)
