"""Parameters of the benchmarks are accepted: a stricter check of a service would stop `make bench`."""

import pytest

from benchmarks import waiting
from benchmarks.methods import kernels, memory, out_of_core
from providers import PROVIDERS

TABLE = kernels.people_table(100)
CASES = {
    **{f"out of core, {name}": (case, out_of_core.FIELDS) for name, case in out_of_core.CASES.items()},
    **{
        f"waiting, {name}": ((service, parameters), tuple(TABLE.column_names))
        for name, (service, _, parameters, _) in waiting.CASES.items()
    },
    **{
        f"kernels, {case.name}": ((case.service, case.parameters), tuple(TABLE.column_names))
        for case in kernels.cases(TABLE)
    },
}


@pytest.mark.parametrize("name", CASES)
def test_the_service_accepts_the_parameters(name: str) -> None:
    (service, parameters), fields = CASES[name]
    provider = PROVIDERS[service]
    provider.check(provider.params.model_validate(parameters), TABLE.select(fields).schema)


def test_peaks_of_memory_are_those_of_timed_cases() -> None:
    assert set(memory.CASES) <= {case.name for case in kernels.cases(TABLE)}
