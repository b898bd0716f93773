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

_SHED = (
    "__carpal_shed() ("
    " set +eu; set -f; IFS=$' \\n';"
    " for __carpal_most in 120000 30000 4000 500; do"
    " for __carpal_name in $(builtin compgen -e); do"
    " __carpal_value=$__carpal_name${{!__carpal_name}};"
    " if (( ${{#__carpal_value}} > __carpal_most )); then"
    " builtin printf '__carpal_large=%s\\0' \"$__carpal_name\";"
    ' builtin export -n "$__carpal_name"; fi; done;'
    " for __carpal_name in $(builtin declare -Fx); do"
    ' __carpal_value=$(builtin declare -f "$__carpal_name");'
    " if (( ${{#__carpal_value}} > __carpal_most )); then"
    " builtin printf '__carpal_large=%s\\0' \"$__carpal_name\";"
    ' builtin export -nf "$__carpal_name"; fi; done;'
    " builtin command -p env -0 && builtin exit 0; done; builtin exit 1 );"
)
"""Where the exports are more than any program can be started with, `env` too: says them without
the large ones, larger and smaller ones until the rest will do, and which ones these are."""

_SCRIPT = (
    f"{_SHED} "
    "__carpal_keep() {{ {{ set +x; }} 2>/dev/null;"
    ' [ -z "$__carpal_kept" ] || return 0;'
    " __carpal_kept=1;"
    " {{ builtin declare -Fx && if [ -s {state} ];"
    " then builtin printf '\\0' && {{ builtin command -p env -0 || __carpal_shed; }};"
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

ONE_MAX = 128 * 1024 - 4096
ALL_MAX = 1024 * 1024
"""Bytes one variable, and all of them, may have here. Past what the kernel takes, which is little
more of one and twice as much of all, no program starts any more."""
_SHOWN = 500
"""Characters of a path or a name that a result tells."""
_NAMED = 20
"""Names of what was not carried over that a result tells."""
_STATE_MAX = 16 * 1024 * 1024
"""Bytes read of what the shell wrote down; beyond, it counts as ended abruptly."""
_NOT_CARRIED = {b"_", b"SHLVL", b"SHELLOPTS", b"BASHOPTS"}
"""Each shell has its own; options such as -e are no exports, even where they are exported."""
_FUNCTION = b"BASH_FUNC_"
"""How the name of an exported function begins."""
_LARGE = b"__carpal_large"
"""What `_SHED` calls a record with the name of what it left out."""
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
            note = f"{_short(str(self.cwd))} {why}; cwd reset to {self._workspace}"
            self.cwd = self._workspace
        self._state.unlink(missing_ok=True)
        self._command.unlink(missing_ok=True)
        # Made anew: a pipe that a command put there would hold up the hand for ever.
        with self._command.open("xb") as file:
            file.write(command.encode("utf-8", "surrogatepass"))
        for name, value in ALWAYS.items():
            self.environment.setdefault(name.encode(), value.encode())
        return ["bash", "--noprofile", "--norc", "-c", self._script], self.environment, note

    def for_a_person(self) -> Environment:
        """The environment that the next call would have, for who is in the hand beside it."""
        always = {name.encode(): value.encode() for name, value in ALWAYS.items()}
        return always | self.environment

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
        room = ALL_MAX
        if left_out := exported.pop(_LARGE, b""):
            dropped += left_out.decode("utf-8", "replace").splitlines()
        for name, value in sorted(exported.items(), key=_size):  # the small ones have their room
            if name in _NOT_CARRIED or name.startswith(b"__carpal"):
                continue
            if name in _NEEDED:
                needed.append(_NEEDED[name])
                continue
            size = _size((name, value))
            if size > min(ONE_MAX, room):
                dropped.append(name.decode("utf-8", "replace"))
                continue
            room -= size
            environment[name] = value
        self.environment = environment
        cwd = records[-3]
        self.cwd = Path(os.fsdecode(cwd)) if cwd.startswith(b"/") else self.cwd
        notes = [f"too large to carry over: {_listed(dropped)}"] if dropped else []
        if needed:
            notes.append(f"functions not carried over, for they hide builtins: {', '.join(needed)}")
        return "; ".join(notes)

    def _exported(self, functions: bytes, *told: bytes) -> Environment:
        """What the shell said that it exports. Raises ValueError for what is not understood."""
        if functions:
            variables = [record.partition(b"=") for record in told]
            large = b"\n".join(value for name, _, value in variables if name == _LARGE)
            return {name: value for name, equals, value in variables if equals} | {_LARGE: large}
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


def _size(variable: tuple[bytes, bytes]) -> int:
    return sum(map(len, variable)) + 2  # as the kernel counts, with = and the end


def _listed(names: list[str]) -> str:
    shown = ", ".join(_short(name) for name in names[-_NAMED:])
    more = len(names) - _NAMED
    return f"{shown}, and {more} more" if more > 0 else shown


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 2 :]}"
