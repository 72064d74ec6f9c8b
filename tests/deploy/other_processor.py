"""Run services on an emulated processor with kernels that this one compiled: ``make processor-check``.

Needs qemu-user (Debian: ``apt-get install qemu-user``). Kernels are compiled here for the baseline
``x86-64-v3``, or taken from the cache. Then the same runs are repeated on an emulated Haswell, the first
processor that has the baseline. They must load every kernel from the cache, compile none, and give the same
bytes. An emulated kernel takes minutes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASELINE = "x86-64-v3"
PROCESSOR = "Haswell"

RUN = """
import json, sys

from llvmlite.binding import get_host_cpu_name
from numba.core import event

import numpy as np
import providers
import pyarrow as pa
from providers.kernel_progress import kernels_of
from providers.tables.digest import table_digest
from providers.warm import _PARAMETERS, warm
from tests.naive.agreement import swap

class Compiled(event.Listener):
    names = []

    def on_start(self, event):
        kernel = event.data["dispatcher"].py_func
        if kernel.__module__.startswith("providers."):
            self.names.append(f"{kernel.__module__}.{kernel.__qualname__}")

    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
services = sys.argv[1:]
kernels = kernels_of(providers)
warm(services)
random = np.random.default_rng(1)
fields = {name: random.integers(0, 99, 400) for name in ("plain", "int8", "int16", "int32", "int64")}
table = pa.table({
    **fields, "wide": random.integers(0, 2**60, 400), "class": fields["int8"] % 3,
    "string": fields["plain"].astype(str), "halffloat": random.random(400).astype(np.float16),
    "float": random.random(400).astype(np.float32), "double": random.random(400),
})
digests = {}
for service in services:
    digests[service] = table_digest(swap(service, table, _PARAMETERS[service][0]).table)
loaded = sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels.values())
print(json.dumps({
    "processor": get_host_cpu_name(), "baseline": providers.KERNEL_CPU.name, "loaded": loaded,
    "compiled": Compiled.names, "digests": digests,
}))
"""


def run(services: list[str], cache: Path, emulator: list[str]) -> dict[str, Any]:
    """Run the services and return what was loaded and compiled, and the digests of the results."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(cache),
        "NUMBA_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "ROWVEIL_KERNEL_CPU": BASELINE,
    }
    # The interpreter itself, since an emulator runs no script and no link into another root.
    code = f"import site, sys; site.addsitedir({sysconfig.get_path('purelib')!r})\n{RUN}"
    command = [*emulator, str(Path(sys.executable).resolve()), "-c", code, *services]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Compare both runs; return 0 if the emulated processor compiled nothing and gave the same bytes."""
    parser = argparse.ArgumentParser(prog="make processor-check", description=__doc__)
    parser.add_argument("services", nargs="*", default=["CDSWAP"])
    parser.add_argument("--cache", type=Path, default=Path("var/processor-check").resolve())
    given = parser.parse_args()
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        raise SystemExit("qemu-x86_64 is missing: apt-get install qemu-user")
    given.cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    run(given.services, given.cache, [])  # compiles
    own = run(given.services, given.cache, [])
    other = run(given.services, given.cache, [emulator, "-cpu", PROCESSOR])
    for each in (own, other):
        print(
            f"{each['processor']}: {each['loaded']} kernels for {each['baseline']} loaded, "
            f"{len(each['compiled'])} compiled: {', '.join(each['compiled'])}"
        )
    equal = own["digests"] == other["digests"]
    print(f"{', '.join(given.services)}: results {'equal' if equal else 'DIFFER'}")
    return 0 if equal and not other["compiled"] and other["loaded"] == own["loaded"] else 1


if __name__ == "__main__":
    sys.exit(main())
