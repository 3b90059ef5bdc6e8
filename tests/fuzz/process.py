"""Runs one target in this process: `python -m tests.fuzz.process TARGET OPTIONS...`, with libFuzzer's options."""

import sys

import atheris
import django

from tests.fuzz.catalogue import check_of, parsers_of, prepared


def main() -> None:
    """Run until libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=parsers_of(name)):
        django.setup()
        check = check_of(name)
        context = prepared(name)
    atheris.Setup([name, *options], check)
    with context:
        atheris.Fuzz()


if __name__ == "__main__":
    main()
