"""Run ``python -m app COMMAND ...`` with the kernels in the image: ``python start.py COMMAND ...``.

The image is read-only and belongs to root, while numba writes to its kernel cache and executes its content.
The kernels compiled with the image are therefore copied once into the private folder of the service's user.
They run on every processor that has the instructions of the image's baseline (`providers.kernel_cpu`).
Another processor compiles its own kernels into a folder next to them.
"""

import os
import signal
import sys
import tempfile
from pathlib import Path

APPLICATION = Path(__file__).resolve().parent.parent
_ORDER = (".nbc", ".nbi", ".json", ".compiled")
"""Suffixes of the files to copy: code, the indexes that name it, states of the sources, the record of all."""
SHIPPED = APPLICATION.with_name("cache") / "rowveil"


def own_kernels() -> Path:
    """Return the parent of the kernel caches of `providers`, which the image sets by XDG_CACHE_HOME."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "rowveil"


def fill(folder: Path, shipped: Path) -> int:
    """Copy missing files; return their number.

    Several containers may share the folder, so each file is written atomically.
    """
    copied = 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = sorted(shipped.rglob("*"))
    for source in found:
        if source.is_dir():
            (folder / source.relative_to(shipped)).mkdir(mode=0o700, exist_ok=True)
    files = [source for source in found if source.suffix in _ORDER]
    for source in sorted(files, key=lambda path: _ORDER.index(path.suffix)):
        target = folder / source.relative_to(shipped)
        if target.exists():
            continue
        draft = tempfile.NamedTemporaryFile(dir=target.parent, delete=False)  # noqa: SIM115 - it is closed below
        try:
            with draft:
                draft.write(source.read_bytes())
            Path(draft.name).replace(target)
        except BaseException:
            Path(draft.name).unlink()
            raise
        copied += 1
    return copied


def main(arguments: list[str]) -> None:
    """Replace this process by the service."""
    # Without a handler the first process of a container does not receive the signal.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    folder = own_kernels()
    try:
        fill(folder, SHIPPED)
    except OSError as error:
        print(
            f"the folder of kernels {folder} cannot be written ({error.strerror}): "
            f"mount a volume there that user {os.getuid()} may write to",
            file=sys.stderr,
        )
        sys.exit(1)
    os.chdir(APPLICATION)
    os.execv(sys.executable, [sys.executable, "-m", "app", *arguments])  # noqa: S606 - exec replaces this very process


if __name__ == "__main__":
    main(sys.argv[1:])
