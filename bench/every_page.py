"""Rows for every page of the URL table, beside those that the database of the settings has, and the pages' paths."""

import json
from pathlib import Path

from django.db import connection

from bench.page_world import sign_in
from tests.page_world import make_page_world


def main(folder: str) -> None:
    """Make the rows, files of data folders in `folder`; print, as JSON, a superadmin's cookie and all paths by name."""
    directory = Path(folder)
    directory.mkdir()
    world = make_page_world(directory)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
    print(json.dumps({"cookie": sign_in(world.admin), "paths": world.addresses()}))
