"""The image is built by its steps as they stand, and its container runs as nobody on a read-only root.

Installed packages and compiled kernels are lent by this machine, so that the image's processor is this one.
If IMAGE_CHECK is ``full``, the lock is installed and everything compiled for the image's own baseline, which
takes minutes (``make image-check``).
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from deploy.start import fill
from providers import KERNEL_CPU
from providers.kernel_cpu import choose
from tests.deploy.image import REPOSITORY, Root, Stage, build, can_mount, health_command, lend_kernels, stages

DOCKERFILE = REPOSITORY / "Dockerfile"
USER = "10001:10001"
FULL = os.environ.get("IMAGE_CHECK") == "full"
ARGUMENTS = {} if FULL else {"KERNEL_CPU": os.environ.get("ROWVEIL_KERNEL_CPU", "native")}
PATIENCE = 120.0

pytestmark = [pytest.mark.faults, pytest.mark.timeout(3600 if FULL else 300)]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Built root of the image."""
    if not can_mount():
        pytest.skip("needs root, and mounts of its own")
    folder = tmp_path_factory.mktemp("image")
    if FULL:
        wheels = tmp_path_factory.mktemp("wheels")
        download = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--require-hashes",
            "--dest",
            str(wheels),
        ]
        subprocess.run([*download, "--requirement", "requirements.lock"], cwd=REPOSITORY, check=True)
        built = Root(folder, None, wheels)
        build(built, stages(DOCKERFILE))
    else:
        built = Root(folder, Path(sysconfig.get_path("purelib")), None)
        place = folder / "opt/rowveil/cache/rowveil" / KERNEL_CPU.folder
        lend_kernels(place, Path(os.environ["NUMBA_CACHE_DIR"]))
        build(built, stages(DOCKERFILE, ARGUMENTS), skipped=["requirements.lock"])
    return built


@pytest.fixture
def volumes(tmp_path: Path) -> dict[str, Path]:
    """New volumes for the paths that the Dockerfile declares, with their owner."""
    places = json.loads(container().last("VOLUME"))
    found = {place: tmp_path / place.strip("/").replace("/", "-") for place in places if place != "/tmp"}  # noqa: S108 - a tmpfs
    for folder in found.values():
        folder.mkdir(mode=0o700)
        os.chown(folder, *map(int, USER.split(":")))
    return found


def container() -> Stage:
    return stages(DOCKERFILE, ARGUMENTS)[-1]


def environment(**settings: str) -> dict[str, str]:
    given = container().environment()
    return given | {"PATH": given["PATH"].replace("$PATH", "/usr/local/bin:/usr/bin")} | settings


def expected_folder() -> str:
    return choose(container().environment()["ROWVEIL_KERNEL_CPU"]).folder


def test_the_image_is_built_for_a_baseline_unless_the_build_says_otherwise() -> None:
    """Both stages agree on it: the one that compiles and the one that runs."""
    by_default = [stage.environment()["ROWVEIL_KERNEL_CPU"] for stage in stages(DOCKERFILE)]
    assert by_default == ["baseline", "baseline"]
    on_request = stages(DOCKERFILE, {"KERNEL_CPU": "native"})
    wanted = [stage.environment()["ROWVEIL_KERNEL_CPU"] for stage in on_request]
    assert wanted == ["native", "native"]


@contextmanager
def running(root: Root, volumes: dict[str, Path]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the container's command as its user on a read-only root; yield its port once it is ready."""
    assert container().last("USER") == USER
    command = [*json.loads(container().last("ENTRYPOINT")), *json.loads(container().last("CMD"))]
    settings = environment(ROWVEIL_PORT="0", ROWVEIL_WORKERS="1", ROWVEIL_WORKER_THREADS="1")
    line = root.command(
        command, settings, folder=container().last("WORKDIR"), user=USER, volumes=volumes, read_only=True
    )
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r"http://0\.0\.0\.0:(\d+)", process.stdout.readline())
        assert ready is not None
        yield ready[1], process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_the_container_runs_as_nobody_on_a_read_only_root(root: Root, volumes: dict[str, Path]) -> None:
    """It passes its own health check, compiles nothing, and exits with 0 after SIGTERM."""
    cache = root.folder / "opt/rowveil/cache/rowveil"
    suffixes = (".nbc", ".compiled")
    shipped = {path.relative_to(cache) for path in cache.rglob("*") if path.suffix in suffixes}
    assert {path.suffix for path in shipped} == set(suffixes)
    assert {path.parts[0] for path in shipped} == {expected_folder()}
    for _ in range(2):  # on a new volume, and on an existing one
        with running(root, volumes) as (port, process):
            status = Path(f"/proc/{process.pid}/status").read_text()
            assert re.search(r"^Uid:\s+10001\s+10001", status, re.MULTILINE)
            health = [word.replace(":8080", f":{port}") for word in health_command(container())]
            line = root.command(health, environment(), user=USER, read_only=True)
            assert subprocess.run(line, check=False, timeout=PATIENCE).returncode == 0
            assert "kernels" not in httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE).json()
            mount = Path(f"/proc/{process.pid}/mounts").read_text().splitlines()
            options = {line.split()[1]: line.split()[3].split(",") for line in mount}
            assert "ro" in options["/"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
    volume = volumes["/var/cache/rowveil"] / "rowveil"
    assert {path.relative_to(volume) for path in volume.rglob("*") if path.suffix in suffixes} == shipped


def test_a_health_check_fails_where_nobody_answers(root: Root) -> None:
    health = [word.replace(":8080", ":1") for word in health_command(container())]
    line = root.command(health, environment(), user=USER, read_only=True)
    assert subprocess.run(line, check=False, capture_output=True, timeout=PATIENCE).returncode != 0


def test_a_container_that_cannot_keep_its_kernels_says_so(root: Root) -> None:
    command = json.loads(container().last("ENTRYPOINT"))
    line = root.command([*command, "serve"], environment(), user=USER, read_only=True)
    ended = subprocess.run(line, check=False, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"the folder of kernels /var/cache/rowveil\S* cannot be written .*10001 may write to\n", ended.stderr
    )


def test_a_kernel_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    """Otherwise each start on a full volume would fill it further."""
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    shipped.mkdir()
    (shipped / "a.nbi").write_bytes(bytes(100_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            fill(own, shipped)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert list(own.iterdir()) == []


def test_kernels_are_copied_once_and_whole(tmp_path: Path) -> None:
    """Existing files stay, also a kernel that was compiled here."""
    shipped, own = tmp_path / "shipped", tmp_path / "own"
    (shipped / "grid-1").mkdir(parents=True)
    for name in ("a.nbi", "a.1.nbc", "b.nbi", "states.json"):
        (shipped / "grid-1" / name).write_text(f"shipped {name}")
    (shipped / "grid.lock").touch()
    (own / "grid-1").mkdir(parents=True)
    (own / "grid-1" / "b.nbi").write_text("its own")
    assert fill(own, shipped) == 3
    copied = sorted(path.name for path in own.rglob("*") if path.is_file())
    assert copied == ["a.1.nbc", "a.nbi", "b.nbi", "states.json"]
    assert (own / "grid-1" / "b.nbi").read_text() == "its own"
    assert fill(own, shipped) == 0
    assert fill(tmp_path / "new", shipped) == 4
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "new").rglob("*"))
