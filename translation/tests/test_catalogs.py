"""The catalogues hold every text of the product, translated, and are compiled."""

import pytest
from babel.messages.catalog import Catalog

from translation import catalogs

DOMAINS = [(language, domain) for language in catalogs.LANGUAGES for domain in ("django", "djangojs")]


@pytest.mark.parametrize(("language", "domain"), DOMAINS)
def test_every_text_of_the_sources_is_translated(language: str, domain: str) -> None:
    known = {(each.context, each.id) for each in catalogs.read(language, domain) if each.id}
    wanted = {(each.context, each.id) for each in catalogs.extract(domain) if each.id}
    assert wanted - known == set(), "run `make messages`, and translate what it names"
    assert known - wanted == set(), "run `make messages`: these texts are no longer in the sources"
    assert catalogs.untranslated(catalogs.read(language, domain)) == []


@pytest.mark.parametrize(("language", "domain"), DOMAINS)
def test_what_the_platform_reads_is_compiled(language: str, domain: str) -> None:
    assert catalogs.compiled_path(language, domain).read_bytes() == catalogs.compiled(language, domain)


def test_an_unsure_translation_is_refused() -> None:
    catalog = Catalog(locale="ko")
    catalog.add("%(count)s core", "코어 %(count)s개", flags=["fuzzy"])  # compiled catalogues leave it out
    assert catalogs.untranslated(catalog) == ["%(count)s core"]


def test_a_translation_that_loses_a_placeholder_is_refused() -> None:
    catalog = Catalog(locale="ko")
    catalog.add("%(count)s files", "파일 %(number)s개")
    catalog.add("%(name)s is ready", "%(name)s 준비됨")
    assert catalogs.untranslated(catalog) == ["%(count)s files"]
