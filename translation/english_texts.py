"""The English texts that are stored in the database, or that modules without Django compose.

A placeholder stands for what the writer fills in. `translation.composed_sentences` finds the whole sentences in the
modules; `english_texts.txt` has those that are composed of parts, and those that are too short to be found.
"""

import json
from pathlib import Path
from typing import Final

SENTENCES: Final = Path(__file__).with_name("composed_sentences.json")  # written by `make messages`
WRITTEN: Final = Path(__file__).with_name("english_texts.txt")


def written() -> list[str]:
    """Return the texts of `english_texts.txt`: its lines but for comments and blank ones."""
    return [line for line in WRITTEN.read_text().splitlines() if line and not line.startswith("#")]


ENGLISH_TEXTS: Final = (*written(), *json.loads(SENTENCES.read_text()))
