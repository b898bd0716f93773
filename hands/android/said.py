"""What adb and a phone say, read: bytes of somebody else's, of which little is believed. Pure."""

import re
from collections.abc import Mapping

_HEAD = b"List of devices attached"
READY = "device"
"""The state of a phone that answers."""
_WHY: Mapping[str, str] = {
    "": "is not connected: plug it in, or `adb connect` it",
    "offline": "is offline: plug it in again, or restart it",
    "unauthorized": "has not allowed this machine: unlock it, and accept what its screen asks",
    "authorizing": "is being asked whether it allows this machine: try again in a moment",
    "connecting": "is being connected: try again in a moment",
    "no permissions": "may not be opened by the daemon's user: see adb's udev rules (Debian's "
    "android-sdk-platform-tools-common, and the group plugdev)",
}
_NO_ANSWER = 255
MAY_COME = ("", "offline", "authorizing", "connecting")
"""States that pass by themselves, when a phone starts anew."""
PROPERTIES: Mapping[str, str] = {
    "model": "ro.product.model",
    "manufacturer": "ro.product.manufacturer",
    "version": "ro.build.version.release",
    "sdk": "ro.build.version.sdk",
    "abi": "ro.product.cpu.abi",
}
"""Labels, and the phone's properties that they are."""
LINE_MAX, _LABEL_MAX = 300, 40
_PACKAGE = r"[A-Za-z][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)+"
_ACTIVITY = re.compile(rf"({_PACKAGE})/(\.?[A-Za-z0-9_$]+(?:\.[A-Za-z0-9_$]+)*)")
_PROPERTY = re.compile(r"\[([^\]]+)\]: \[(.*)\]")
_SERIAL = re.compile(r"[!-~]+")
_UNIT_MAX = 128
"""Characters of a unit's id: a phone whose serial makes a longer one cannot be named."""
_NAME = re.compile(_PACKAGE)
_PLAIN = re.compile(r"[A-Za-z0-9-]")
_CODE = re.compile(r"_([0-9a-f]{2})")


def text(data: bytes) -> str:
    """As text that holds nothing to mislead a terminal or a reader."""
    plain = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in plain)


def line(data: bytes) -> str:
    """The last line of it that says something, not too long."""
    lines = [each.strip() for each in text(data[-4096:]).splitlines() if each.strip()]
    return lines[-1][:LINE_MAX] if lines else ""


def states(data: bytes) -> dict[str, str] | None:
    """The state of each phone of `adb devices`, by its serial; None when it is no such list."""
    _head, found, rest = data.partition(_HEAD)
    if not found:
        return None
    phones = {}
    for each in text(rest).splitlines():
        serial, tab, state = each.partition("\t")
        if tab and _SERIAL.fullmatch(serial) and len(unit_id(serial)) <= _UNIT_MAX:
            phones[serial] = state.partition("(")[0].partition(";")[0].strip()
    return phones


def why(serial: str, state: str) -> str:
    """Why a phone in a state takes no calls, and what to do."""
    reason = _WHY.get(state, f"is in the state {state[:40]!r}: restart it")
    return f"the phone {serial} {reason}"


def cut_off(code: int, out: bytes, err: bytes) -> str:
    """Why it is adb that failed and not the phone, which may have done all; empty when it did not.

    adb's own words begin so, in small letters; when the phone goes in the middle it has none, and
    the code for an answer that never came.
    """
    told = line(err)
    if told.startswith(("error: ", "adb: ")):
        return told
    return "it lost the phone meanwhile" if code == _NO_ANSWER and not line(err or out) else ""


def properties(data: bytes) -> dict[str, str]:
    """A phone's, of `getprop`: a line each, `[name]: [value]`."""
    found = (_PROPERTY.fullmatch(each) for each in text(data).splitlines())
    return {each[1]: each[2] for each in found if each}


def labels(serial: str, state: str, told: Mapping[str, str]) -> dict[str, str]:
    """A phone's, of what it says of itself."""
    found = {"os": "android", "serial": serial, "state": state}
    for name, known in PROPERTIES.items():
        value = told.get(known, "").strip()
        plain = "".join(each for each in value if " " <= each <= "~")[:_LABEL_MAX]
        if plain:
            found[name] = plain
    return found


def unit_id(serial: str) -> str:
    """A serial as the id of a unit: what such an id may not have is its code, `_3a` for `:`."""
    return "".join(each if _PLAIN.fullmatch(each) else f"_{ord(each):02x}" for each in serial)


def serial_of(unit: str) -> str:
    """The serial whose id that is."""
    return _CODE.sub(lambda each: chr(int(each[1], 16)), unit)


def apps(data: bytes) -> dict[str, str]:
    """What can be launched, of a list of activities: package → `package/activity`, the first."""
    found: dict[str, str] = {}
    for each in text(data).splitlines():
        if match := _ACTIVITY.fullmatch(each.strip()):
            found.setdefault(match[1], match[0])
    return found


def packages(data: bytes) -> list[str]:
    """Those of `pm list packages`."""
    named = (each.strip().partition("package:") for each in text(data).splitlines())
    return [each[2] for each in named if not each[0] and _NAME.fullmatch(each[2])]
