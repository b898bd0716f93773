"""What a daemon's machine is asked for: the room of the base install, and the time of an import.

The wheel is built and installed in an environment of its own, from the registry, without pip.
The last line is one JSON object: `base_mb`, what the wheels unpack to, of 1,000,000 bytes;
`byte_code_mb`, what pip adds to it by compiling every file, also those that no daemon runs; and
`import_s`, the time that `import hands.api` takes in a new process, the median of some.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.figures import Goal, against

_ROOT = Path(__file__).parent.parent
_TIMES = 15
_GOALS = {"base_mb": Goal(at_most=50), "import_s": Goal(at_most=0.3)}
_IMPORT = """
import time
began = time.perf_counter()
import hands.api
print(time.perf_counter() - began)
"""


def measure(folder: Path) -> dict[str, float]:
    """Install into `folder`, and look."""
    python = _install(folder)
    site = next((folder / "base").glob("lib/python*/site-packages"))
    files = [path for path in site.rglob("*") if path.is_file()]
    made = sum(path.lstat().st_size for path in files if path.suffix == ".pyc")
    whole = sum(path.lstat().st_size for path in files)
    print(f"{len(files):,} files, {whole / 2**20:.2f} MiB with byte code", flush=True)
    times = [float(_run(python, "-c", _IMPORT)) for _ in range(_TIMES + 1)][1:]  # one warms up
    print(f"import hands.api: {min(times):.3f} to {max(times):.3f} s", flush=True)
    return {
        "base_mb": round((whole - made) / 1e6, 1),
        "byte_code_mb": round(made / 1e6, 1),
        "import_s": round(statistics.median(times), 3),
    }


def _install(folder: Path) -> Path:
    built, python = folder / "dist", folder / "base/bin/python"
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", built, _ROOT)
    _run(sys.executable, "-m", "venv", "--without-pip", folder / "base")
    (wheel,) = built.glob("*.whl")
    _run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    return python


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        command, cwd="/", capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[-1]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="carpal-bench-") as folder:
        figures = measure(Path(folder))
    against(figures, _GOALS)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
