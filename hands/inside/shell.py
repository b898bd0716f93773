"""What carries over between bash calls: the working directory and the exported environment.

Each call is a fresh bash, so that `exit`, `set -e`, `exec` or an open quote
cannot break the next one. At its end the shell writes down where it is and
what it exports; a shell that ended too abruptly for that changes nothing, and
the result says so.
"""

import contextlib
import errno
import os
import shlex
import stat
from pathlib import Path

from hands.inside import declared
from hands.inside.declared import Environment

_SCRIPT = (
    "__carpal_keep() {{ {{ set +x; }} 2>/dev/null;"
    ' [ -z "$__carpal_kept" ] || return 0;'
    " __carpal_kept=1;"
    " {{ builtin declare -Fx && if [ -s {state} ];"
    " then builtin printf '\\0' && builtin command -p env -0;"
    " else builtin printf '\\0' && builtin declare -px && builtin printf '\\0'; fi"
    " && builtin printf '%s\\0kept\\0' \"$PWD\"; }} 2>/dev/null >|{state} || :; }};"
    " __carpal_kept=;"
    " IFS= builtin read -r -d '' __carpal_command <{command};"
    " trap __carpal_keep EXIT;"
    ' builtin eval "$__carpal_command"\n\n'
    "{{ __carpal_status=$?; set +x; }} 2>/dev/null; __carpal_keep; exit $__carpal_status\n"
)
"""The command comes by file, since one argument holds at most 128 KiB, and is evaluated on line
1, where bash starts to count the lines it complains of. The empty line after it is for commands
whose quotes are open at their end: bash would take what follows for a part of them.

What is exported bash itself says, since another program takes as long as all the rest of a short
call. Only of functions it has no list that can be told apart: with them that program is asked."""

ALWAYS = {
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
"""Set for every call, unless the hand's own commands exported another value."""

_ONE_MAX = 128 * 1024 - 4096
_ALL_MAX = 1024 * 1024
"""Bytes the kernel lets one variable, and all of them, have; past it nothing starts any more."""
_SHOWN = 500
"""Characters of a path that a result tells."""
_STATE_MAX = 16 * 1024 * 1024
"""Bytes read of what the shell wrote down; beyond, it counts as ended abruptly."""
_NOT_CARRIED = {b"_", b"SHLVL", b"SHELLOPTS", b"BASHOPTS"}
"""Each shell has its own; options such as -e are no exports, even where they are exported."""
_FUNCTION = b"BASH_FUNC_"
"""How the name of an exported function begins."""
_NEEDED = {
    _FUNCTION + f"{name}%%".encode(): name
    for name in ("[", ":", "builtin", "exit", "return", "set", "trap")
}
"""Functions under the names of what `_SCRIPT` itself uses: carried over, they would break it."""


class Shell:
    """The shell as the next call will find it."""

    def __init__(self, workspace: Path, folder: Path, environment: dict[str, str]) -> None:
        """`folder` is where commands and states are passed, out of the hand's way."""
        self._workspace = workspace
        self._state = folder / "state"
        self._command = folder / "command"
        self._script = _SCRIPT.format(
            state=shlex.quote(str(self._state)), command=shlex.quote(str(self._command))
        )
        self._first = {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}
        self.cwd = workspace
        self.environment: Environment = {}
        self.reset()

    def reset(self) -> None:
        """Back to the workspace and the first environment."""
        self.cwd = self._workspace
        self.environment = dict(self._first)

    def prepare(self, command: str) -> tuple[list[str], Environment, str]:
        """The arguments and environment of the call's bash; and what to tell of a changed cwd."""
        note = ""
        if why := _unusable(self.cwd):
            note = f"{_short(self.cwd)} {why}; cwd reset to {self._workspace}"
            self.cwd = self._workspace
        self._state.unlink(missing_ok=True)
        self._command.unlink(missing_ok=True)
        # Made anew: a pipe that a command put there would hold up the hand for ever.
        with self._command.open("xb") as file:
            file.write(command.encode("utf-8", "surrogatepass"))
        for name, value in ALWAYS.items():
            self.environment.setdefault(name.encode(), value.encode())
        return ["bash", "--noprofile", "--norc", "-c", self._script], self.environment, note

    def carry(self) -> str:
        """Take over what the ended shell left; says what of it was not kept."""
        left = self._left()
        with contextlib.suppress(OSError):  # there is none, or the next call says what is wrong
            self._state.unlink()
        records = (left or b"").split(b"\0")
        before = f"cwd and exports are as before it: {self.cwd}"
        if len(records) < 4 or records[-2:] != [b"kept", b""]:
            # It was killed; or its disk is full, for one.
            why = "the shell ended abruptly" if left is None else "the shell's state was not kept"
            return f"{why}; {before}"
        try:
            exported = self._exported(*records[:-3])
        except ValueError:
            return f"the shell's state was not understood; {before}"
        environment: Environment = {}
        dropped: list[str] = []
        needed: list[str] = []
        room = _ALL_MAX
        for name, value in exported.items():
            if name in _NOT_CARRIED or name.startswith(b"__carpal"):
                continue
            if name in _NEEDED:
                needed.append(_NEEDED[name])
                continue
            size = len(name) + 1 + len(value)
            room -= size
            if size > _ONE_MAX or room < 0:
                dropped.append(name.decode("utf-8", "replace"))
            else:
                environment[name] = value
        self.environment = environment
        cwd = records[-3]
        self.cwd = Path(os.fsdecode(cwd)) if cwd.startswith(b"/") else self.cwd
        notes = [f"too large to carry over: {', '.join(dropped)}"] if dropped else []
        if needed:
            notes.append(f"functions not carried over, for they hide builtins: {', '.join(needed)}")
        return "; ".join(notes)

    def _exported(self, functions: bytes, *told: bytes) -> Environment:
        """What the shell said that it exports. Raises ValueError for what is not understood."""
        if functions:
            variables = (record.partition(b"=") for record in told)
            return {name: value for name, equals, value in variables if equals}
        as_they_came = {
            name: value
            for name, value in self.environment.items()
            if not declared.is_name(name) and not name.startswith(_FUNCTION)
        }
        return as_they_came | declared.environment(b"\0".join(told))

    def _left(self) -> bytes | None:
        """What the shell wrote down; None without it, or with another thing in its place."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(self._state, flags)
        except OSError:
            return None
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return None
            return os.read(handle, min(status.st_size, _STATE_MAX))
        finally:
            os.close(handle)


def _unusable(folder: Path) -> str:
    """Why no command can start there; empty when one can."""
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            return "is no folder any more"
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            return "is gone"
        return f"cannot be entered: {(error.strerror or 'failed').lower()}"
    return "" if os.access(folder, os.X_OK) else "cannot be entered: permission denied"


def _short(folder: Path) -> str:
    text = str(folder)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
