"""The files in the users' help are valid by the schema and by the platform."""

import re
from pathlib import Path

import pytest

from accounts.models import User
from resources.models import Image
from specs.tests.test_spec_schema import problems
from specs.tests.worlds import make_owner, post

PAGE = Path(__file__).parents[2] / "docs/help/spec-files.md"
BLOCKS = [re.sub("^    ", "", each, flags=re.M) for each in re.findall(r"(?:^    .*\n)+", PAGE.read_text(), re.M)]


@pytest.fixture
def owner(db: None, tmp_path: Path) -> User:
    owner = make_owner(tmp_path)
    Image.objects.update(reference="gpuplatform/pytorch:2.13")
    return owner


def test_the_help_has_examples() -> None:
    assert len(BLOCKS) == 6


@pytest.mark.parametrize("text", BLOCKS)
def test_the_examples_of_the_help_are_valid(owner: User, text: str) -> None:
    answer = post(owner, text, dry_run=True)
    assert answer.status_code == 200, answer.json()
    assert not problems(answer.json()["spec"] or text)
