"""Owners, browsers and webhooks are told of a cluster as of one session."""

from datetime import timedelta

import pytest
from django.utils import timezone

from accounts.models import User
from notifications.delivery.ends import announce_ends
from notifications.delivery.texts import text_of
from notifications.models import Notification
from sessions import notes
from sessions.clusters import settling
from sessions.launching import services
from sessions.lifecycle import FINAL, Kind, Reason, Status
from sessions.models import Cluster, Session
from tests.factories import make_host, make_policy, make_user, run_cluster
from webhooks import services as webhooks
from webhooks.delivery.payloads import body_of
from webhooks.models import WebhookDelivery

pytestmark = pytest.mark.django_db
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def owner() -> User:
    return make_user(policy=make_policy(max_lifetime=HOUR, max_extension=HOUR))


def told(owner: User) -> list[str]:
    """Return the titles of what the owner was told, the oldest first."""
    return [text_of(notice).title for notice in Notification.objects.filter(user=owner).order_by("id")]


def settled(members: list[Session]) -> list[Session]:
    """Have the cluster settle until no member has to be stopped any more; return the members."""
    while True:
        settling.settle_all()
        stopping = list(members[0].members.filter(status=Status.TERMINATING))
        for member in stopping:
            member.move_to(Status.TERMINATED, Reason(member.reason), member.detail)
        if not stopping:
            settling.settle_all()
            return list(members[0].members)


def test_that_all_run_and_have_ended_is_told_once(owner: User) -> None:
    webhook, _ = webhooks.create(owner, url="https://ci.example.org", types=["session.running", "session.terminated"])
    members = run_cluster(owner=owner, name="train")
    assert told(owner) == []
    settled(members)
    settled(members)
    assert told(owner) == ["train is running"]
    head, sub, _ = members
    sub.refresh_from_db()
    sub.move_to(Status.ERROR, Reason.OUT_OF_MEMORY, "It needed more memory.")
    head, *others = settled(members)
    assert {head.status, *(member.status for member in others)} <= FINAL
    assert told(owner) == ["train is running", "train has failed"]
    failed = Notification.objects.order_by("id").last()
    assert failed
    assert failed.session == head
    assert text_of(failed).body == "sub1 of its cluster ended: It needed more memory."
    sent = list(webhook.deliveries.order_by("id"))
    assert [each.type for each in sent] == ["session.running", "session.terminated"]
    assert '"cluster":{"size":3,"member":"main1"}' in body_of(sent[0])
    assert "sub1 of its cluster ended" in body_of(sent[1])


def test_what_its_owner_ends_is_not_told(owner: User) -> None:
    members = run_cluster(owner=owner)
    services.terminate(members[1], actor=owner)
    settled(members)
    assert told(owner) == []
    assert Cluster.objects.get().ended_at is not None


def test_a_command_on_all_ends_with_the_last(owner: User) -> None:
    members = run_cluster(owner=owner, name="train", runs_on_all=True, kind=Kind.BATCH.value, command="train")
    settled(members)
    for number, member in enumerate(members):
        assert told(owner) == ["train is running"], f"{number} have ended"
        member.refresh_from_db()
        member.move_to(Status.TERMINATED, Reason.CONTAINER_EXITED)
        settled(members)
    assert told(owner) == ["train is running", "train has ended"]
    assert members[0].events.filter(reason=Reason.CLUSTER_ENDED).get().detail == "All members have succeeded."


def test_what_befalls_a_member_names_it(owner: User) -> None:
    members = run_cluster(owner=owner, name="train")
    notes.note(members[2], Reason.PROCESS_OUT_OF_MEMORY, "python was killed.")
    assert told(owner) == ["train.sub2 ran out of memory"]


def test_the_end_of_all_is_announced_once(owner: User) -> None:
    members = run_cluster(owner=owner, name="train")
    Session.objects.update(start_by=timezone.now() - HOUR + 9.6 * MINUTE)
    Cluster.objects.update(started_at=timezone.now() - HOUR)
    Session.objects.update(started_at=timezone.now() - HOUR)
    assert (announce_ends(), announce_ends()) == (1, 0)
    assert told(owner) == ["train ends in 10 minutes"]
    assert Notification.objects.get().session == members[0]


def test_a_drained_host_of_one_member_is_announced(owner: User) -> None:
    hosts = [make_host(), make_host(is_cordoned=True, drain_by=timezone.now() + 9.6 * MINUTE)]
    hosts[1].group = hosts[0].group
    hosts[1].save()
    members = run_cluster(owner=owner, name="train", hosts=hosts)
    Session.objects.update(started_at=timezone.now() - 30 * MINUTE)
    assert (announce_ends(), announce_ends()) == (1, 0)
    assert told(owner) == ["train ends in 10 minutes"]
    assert Notification.objects.get().session == members[0]


def test_the_end_of_an_elastic_member_is_not_announced(owner: User) -> None:
    members = run_cluster(owner=owner, name="train")
    soon = {"preempt_by": timezone.now() + 9.6 * MINUTE, "started_at": timezone.now() - HOUR, "is_elastic": True}
    Session.objects.filter(pk=members[2].pk).update(**soon)
    assert announce_ends() == 0


def test_no_message_is_of_a_member_alone(owner: User) -> None:
    webhooks.create(owner, url="https://ci.example.org", types=["session.preparing", "session.running"])
    run_cluster(owner=owner)
    assert list(WebhookDelivery.objects.values_list("type", flat=True)) == ["session.preparing"]
