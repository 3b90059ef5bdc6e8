"""How `.env` comes to be."""

import stat
from pathlib import Path

import pytest

from gpuplatform.bootstrap import env_file

EXAMPLE = "# before\nSECRET_KEY=\n# after\n#DEBUG=false\n"


def test_the_env_file_is_private_with_a_random_key(tmp_path: Path) -> None:
    (tmp_path / "example").write_text(EXAMPLE)
    assert env_file.write(tmp_path / "env", tmp_path / "example")
    before, key, after = (tmp_path / "env").read_text().split("\n", 2)
    assert (before, after) == ("# before", "# after\n#DEBUG=false\n")
    assert len(key.removeprefix("SECRET_KEY=")) >= 50
    assert stat.S_IMODE((tmp_path / "env").stat().st_mode) == 0o600


def test_a_file_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "example").write_text(EXAMPLE)
    (tmp_path / "env").write_text("SECRET_KEY=mine\n")
    assert not env_file.write(tmp_path / "env", tmp_path / "example")
    assert (tmp_path / "env").read_text() == "SECRET_KEY=mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env", "example"]


def test_every_file_has_a_key_of_its_own() -> None:
    assert env_file.text_with_secret(EXAMPLE) != env_file.text_with_secret(EXAMPLE)


def test_an_example_without_the_key_line_is_refused() -> None:
    with pytest.raises(ValueError, match="SECRET_KEY"):
        env_file.text_with_secret("DEBUG=false\n")
