"""The language of pages: the browser's, or the user's choice in every browser."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils.translation import gettext

from accounts.models import User
from accounts.signing_in.language import language_of
from tests.factories import PASSWORD, make_user

SIGN_IN = reverse("account_login")


def language(client: Client, **headers: str) -> str:
    return client.get(SIGN_IN, headers=headers).headers["Content-Language"]


@pytest.mark.django_db
def test_pages_speak_the_language_of_the_browser(client: Client) -> None:
    assert language(client) == "en"
    assert language(client, accept_language="ko-KR,ko;q=0.9,en;q=0.8") == "ko"
    assert language(client, accept_language="fr") == "en"
    assert '<html lang="ko">' in client.get(SIGN_IN, headers={"accept-language": "ko"}).content.decode()


@pytest.mark.django_db
def test_a_chosen_language_follows_the_user_to_other_browsers(client: Client) -> None:
    user = make_user()
    client.force_login(user)
    answer = client.post(reverse("accounts:language"), {"language": "ko", "next": "/folders/"})
    assert (answer.status_code, answer.headers["Location"]) == (302, "/folders/")
    other = Client()
    other.post(SIGN_IN, {"login": user.email, "password": PASSWORD})
    other.post(reverse("accounts:logout"))
    assert language(client) == language(other) == "ko"


@pytest.mark.django_db
def test_no_other_language_and_no_other_site_is_accepted(client: Client) -> None:
    user = make_user()
    client.force_login(user)
    answer = client.post(reverse("accounts:language"), {"language": "xx", "next": "https://example.org/"})
    user.refresh_from_db()
    assert (answer.headers["Location"], user.language, language(client)) == ("/", "", "en")


def test_mails_are_written_in_the_language_of_their_reader() -> None:
    user = User(language="ko")
    with language_of(user):
        assert gettext("Sign in") != "Sign in"
    assert gettext("Sign in") == "Sign in"
