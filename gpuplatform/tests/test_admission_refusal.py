"""What a request that gets no slot is responded with."""

from urllib.parse import urlencode

import pytest

from gpuplatform.serving.admission.refusal import FORM_BYTES, FORM_FIELDS, RETRY_SECONDS, refusal
from proxy.http.asgi import Scope

FORM = {"csrfmiddlewaretoken": "x" * 64, "name": 'Kim "K" <b>', "note": "two\nlines"}
ORIGIN = (b"origin", b"http://127.0.0.1:8000")


def scope_of(method: str = "POST", path: str = "/sessions/x/rename/", *extra: tuple[bytes, bytes]) -> Scope:
    """Return the event of a form's request from a page of the platform."""
    plain = [(b"host", b"127.0.0.1:8000"), (b"content-type", b"application/x-www-form-urlencoded; charset=utf-8")]
    return {"method": method, "path": path, "headers": [*plain, *(extra or (ORIGIN,))]}


def page_of(scope: Scope, form: dict[str, str] | bytes) -> str:
    """Return the page that refuses the form."""
    body = form if isinstance(form, bytes) else urlencode(form).encode()
    return refusal(scope, body, is_silent=False).content.decode()


def test_a_page_loads_itself_again_at_different_times() -> None:
    responses = [refusal(scope_of("GET"), b"", is_silent=False) for _ in range(200)]
    assert {int(each["Retry-After"]) for each in responses} == set(RETRY_SECONDS)
    for response in responses:
        assert f'<meta http-equiv="refresh" content="{response["Retry-After"]}">' in response.content.decode()


def test_a_form_comes_back_with_what_was_typed() -> None:
    page = page_of(scope_of(), FORM)
    assert '<input type="hidden" name="name" value="Kim &quot;K&quot; &lt;b&gt;">' in page
    assert 'value="two\nlines"' in page
    assert "data-send-again" in page
    assert "http-equiv" not in page


@pytest.mark.parametrize(
    "form",
    [
        FORM | {"new_password1": "secret"},
        FORM | {"note": "x" * FORM_BYTES},
        {f"field{number}": "" for number in range(FORM_FIELDS + 1)},
        b"\xff\xfe=1",
        b"name=%ff",
    ],
)
def test_secrets_and_bodies_other_than_small_forms_are_not_returned(form: dict[str, str] | bytes) -> None:
    page = page_of(scope_of(), form)
    assert 'name="csrfmiddlewaretoken" value="xxx' not in page
    assert "secret" not in page
    assert "data-send-again" not in page
    assert "http-equiv" not in page


def test_a_form_of_another_site_is_not_sent_again() -> None:
    for headers in ((b"origin", b"https://elsewhere.example"), (b"x", b"no origin")):
        assert "data-send-again" not in page_of(scope_of("POST", "/sessions/x/rename/", headers), FORM)


def test_the_api_is_refused_with_a_problem() -> None:
    response = refusal(scope_of("POST", "/api/v1/sessions/"), b"", is_silent=False)
    assert response["Content-Type"] == "application/problem+json"
    assert int(response["Retry-After"]) in RETRY_SECONDS
