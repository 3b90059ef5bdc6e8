"""Bring the catalogues of texts to the sources, and compile them."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from translation import catalogs
from translation.english_texts import SENTENCES


class Command(BaseCommand):
    """Update locale/ and static/js/translations; fails where a text has no translation yet, and names it."""

    help = "Bring the catalogues of texts in locale/ to the sources, and compile them."
    requires_system_checks = ()

    def handle(self, *args: Any, **options: Any) -> None:
        """Update each language's catalogues, then write what the platform reads."""
        missing = []
        SENTENCES.write_text(catalogs.sentences_json())
        for language in catalogs.LANGUAGES:
            for domain in ("django", "djangojs"):
                missing += catalogs.untranslated(catalogs.update(language, domain))
                catalogs.compiled_path(language, domain).write_bytes(catalogs.compiled(language, domain))
        for text in missing:
            self.stdout.write(f"not translated: {text}")
        if missing:
            raise CommandError(f"{len(missing)} texts are not translated")
