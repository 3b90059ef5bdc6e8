"""No text that people read is unmarked."""

from collections import Counter
from pathlib import Path

import pytest

from translation import catalogs, unmarked

LEFT = Path(__file__).with_name("unmarked.txt")  # how many each file may still have; only ever fewer
CHECKS = {".html": unmarked.in_template, ".txt": unmarked.in_template, ".js": unmarked.in_script}


def test_no_template_or_script_has_an_unmarked_text() -> None:
    allowed = Counter({path: int(count) for path, count in map(str.split, LEFT.read_text().splitlines())})
    found = {
        str(path): texts
        for path in [*catalogs.template_files(), *catalogs.script_files()]
        if (texts := list(CHECKS[path.suffix]((catalogs.ROOT / path).read_text())))
    }
    assert {path: texts for path, texts in found.items() if len(texts) > allowed[path]} == {}


@pytest.mark.parametrize(
    "template",
    [
        "<p>Not marked</p>",
        '<button title="Not marked"></button>',
        '<button title="{% if a %}Not marked{% endif %}"></button>',
        '{% include "x.html" with label="Not marked" %}',
        "{% translate 'Marked' %} {{ n }} file{{ n|pluralize }}",
        "{% blocktranslate %}Marked{% endblocktranslate %} not marked",
    ],
)
def test_unmarked_texts_of_templates_are_found(template: str) -> None:
    assert list(unmarked.in_template(template))


@pytest.mark.parametrize(
    "template",
    [
        "<code>make up</code> <b>{{ name }}</b> 3 GiB",
        "<p title=\"{% translate 'Marked' %}\">{% blocktranslate %}Marked <b>as well</b>{% endblocktranslate %}</p>",
        "{% include 'x.html' with label=_('Marked') %}",
        "{# not for readers #}",
    ],
)
def test_marked_texts_of_templates_are_accepted(template: str) -> None:
    assert list(unmarked.in_template(template)) == []


def test_unmarked_texts_of_scripts_are_found() -> None:
    script = (
        'title("Not marked"); say(`Saved ${count} files`); say(gettext("Marked")); find("#dialog .btn"); on("Enter");'
    )
    assert list(unmarked.in_script(script)) == ['"Not marked"', "`Saved ${count} files`"]
