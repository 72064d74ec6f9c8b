"""``python start.py COMMAND ...``: ``python -m app COMMAND ...``, with the kernels that the image brings.

The image is read-only and belongs to root; numba wants to write to the folder of its kernels, and runs
what it finds there. So the kernels compiled with the image are copied, once, into the private folder of
the user who runs the service. On another kind of processor than the image was built on numba does not take
them, and compiles its own beside them.
"""

import os
import sys
import tempfile
from pathlib import Path

APPLICATION = Path(__file__).resolve().parent.parent
SHIPPED = APPLICATION.with_name("kernels")


def own_kernels() -> Path:
    """The folder that `providers` keeps kernels in, where XDG_CACHE_HOME is set, as it is in the image."""
    return Path(os.environ["XDG_CACHE_HOME"]) / "rowveil" / "kernels"


def fill(folder: Path, shipped: Path) -> int:
    """Copy what is not there yet; how many files that were.

    Several containers may share the folder: a file is there as a whole, or not at all.
    """
    copied = 0
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for source in sorted(shipped.rglob("*.nb[ic]"), key=lambda path: path.suffix):  # an index after its code
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
    """Become the service."""
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
    os.execv(sys.executable, [sys.executable, "-m", "app", *arguments])  # noqa: S606 - it is to be this very process


if __name__ == "__main__":
    main(sys.argv[1:])
