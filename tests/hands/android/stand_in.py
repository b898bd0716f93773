"""Stands for `adb` and the phones behind it: no phone and no image of one can be had here.

Put as `adb` on the PATH, it keeps the phones in a file beside it: what is installed, what runs,
what is on the screen, what was touched and typed. A phone's shell is a real one, whose PATH has
this file by the names of the phone's programs: what is not quoted is run. What goes wrong a test
writes into `faults`, `{serial or "*": {verb: how}}`; `calls` has each call, with its process.
"""

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
HERE = HERE.parent if HERE.name == "phone" else HERE
PROGRAMS = ("input", "am", "pm", "cmd", "wm", "getprop", "screencap")
LAUNCHER = "com.example.home"
COLOURS = {LAUNCHER: (40, 60, 120), "com.example.notes": (250, 240, 200)}
OTHER, MARK = (230, 230, 230), (220, 20, 20)
MARK_SIZE = 40
NEW = """      keyevent [--longpress|--duration <duration to hold key down in ms>] <key code> ...
      keycombination [-t duration(ms)] <key code 1> <key code 2> ...
"""
OLD = "      keyevent [--longpress] <key code number or name> ...\n"


@contextmanager
def world(here: Path = HERE) -> Iterator[dict[str, Any]]:
    """What there is, to be changed by one at a time."""
    with (here / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = here / "world.json"
        found = json.loads(path.read_text())
        yield found
        new = path.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.rename(path)


def end(code: int, out: str = "", err: str = "") -> NoReturn:
    sys.stdout.write(out)
    sys.stderr.write(err)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def adb() -> NoReturn:
    arguments, serial, remote = sys.argv[1:], "", False
    while arguments and arguments[0] in ("-H", "-s"):
        serial = arguments[1] if arguments[0] == "-s" else serial
        remote = remote or arguments[0] == "-H"
        del arguments[:2]
    verb, *rest = arguments
    with (HERE / "calls").open("a") as calls:
        calls.write(json.dumps([os.getpid(), serial, verb, *rest]) + "\n")
    slips = fails(serial, verb, rest)
    with world() as found:
        if not found["server"] and remote:
            end(1, "", "* cannot start server on remote host\n")
        found["server"] = True
        phones = found["phones"]
        phone = phones.get(serial)
    if verb == "start-server":
        end(0, "", "* daemon not running; starting now at tcp:5037\n")
    if verb == "devices":
        lines = (f"{each}\t{phones[each]['state']}\n" for each in sorted(phones))
        end(0, f"List of devices attached\n{''.join(lines)}\n")
    if verb == "wait-for-device":
        while phone is None or phone["state"] != "device":
            time.sleep(0.05)
            phone = json.loads((HERE / "world.json").read_text())["phones"].get(serial)
        end(0)
    if phone is None:
        end(1, "", f"error: device '{serial}' not found\n")
    if phone["state"] != "device":
        end(1, "", f"error: device {phone['state']}\n")
    os.environ.update(PATH=f"{HERE}/phone:/usr/bin:/bin", PHONE=serial)
    os.chdir("/")
    shell = ["/bin/sh", "-c", " ".join(rest)]
    if not slips:
        os.execv(shell[0], shell)
    subprocess.run(shell, check=True)
    if slips == "goes":
        with world() as found:
            found["phones"][serial]["state"] = "offline"
    end(*((1, "", "error: closed\n") if slips == "closed" else (255, "", "")))


def fails(serial: str, verb: str, rest: list[str]) -> str:
    """Of what goes wrong only once the phone has done it, the name."""
    path = HERE / "faults"
    faults = json.loads(path.read_text()) if path.exists() else {}
    how = next((faults[who][verb] for who in (serial, "*") if verb in faults.get(who, {})), "")
    if how in ("hang", "stay"):
        child = subprocess.Popen(["sleep", "600"], start_new_session=how == "stay")
        with (HERE / "children").open("a") as children:
            children.write(f"{child.pid}\n")
    if how == "hang":
        time.sleep(600)
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    if how == "scold":
        while True:
            sys.stderr.write("x" * 65536)
    if how == "rubbish":
        sys.stdout.buffer.write(b"\x00\xff\x1b[2J rubbish\n")
        end(0)
    if how == "fail":
        end(1, "", "error: protocol fault (couldn't read status): Success\n")
    if how in ("cut", "damaged", "huge", "wide"):
        data = picture({"size": [100, 100], "front": LAUNCHER, "touched": []})
        if how in ("huge", "wide"):
            edge = 20_000 if how == "huge" else 10_000
            data = data[:16] + struct.pack(">II", edge, edge) + data[24:]
            data = data[:29] + struct.pack(">I", zlib.crc32(data[12:29])) + data[33:]
        if how == "damaged":
            data = data[:60] + bytes([data[60] ^ 1]) + data[61:]
        sys.stdout.buffer.write(data[:-20] if how == "cut" else data)
        end(0)
    return how if how in ("goes", "closed", "slips") else ""


def on_the_phone(name: str, arguments: list[str]) -> NoReturn:
    serial = os.environ["PHONE"]
    with world() as found:
        phone = found["phones"][serial]
        phone["said"].append([name, *arguments])
        code, out = DOES[name](phone, arguments)
    if isinstance(out, bytes):
        sys.stdout.buffer.write(out)
        out = ""
    end(code, out)


def _usage(phone: dict[str, Any]) -> str:
    mute = HERE / "mute"
    if mute.exists():  # once
        mute.unlink()
        return ""
    return OLD if phone["old"] else NEW


def does_input(phone: dict[str, Any], arguments: list[str]) -> tuple[int, str]:
    verb, *rest = arguments or [""]
    if verb in phone["once"]:
        phone["once"].remove(verb)
        return 255, "Error: not this time\n"
    if verb in phone["stuck"]:
        return 255, "Error: no such thing\n"
    if verb == "tap":
        phone["touched"].append([int(each) for each in rest])
    elif verb == "swipe":
        phone["swiped"].append([int(each) for each in rest])
    elif verb == "text":
        if not rest[0].isascii():
            return 255, "Error: java.lang.NullPointerException\n"
        phone["typed"] += rest[0].replace("%s", " ")
    elif verb == "keyevent":
        held = 0
        if rest[0] == "--duration":
            held, rest = int(rest[1]), rest[2:]
        phone["keys"] += [[each, held] for each in rest]
        if rest[-1] == "KEYCODE_HOME":
            phone["front"] = LAUNCHER
        if rest[-1] == "KEYCODE_ENTER":
            phone["typed"] += "\n"
    elif verb == "keycombination" and not phone["old"]:
        phone["keys"].append(["+".join(rest), 0])
    else:
        return 255, f"Usage: input <command>\n{_usage(phone)}"
    return 0, ""


def does_am(phone: dict[str, Any], arguments: list[str]) -> tuple[int, str]:
    if arguments[0] == "force-stop":
        phone["running"] = [each for each in phone["running"] if each != arguments[1]]
        if phone["front"] == arguments[1]:
            phone["front"] = LAUNCHER
        return 0, ""
    package = arguments[-1].partition("/")[0]
    if package in phone["broken"]:
        return 0, "Starting: Intent {}\nError type 3\nError: Activity class does not exist.\n"
    phone["front"] = package
    phone["running"] = [*phone["running"], package]
    return 0, f"Starting: Intent {{}}\nStatus: ok\nActivity: {arguments[-1]}\nComplete\n"


def does_pm(phone: dict[str, Any], arguments: list[str]) -> tuple[int, str]:
    return 0, "".join(f"package:{each}\n" for each in phone["own"])


def does_cmd(phone: dict[str, Any], arguments: list[str]) -> tuple[int, str]:
    lines = "".join(
        f"  Activity #{at}:\n    priority=0 match=0x108000\n    {each}/.Main\n"
        for at, each in enumerate(phone["apps"])
    )
    return 0, f"{len(phone['apps'])} activities found:\n{lines}"


def does_getprop(phone: dict[str, Any], arguments: list[str]) -> tuple[int, str]:
    every = phone["properties"]
    if arguments:
        return 0, every.get(arguments[0], "") + "\n"
    return 0, "".join(f"[{name}]: [{value}]\n" for name, value in every.items())


def does_screencap(phone: dict[str, Any], arguments: list[str]) -> tuple[int, bytes]:
    return 0, picture(phone)


def picture(phone: dict[str, Any]) -> bytes:
    """A PNG: the colour of what is in front, and a mark where it was touched last."""
    width, height = phone["size"]
    colour = bytes(COLOURS.get(phone["front"], OTHER))
    rows = [b"\0" + colour * width] * height
    for x, y in phone["touched"][-1:]:
        left, right = max(0, x - MARK_SIZE // 2), min(width, x + MARK_SIZE // 2)
        row = b"\0" + colour * left + bytes(MARK) * (right - left) + colour * (width - right)
        for at in range(max(0, y - MARK_SIZE // 2), min(height, y + MARK_SIZE // 2)):
            rows[at] = row
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(rows), 1)),
        (b"IEND", b""),
    )
    made = b"\x89PNG\r\n\x1a\n"
    for kind, data in parts:
        made += struct.pack(">I", len(data)) + kind + data
        made += struct.pack(">I", zlib.crc32(kind + data))
    return made


DOES: dict[str, Any] = {
    "input": does_input,
    "am": does_am,
    "pm": does_pm,
    "cmd": does_cmd,
    "wm": lambda _phone, _arguments: (0, ""),
    "getprop": does_getprop,
    "screencap": does_screencap,
}

if __name__ == "__main__":
    called = Path(sys.argv[0]).name
    if called == "adb":
        adb()
    on_the_phone(called, sys.argv[1:])
