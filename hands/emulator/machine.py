"""The console with a cartridge in it: PyBoy, whose clock is ours. The one door to `pyboy`.

Nothing is read from a disk or written to one: a cartridge is bytes, and so are states. What a
cartridge keeps by its battery is part of a state, and is gone with the machine.
"""

import contextlib
import hashlib
import io
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hands.api import ToolError
from hands.emulator.keys import Button
from hands.emulator.states import State

if TYPE_CHECKING:
    from PIL.Image import Image

_BANK = 16 * 1024
CARTRIDGE_MAX = 8 * 1024 * 1024
"""Bytes: the largest that there are."""
_HEADER_END = 0x150
_KIND, _SIZE_CODE, _MEMORY_CODE = 0x147, 0x148, 0x149
_SIZE_CODES, _MEMORY_CODES = range(9), range(6)
"""Of a cartridge's own bytes, and of the memory that it has beside them."""
_CLOCKS = (0x0F, 0x10)
"""Kinds of cartridges that have one."""
_TITLE = slice(0x134, 0x144)


class Machine:
    """One console, switched on."""

    def __init__(self, cartridge: bytes) -> None:
        """Raises ToolError when the bytes are no cartridge."""
        _check(cartridge)
        self.cartridge = hashlib.sha256(cartridge).hexdigest()
        self.title = cartridge[_TITLE].split(b"\0")[0].decode("ascii", "replace").strip()
        self.frame = 0
        """Frames since it was switched on."""
        self._has_clock = cartridge[_KIND] in _CLOCKS
        self._pyboy = _switched_on(cartridge)

    def run(self, frames: int) -> None:
        """Let so many frames pass; each of them is drawn."""
        for _ in range(frames):
            self._pyboy.tick(1, True, False)
            self.frame += 1

    @contextlib.contextmanager
    def down(self, buttons: Sequence[Button]) -> Iterator[None]:
        """Hold buttons down; none stays so, however the block ends."""
        for button in buttons:
            self.hold(button)
        try:
            yield
        finally:
            for button in buttons:
                self.let_go(button)

    def hold(self, button: Button) -> None:
        """From the next frame on."""
        self._pyboy.button_press(button)

    def let_go(self, button: Button) -> None:
        """Of one that is held, or not."""
        self._pyboy.button_release(button)

    @property
    def picture(self) -> "Image":
        """The screen as it is; reading it takes no time."""
        image: Image = self._pyboy.screen.image.copy()
        return image

    def memory(self, address: int, length: int) -> bytes:
        """What the processor sees there."""
        return bytes(self._pyboy.memory[at] for at in range(address, address + length))

    def save(self) -> State:
        """All there is of it."""
        return State(self.cartridge, self.frame, self._saved())

    def load(self, state: State) -> None:
        """Go on from there. Raises ToolError, and is as it was, when it cannot."""
        if state.cartridge != self.cartridge:
            raise ToolError(
                f"the state is of another cartridge (sha256 {state.cartridge[:16]}…), and in the "
                f"console is {self.title!r} (sha256 {self.cartridge[:16]}…)"
            )
        before = self._saved()
        try:
            self._load(state.content)
        except Exception as error:  # whatever PyBoy makes of bytes that it does not understand
            self._load(before)
            raise ToolError(f"the state is damaged, or of another version: {error}") from error
        self.frame = state.frame

    def stop(self) -> None:
        """Switch it off; nothing is written."""
        self._pyboy.stop(save=False)

    def _saved(self) -> bytes:
        data = io.BytesIO()
        self._pyboy.save_state(data)
        return data.getvalue()

    def _load(self, content: bytes) -> None:
        # A cartridge's clock would be put forward by the time since it was saved.
        if self._has_clock:
            self._pyboy.rtc_lock_experimental(True)
        try:
            data = io.BytesIO(content)
            self._pyboy.load_state(data)
            if more := len(content) - data.tell():
                raise ValueError(f"it has {more} bytes too many")
        finally:
            if self._has_clock:
                self._pyboy.rtc_lock_experimental(False)


def _check(cartridge: bytes) -> None:
    """What PyBoy does not look at, or not in words."""
    if len(cartridge) < _HEADER_END:
        raise ToolError(f"it is no cartridge: it has {len(cartridge)} bytes, less than a header")
    for name, at, codes in (
        ("size", _SIZE_CODE, _SIZE_CODES),
        ("memory", _MEMORY_CODE, _MEMORY_CODES),
    ):
        if cartridge[at] not in codes:
            raise ToolError(
                f"it is no cartridge, or a damaged one: its header has {cartridge[at]} as the "
                f"code of its {name}, and there are 0 to {codes[-1]}"
            )
    said = 2 * _BANK << cartridge[_SIZE_CODE]
    if len(cartridge) < said or len(cartridge) % _BANK:
        raise ToolError(
            f"it is no whole cartridge: it has {len(cartridge)} bytes, and its header says {said}"
        )


def _switched_on(cartridge: bytes) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of a window system that is not used here
        from pyboy import PyBoy
    try:
        pyboy = PyBoy(
            io.BytesIO(cartridge), window="null", sound_emulated=False, log_level="CRITICAL"
        )
    except Exception as error:  # whatever it makes of such a header
        raise ToolError(f"it is no cartridge that PyBoy plays: {error}") from error
    pyboy.set_emulation_speed(0)
    return pyboy
