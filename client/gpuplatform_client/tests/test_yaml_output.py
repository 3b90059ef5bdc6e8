"""Objects as YAML: what programs read is what the API said, whichever version of YAML they know."""

import pytest
import yaml
from ruamel.yaml import YAML

from gpuplatform_client.cli.printing import ListFormat, print_for_programs

TEXTS = ("yes", "on", "No", "y", "~", "1e3", "12:30", "12:30:00", "0o17", "0777", "1_000", "2026-11-28", "=", "a\x1b")
VALUES = {"none": None, "true": True, "whole": 7, "empty": [], "texts": [*TEXTS], "name": "off", "lines": "a\nb\n"}


def test_texts_stay_texts_in_all_versions_of_yaml(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_for_programs(VALUES, ListFormat.YAML, "")
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == VALUES  # of 1.1
    assert YAML(typ="safe", pure=True).load(text) == VALUES  # of 1.2
