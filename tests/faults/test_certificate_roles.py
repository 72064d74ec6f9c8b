"""A Dask cluster's processes talk to each other only in the roles that their certificates say."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed.comm.core import CommClosedError, connect, listen

from app.engine.certificate_roles import ROLES, SCHEDULER, SERVICE, WORKER, CheckedSecurity, roles_of
from deploy.certificates import ensure_authority, ensure_certificate
from tests.faults.running import PATIENCE

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""Dask leaves the sockets of a refused connection to the collector."""

ALLOWED = {
    (SERVICE, SCHEDULER),
    (WORKER, SCHEDULER),
    (WORKER, WORKER),
    (SCHEDULER, WORKER),
}
"""Role that connects, and role that it connects to."""


@pytest.fixture(autouse=True)
def sockets_collected() -> Iterator[None]:
    """Collect them here, and not in the test of another module."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of all roles, by one authority, and one without a role."""
    made = tmp_path_factory.mktemp("certificates")
    authority = ensure_authority(made / "authority")
    for role in (*ROLES, "stranger"):
        ensure_certificate(made / role, [role, "localhost"], authority)
    return made


def security(folder: Path, held: str, played: str) -> CheckedSecurity:
    """Configuration of a process that plays a role with the certificate of another one."""
    files = {}
    for side in ("client", "worker", "scheduler"):
        files[f"tls_{side}_cert"] = str(folder / held / "tls.pem")
        files[f"tls_{side}_key"] = str(folder / held / "tls.key")
    return CheckedSecurity(played, tls_ca_file=str(folder / "authority" / "ca.pem"), **files)


async def answers(caller: CheckedSecurity, called: CheckedSecurity, patience: float = 1) -> bool:
    """Whether a message from one process to the other is answered; refused callers try for ``patience`` s."""

    async def answer(comm: Any) -> None:
        await comm.write(await comm.read())
        await comm.close()

    async with listen("tls://127.0.0.1:0", answer, **called.get_listen_args("worker")) as listener:
        try:
            given = caller.get_connection_args("worker")
            comm = await connect(listener.contact_address, timeout=patience, **given)
            try:
                await comm.write("hello")
                return bool(await comm.read() == "hello")
            finally:
                await comm.close()
        except (CommClosedError, OSError):
            return False


@pytest.mark.parametrize("called", ROLES)
@pytest.mark.parametrize("caller", ROLES)
def test_each_role_reaches_only_those_that_it_works_with(folder: Path, caller: str, called: str) -> None:
    allowed = (caller, called) in ALLOWED
    patience = PATIENCE if allowed else 1
    done = asyncio.run(answers(security(folder, caller, caller), security(folder, called, called), patience))
    assert done is allowed


@pytest.mark.parametrize("held", [WORKER, SERVICE, "stranger"])
def test_nobody_takes_the_place_of_the_scheduler(folder: Path, held: str) -> None:
    """The service sends nothing to a process with another certificate of the same authority."""
    false = security(folder, held, SCHEDULER)
    assert not asyncio.run(answers(security(folder, SERVICE, SERVICE), false))


def test_a_stranger_of_the_same_authority_reaches_no_scheduler_and_no_worker(folder: Path) -> None:
    for called in (SCHEDULER, WORKER):
        stranger = security(folder, "stranger", WORKER)
        assert not asyncio.run(answers(stranger, security(folder, called, called)))


def test_a_certificate_without_names_has_no_role() -> None:
    assert roles_of(None) == roles_of({}) == set()
    assert roles_of({"subjectAltName": (("DNS", "urn:rowveil:role:worker"),)}) == set()
