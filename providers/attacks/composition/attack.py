"""The attack on n hypothetical releases, as the suite runs it."""

from dataclasses import replace

from providers import PROVIDERS
from providers.attacks.attack import Attack
from providers.attacks.composition.hypothetical import compose_hypothetical
from providers.attacks.figures import AttackResult
from providers.attacks.tables import AttackTables
from providers.errors import ProviderError
from providers.measures.shared.finding import NotApplicable


def _run(tables: AttackTables) -> dict[str, AttackResult]:
    options, method = tables.options, tables.method
    if options.releases < 2:
        raise NotApplicable("give the number of releases in 'releases', two or more")
    if method is None:
        raise NotApplicable("it is not known which service made the release, so that it cannot run again")
    provider = PROVIDERS[method.service]
    try:
        found = compose_hypothetical(
            tables.source,
            provider,
            provider.check(provider.params.model_validate(method.parameters), tables.source.schema),
            options.releases,
            options.secret,
            tables.stream,
            known=options.known,
            attacks=tables.attacks,
            confidence=options.confidence,
            unit=tables.unit_field,
            progress=tables.progress,
        )
    except ProviderError as error:
        raise NotApplicable(f"{method.service} cannot run again on these rows: {error}") from error
    if not found.attacks:
        reasons = "; ".join(f"'{name}': {reason}" for name, reason in found.left_out.items())
        raise NotApplicable(reasons or f"{method.service} changes no field")
    if found.sampled_rows is not None:
        tables.sampled["composition_rows"] = found.sampled_rows
    further = {"left_out": found.left_out} if found.left_out else {}
    return {name: replace(result, details=result.details | further) for name, result in found.attacks.items()}


ATTACK = Attack(
    name="composition",
    title="Several releases",
    meaning="Releases of the same rows with different seeds together restore the values of single rows.",
    source="Ganta, Kasiviswanathan and Smith 2008, doi:10.1145/1401890.1401926 (composition); Rowveil",
    run=_run,
    cost="n runs of the service, then O(n releases x rows)",
)
