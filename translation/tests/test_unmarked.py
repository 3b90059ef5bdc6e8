"""No text that people read is unmarked."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from translation import catalogs, unmarked

LEFT = Path(__file__).with_name("unmarked.txt")  # how many each file may still have; only ever fewer
# Sentences of these modules are for operators, API or SSH clients, who read English; `model_texts` has those of models.
NOT_FOR_PAGES: Final = re.compile(
    r"(management|bootstrap|models|privileged|images|tests)/|^(client|proxy|fgpu|sshserver|translation)/|serializers\.py"
    r"|(^|_|/)api(\.py|/)|models\.py|checks\.py|conftest|manage\.py|accounts/credentials/authentication"
    r"|^gpuplatform/(rest/|settings|serving/(request_bodies|middleware))|scheduler/simulation/"
    r"|^operations/(backups|metrics|logs|database|doctor|machine|supervisor|embedded)"
    r"|hostworker/(conversion/recipe|enforcement/programs|agent/engine_lock|simulated/)|pages/help"
    r"|^messaging/|hostworker/runtime/(sandboxes|memory|docker/events)"
    r"|folders/(files/(direct|staging|downloads/archive)|transfers/outgoing)"
    r"|^restapi/(schema|pages)|^hostaccess/|scheduler/cycle/shared_limits"
    r"|resources/(gpus/(discovery|simulated)|amounts/fields|hosts/claims)|pages/session_list/occupancy"
)
# Composed of parts, which stand as whole sentences in translation/english_texts.
COMPOSED: Final = (
    *(
        "Port 7 7; it has",
        "1 entry is",
        "7 entries are",
        "7 deleted for ever",
        "7The owner's quota",
        "There is no room for",
    ),
    *(
        "7 ended77 before",
        "7 runs, but",
        "What listens there",
        "7 has not answered",
        "Not started, as folders",
        "7 is on the host",
    ),
    *(
        " Only hosts with",
        "7 allows ",
        "7 7 free when",
        "1 session reaches",
        "7 sessions reach",
        "Waiting for 7 on one host: 77",
        "With 7 fGPU a session gets",
    ),
    *(
        "7 on one GPU",
        "7 on one host, as",
        "7 The session's last lines",
        "7 is in use by 7",
        "It has written 7 outside",
    ),
    *(
        "7 is being saved as 7:7",
        "7 is no range of ports",
        "7 of 7 layers",
        "7: no ready host",
        "Its host is taken out of service7",
        "The project 7 has",
        "7 a folder called 7 already",
    ),
)
CHECKS = {".html": unmarked.in_template, ".txt": unmarked.in_template, ".js": unmarked.in_script}


def test_no_template_or_script_has_an_unmarked_text() -> None:
    allowed = Counter({path: int(count) for path, count in map(str.split, LEFT.read_text().splitlines())})
    found = {
        str(path): texts
        for path in [*catalogs.template_files(), *catalogs.script_files()]
        if (texts := list(CHECKS[path.suffix]((catalogs.ROOT / path).read_text())))
    }
    assert {path: texts for path, texts in found.items() if len(texts) > allowed[path]} == {}


def test_every_sentence_in_python_is_marked_or_listed() -> None:
    found = {
        str(path): texts
        for path in catalogs.python_files()
        if not NOT_FOR_PAGES.search(str(path))
        and (
            texts := [text for text in unmarked.in_python((catalogs.ROOT / path).read_text()) if not is_composed(text)]
        )
    }
    assert found == {}


def is_composed(text: str) -> bool:
    return text.startswith(COMPOSED)


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


def test_sentences_in_python_are_marked_or_known_when_shown() -> None:
    lines = (
        '"""A docstring of three words."""',
        '@admin.action(description="End those which run")',
        "def end(): pass",
        'logger.info("It was not found.")',
        'add(_("It was marked here."))',
        'add("Not one of those.")',
    )
    assert list(unmarked.in_python("\n".join(lines))) == ["Not one of those."]
