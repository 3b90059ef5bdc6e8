"""That `make bench-pages` measures every page of the URL table: what it leaves out is no page, or is named here."""

from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest
from django.test import Client

from tests.page_world import make_page_world

NO_ERROR: Final = (HTTPStatus.OK, HTTPStatus.METHOD_NOT_ALLOWED)  # the latter are for POST alone
LEFT_OUT: Final = {  # what the superadmin of the page world is not shown
    # Pages for those who are not signed in, and of identity providers, of which there is none.
    *("account_login", "account_set_password", "admin-sign-in"),
    *("openid_connect_callback", "openid_connect_login", "socialaccount_login_error"),
    # Second factors: what shows or changes them asks for the password again first.
    *("mfa_activate_totp", "mfa_add_webauthn", "mfa_authenticate", "mfa_deactivate_totp", "mfa_login_webauthn"),
    *("mfa_download_recovery_codes", "mfa_edit_webauthn", "mfa_generate_recovery_codes", "mfa_list_webauthn"),
    *("mfa_reauthenticate", "mfa_reauthenticate_webauthn", "mfa_remove_webauthn", "mfa_view_recovery_codes"),
    # What leads elsewhere, and files and programs' addresses.
    *("endpoints-app", "launch", "launch-slash", "client", "metrics", "readyz"),
    # What a host, or a service on this machine, would answer.
    *("sessions-logs-download", "service-log"),
    # Dialogs of what the superadmin does not have, and a file, which the page world opens by its name.
    *("folders-leave", "sessions-delete-image", "folders-edit"),
}


@pytest.mark.django_db(transaction=True)
def test_every_page_of_the_url_table_is_measured(client: Client, tmp_path: Path) -> None:
    world = make_page_world(tmp_path)
    client.force_login(world.admin)
    paths = {name: path for name, path in world.addresses().items() if name not in world.extra}
    assert {name for name, path in paths.items() if client.get(path).status_code not in NO_ERROR} == LEFT_OUT
