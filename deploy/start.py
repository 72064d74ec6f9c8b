"""Run ``python -m app COMMAND ...`` with the kernels in the image: ``python start.py COMMAND ...``.

The image is read-only and belongs to root, while numba writes to its kernel cache and executes its content.
The kernels compiled with the image are therefore copied once into the private folder of the service's user.
On a processor that differs from the one of the image build, numba ignores them and compiles its own next to
them.
"""

import os
import sys
import tempfile
from pathlib import Path

APPLICATION = Path(__file__).resolve().parent.parent
SHIPPED = APPLICATION.with_name("kernels")


def own_kernels() -> Path:
    """Return the folder of the kernel cache of `providers`, which the image sets by XDG_CACHE_HOME."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "rowveil" / "kernels"


def fill(folder: Path, shipped: Path) -> int:
    """Copy missing files; return their number.

    Several containers may share the folder, so each file is written atomically.
    """
    copied = 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for source in sorted(shipped.rglob("*.nb[ic]"), key=lambda path: path.suffix):  # index after code
        target = folder / source.relative_to(shipped)
        if target.exists():
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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
