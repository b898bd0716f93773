"""The processes of a browser hand, as the machine sees them."""

from pathlib import Path


def processes(supervisor: int) -> dict[int, list[str]]:
    """Those below a hand's supervisor, with their arguments."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        try:
            if pid == supervisor or not _below(pid, supervisor):
                continue
            raw = (path / "cmdline").read_bytes()
        except OSError:
            continue
        # Chromium writes a process's whole line as one.
        found[pid] = raw.rstrip(b"\0").decode("utf-8", "replace").replace("\0", " ").split(" ")
    return found


def _below(pid: int, supervisor: int) -> bool:
    while pid > 1 and pid != supervisor:
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return pid == supervisor


def browsers(supervisor: int, kind: str = "") -> list[int]:
    """The browser's own process, or those of a kind, as `renderer`."""
    found = []
    for pid, arguments in processes(supervisor).items():
        if arguments[0].endswith("/chromium"):
            given = next((each for each in arguments if each.startswith("--type=")), "")
            if given == (f"--type={kind}" if kind else ""):
                found.append(pid)
    return found
