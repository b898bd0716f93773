"""Programs that see files of ours in /etc, while the machine keeps its own.

For those who say there which user ids may be mapped. Needs root.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path


def command(folder: Path, texts: Mapping[str, str], given: Sequence[str]) -> list[str]:
    """The command line that runs `given` with these texts in files of /etc, kept in `folder`.

    What others mount is seen; the process is the one that is started, not a child of it.
    """
    binds = []
    for name, text in texts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
        Path("/etc", name).touch()  # there must be something to cover
        binds.append(f"mount --bind {folder / name} /etc/{name}")
    script = " && ".join([*binds, 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "slave", "sh", "-c", script, "sh", *given]
