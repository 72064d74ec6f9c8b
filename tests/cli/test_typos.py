"""A typo on the command line: one line with the nearest command, service or option, and exit code 2."""

import pytest

from app import __version__
from app.__main__ import main

TYPOS = {
    "rnu": "there is no 'rnu'; did you mean 'run'?",
    "--versoin": "there is no option '--versoin'; did you mean '--version'?",
    "run cdswap in.csv out.csv": "there is no 'cdswap'; did you mean 'CDSWAP'?",
    "run CDSWAP in.csv out.csv --control-feild=town": "did you mean '--control-field'?",
    "run CDSWAP in.csv out.csv --contro town --swap-fields income": "did you mean '--control-field'?",
    "run CDSWAP in.csv out.csv more.csv --control-field town": "unexpected argument 'more.csv'",
    "run CDSWAP in.csv --control-field town": "the following arguments are required: DESTINATION",
    "keys lst": "there is no 'lst'; did you mean 'list'?",
    "audit verfy": "there is no 'verfy'; did you mean 'verify'?",
    "migrate --revison": "there is no option '--revison'",
}


@pytest.mark.parametrize("typed", TYPOS)
def test_a_typo_is_one_line_with_the_nearest_name(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.startswith("rowveil")
    assert err.count("\n") == 1
    assert TYPOS[typed] in err


def test_a_value_after_two_dashes_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    """A file may have any name."""
    with pytest.raises(SystemExit):
        main(["run", "CDSWAP", "--control-field", "town", "--", "--in.csv"])
    assert "arguments are required: DESTINATION" in capsys.readouterr().err


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"rowveil {__version__}\n")
