"""A rollout by steps in a real browser: both revisions side by side on a narrow screen, and its buttons."""

import pytest
from playwright.sync_api import Browser, expect

from deployments.models import StepwiseRollout
from deployments.tests.rolling import answer, begun
from tests.browser import signed_in
from tests.live import LiveServer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]
WIDTH = 390


@pytest.mark.parametrize(
    ("scheme", "locale", "promote", "back"),
    [("light", "en", "Next step now", "Back"), ("dark", "ko", "지금 다음 단계로", "되돌리기")],
)
def test_a_rollout_is_promoted_and_taken_back(
    browser: Browser, server: LiveServer, scheme: str, locale: str, promote: str, back: str
) -> None:
    deployment = begun(2)
    answer(deployment, 1, 12190, 19)
    answer(deployment, 2, 641, 3, seconds=12.5)
    options = {"viewport": {"width": WIDTH, "height": 900}, "color_scheme": scheme, "locale": locale}
    with signed_in(browser, server, deployment.owner, **options) as context:
        page = context.new_page()
        page.goto(f"/deployments/{deployment.pk}/")
        card = page.locator("#steps")
        expect(card).to_contain_text("12190")
        expect(card).to_contain_text("3 (0.5 %)")
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
        assert card.locator("table").evaluate("table => table.scrollWidth <= table.parentElement.clientWidth")
        card.get_by_role("button", name=promote).click()
        expect(card).to_contain_text("50 %")
        expect(card.get_by_role("button", name=promote)).to_have_count(0)
        card.get_by_role("button", name=back).click()
        expect(card).to_have_count(0)
    assert not StepwiseRollout.objects.exists()
