"""The English texts that are stored in the database, or that modules without Django compose.

A placeholder stands for what the writer fills in. A test finds sentences of the writers that are missing here.

Used by its package alone.
"""

from typing import Final

from translation.english_texts import (
    accounts,
    amounts,
    apps,
    engine,
    folders,
    hosts,
    resources,
    scheduler,
    sessions,
    webhooks,
)

ENGLISH_TEXTS: Final = (
    *accounts.TEXTS,
    *amounts.TEXTS,
    *apps.TEXTS,
    *engine.TEXTS,
    *folders.TEXTS,
    *hosts.TEXTS,
    *resources.TEXTS,
    *scheduler.TEXTS,
    *sessions.TEXTS,
    *webhooks.TEXTS,
)
