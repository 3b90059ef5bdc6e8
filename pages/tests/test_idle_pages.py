"""The pages warn of an idle session's end, put it off, and show what a rule would have ended last week."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import ResourcePolicy
from sessions.idle_rules import PERIOD, IdleAction, start_of_period
from sessions.models import IdleNotice, IdleRule, Session, UsagePeriod
from tests.factories import make_user, run_session

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def rule() -> IdleRule:
    IdleRule.objects.all().delete()
    return IdleRule.objects.create(name="unused", idle_timeout=HOUR, warning=HOUR / 2, max_snooze=HOUR)


@pytest.fixture
def warned(rule: IdleRule) -> Session:
    session = run_session()
    ends_at = timezone.now() + HOUR / 2
    IdleNotice.objects.create(
        session=session, rule=rule, cause="Nobody used it for 1 h, and it computed nothing.", ends_at=ends_at
    )
    return session


def test_the_owner_sees_the_end_and_puts_it_off(client: Client, warned: Session) -> None:
    client.force_login(warned.owner)
    url = f"/sessions/{warned.pk}/"
    for page in (url, "/sessions/"):
        assert f'id="snooze-{warned.pk}"' in client.get(page).content.decode()
    dialog = client.get(f"{url}snooze/", headers={"HX-Request": "true"}).content.decode()
    assert '<option value="30">30 min</option><option value="60">1 h</option>' in dialog
    before = IdleNotice.objects.get().ends_at
    assert client.post(f"{url}snooze/", {"minutes": "600"}, headers={"HX-Request": "true"}).status_code == 422
    assert client.post(f"{url}snooze/", {"minutes": "60"}, headers={"HX-Request": "true"}).status_code == 204
    assert IdleNotice.objects.get().ends_at == before + HOUR
    assert "use the session to keep it" in client.get(f"{url}snooze/").content.decode()
    IdleNotice.objects.all().delete()
    assert "not about to end as idle" in client.get(f"{url}snooze/").content.decode()
    assert "snooze-" not in client.get(url).content.decode()
    client.force_login(make_user())
    assert client.get(f"{url}snooze/").status_code == 404


def test_the_banner_says_whether_it_ends_or_is_parked(client: Client, warned: Session, rule: IdleRule) -> None:
    client.force_login(warned.owner)
    assert "will be ended" in client.get(f"/sessions/{warned.pk}/").content.decode()
    IdleRule.objects.update(action=IdleAction.PARK.value)
    assert "It is idle and is parked:" in client.get(f"/sessions/{warned.pk}/").content.decode()
    ResourcePolicy.objects.update(max_parked=0)  # it cannot be parked, so it ends
    assert "will be ended" in client.get(f"/sessions/{warned.pk}/").content.decode()


def test_an_administrator_sees_what_a_rule_would_have_ended(client: Client, rule: IdleRule) -> None:
    quiet, busy, unknown = (run_session(fgpu=500) for _ in range(3))
    begun = start_of_period(timezone.now() - 5 * HOUR)
    for session, cpu in ((quiet, 10), (busy, 900), (unknown, None)):
        UsagePeriod.objects.bulk_create(
            UsagePeriod(
                session=session,
                at=begun + n * PERIOD,
                cpu_milli=cpu,
                cpu_percent=cpu and cpu / 10,
                fgpu=500,
                gpu_percent=0,
                network_bytes=0,
                was_used=False,
                is_idle=cpu == 10,
            )
            for n in range(58)
        )
    client.force_login(make_user(is_superuser=True))
    page = client.get(f"/admin/compute/idlerule/{rule.pk}/preview/").content.decode()
    assert "It would have ended 1 session of 3." in page
    assert quiet.name in page
    assert busy.name not in page
    assert "1 session was never measured in full" in page
    assert f"{begun + 1.5 * HOUR:%Y-%m-%d %H:%M} UTC" in page
    form = {"name": "unused", "idle_timeout": "02:00:00", "warning": "00:30:00", "max_snooze": "0", "action": "end"}
    saved = client.post(f"/admin/compute/idlerule/{rule.pk}/change/", form, follow=True).content.decode()
    assert f"/admin/compute/idlerule/{rule.pk}/preview/" in saved
    refused = client.post("/admin/compute/idlerule/add/", form | {"name": "none", "idle_timeout": ""}).content.decode()
    assert "Give an idle timeout, or a window of low use." in refused
    client.force_login(make_user())
    assert client.get(f"/admin/compute/idlerule/{rule.pk}/preview/").status_code == 302
