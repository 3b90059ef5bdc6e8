"""`manage.py rekey`: what is encrypted in the database, after SECRET_KEY was replaced."""

from io import StringIO

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal.auth import TOTP, generate_totp_secret
from django.core.management import CommandError, call_command
from pytest_django import Settings

from accounts.models import AuditEntry
from accounts.second_factors import factor_secrets
from hostaccess import keys
from hostaccess.models import HostAccess
from imports import credentials
from resources.models import Registry
from resources.registries.credentials import login_of, set_password
from tests.factories import make_group, make_user
from tests.registry import PASSWORD, USERNAME
from webhooks import services
from webhooks.delivery.stored_secrets import secrets_of
from webhooks.event_types import types_for
from webhooks.models import Webhook

pytestmark = pytest.mark.django_db


def rekey() -> str:
    out = StringIO()
    call_command("rekey", stdout=out)
    return out.getvalue()


def test_rekey_leaves_nothing_that_takes_the_old_key(settings: Settings) -> None:
    user, secret = make_user(), str(generate_totp_secret())
    TOTP.activate(user, secret)
    code = RecoveryCodes.activate(user).get_unused_codes()[0]
    set_password(row := Registry(name="Lab", address="registry.example.com", username=USERNAME), PASSWORD)
    row.save()
    webhook, signing = services.create(user, url="https://ci.example.org/hook", types=types_for(False))
    credential = credentials.add_token(user, name="hub", host="github.com", token="t0ken")
    HostAccess.objects.create(
        name="far", role="r1", group=make_group(), encrypted_key=keys.encrypted("of the host far")
    )
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, [settings.SECRET_KEY]
    said = rekey()
    assert said.split(": ")[1] == (
        "1 passwords of registries, 1 keys of hosts, 2 second factors, 1 secrets of webhooks, 1 import credentials.\n"
    )
    settings.SECRET_KEY_FALLBACKS = []
    totp, codes = (Authenticator.objects.get(type=type) for type in ("totp", "recovery_codes"))
    assert factor_secrets.decrypted(totp.data["secret"]) == secret
    assert codes.wrap().validate_code(code)
    assert secrets_of(Webhook.objects.get(pk=webhook.pk)) == [signing]
    credential.refresh_from_db()
    assert credentials.for_program(credential)["token"] == "t0ken"
    assert keys.key_of("far") == "of the host far"
    assert AuditEntry.objects.get().action == "encrypt again"
    login = login_of(Registry.objects.get())
    assert login is not None
    assert login.password == PASSWORD


def test_rekey_passes_over_what_is_lost_already(settings: Settings) -> None:
    user = make_user()
    TOTP.activate(user, str(generate_totp_secret()))
    services.create(user, url="https://ci.example.org/hook", types=types_for(False))
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, []
    assert "0 second factors, 0 secrets of webhooks" in rekey()


def test_rekey_changes_nothing_where_a_password_is_lost(settings: Settings) -> None:
    webhook, signing = services.create(make_user(), url="https://ci.example.org/hook", types=types_for(False))
    old, settings.SECRET_KEY = settings.SECRET_KEY, "l" * 50
    set_password(row := Registry(name="Lab", address="registry.example.com", username=USERNAME), PASSWORD)
    row.save()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "n" * 50, [old]
    with pytest.raises(CommandError, match=r"registry Lab .* SECRET_KEY_FALLBACKS"):
        rekey()
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = old, []
    assert secrets_of(Webhook.objects.get(pk=webhook.pk)) == [signing]
