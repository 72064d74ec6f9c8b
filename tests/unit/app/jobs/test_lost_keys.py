"""Lost key files of an installation with data: nothing takes the place of a lost master key."""

from pathlib import Path

import pytest

from app.jobs.stores import Stores
from app.settings import Settings
from app.store.crypto.key_files import KeyUnreadable
from app.store.crypto.sealing import KeyMissing

pytestmark = pytest.mark.usefixtures("new_tables")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings of a service that has been started once."""
    made = Settings(home=tmp_path)
    Stores.open(made).close()
    return made


def test_a_lost_master_key_is_not_replaced(settings: Settings) -> None:
    """A new one opens nothing, and a backup of the keys would put it in the place of the right one."""
    key = settings.key_file.read_bytes()
    settings.key_file.unlink()
    settings.signing_key_file.unlink()
    with pytest.raises(KeyUnreadable, match=r"no key file .*master\.key; .*restore the file from a backup"):
        Stores.open(settings)
    assert not settings.key_file.exists()
    assert not settings.signing_key_file.exists()
    settings.key_file.write_bytes(key)
    Stores.open(settings).close()


def test_another_master_key_is_refused_with_the_settings_that_name_it(settings: Settings) -> None:
    settings.key_file.write_text("ab" * 32)
    with pytest.raises(KeyMissing, match=r"not among the keys given \(ROWVEIL_KEY, ROWVEIL_KEY_FILE\)"):
        Stores.open(settings)


def test_a_new_signing_key_of_an_old_installation_is_logged(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.signing_key_file.unlink()
    Stores.open(settings).close()
    (line,) = [each for each in caplog.messages if "signing key" in each]
    assert str(settings.signing_key_file) in line
    assert "restore that file from a backup" in line


def test_a_first_start_makes_both_keys_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Stores.open(Settings(home=tmp_path / "other")).close()
    assert not [each for each in caplog.messages if "key" in each]
