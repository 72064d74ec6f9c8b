"""Problem documents of the error classes."""

from collections.abc import Iterator

from app.errors import AppError, invalid_request_problem, problem_codes
from providers.errors import ProviderError


def kinds(base: type[AppError]) -> Iterator[type[AppError]]:
    yield base
    for kind in base.__subclasses__():
        yield from kinds(kind)


def test_each_code_has_one_title() -> None:
    """RFC 9457, section 3.1.3; a provider's error may have the code of a class of another status."""
    titles = {(kind.code, kind.title) for kind in kinds(AppError)}
    provider_kinds: list[type[ProviderError]] = [ProviderError, *ProviderError.__subclasses__()]
    provider_codes = {kind.code for kind in provider_kinds}
    titles |= {(code, invalid_request_problem("", "", code)["title"]) for code in provider_codes}
    assert sorted(code for code, _ in titles) == problem_codes()
