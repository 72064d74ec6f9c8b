"""No file of the repository contains a key, or the address of a package index."""

import re
import subprocess
from pathlib import Path

import pytest

SECRETS = {
    "an API key of Rowveil": rb"rv_[0-9A-Za-z]{10}_[0-9A-Za-z]{49}",
    "a private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a key of AWS": rb"\b(AKIA|ASIA)[0-9A-Z]{16}\b",
    "a token of GitHub": rb"\bgh[pousr]_[0-9A-Za-z]{36}\b",
    "a token of Slack": rb"\bxox[abprs]-[0-9A-Za-z-]{10,}",
    "a signed token": rb"\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]{10,}",
    "a webhook's secret": rb"\bwhsec_[0-9A-Za-z+/]{24,}",
    "an address with a password": rb"[a-z]+://[^/\s:@\"'{}<>]+:[^/\s:@\"'{}<>$]+@[a-z0-9]",
    "the address of a package index": rb"--(extra-)?index-url",
}
ALLOWED = {
    "an address with a password": rb"://[a-z]+:(secret|password|rowveil|hidden)@",
    # the standard's sample, the one of the API examples, and the mark of the fuzz tests
    "a webhook's secret": rb"whsec_(MfKQ9r8GKYqrTwjUPD8|C2FVsBQIhrscChlQIMV|dmVsdmV0LW90dGVy)",
}
ROOT = Path(__file__).parents[3]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)  # noqa: S607 - whichever git there is
    if listed.returncode:
        pytest.skip("not a repository")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name]


def test_no_file_of_the_repository_holds_a_secret() -> None:
    found = []
    for path in tracked():
        if not path.is_file():
            continue
        content = path.read_bytes()
        for what, pattern in SECRETS.items():
            for match in re.finditer(pattern, content):
                around = content[max(0, match.start() - 4) : match.end() + 4]
                if not (what in ALLOWED and re.search(ALLOWED[what], around)):
                    found.append(f"{path.relative_to(ROOT)}: {what}")
    assert found == []


def test_what_is_looked_for_is_found() -> None:
    """The patterns match what they are for."""
    samples = {
        "an API key of Rowveil": b"rv_" + b"a" * 10 + b"_" + b"b" * 49,
        "a private key": b"-----BEGIN EC " + b"PRIVATE KEY-----",
        "a key of AWS": b"AKIA" + b"A" * 16,
        "an address with a password": b"postgresql" + b"://ada:x7@db",
    }
    for what, sample in samples.items():
        assert re.search(SECRETS[what], sample), what
