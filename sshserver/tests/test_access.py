"""For which session a key is: by its id, its name, or the name of a member of its cluster."""

import pytest
from django.conf import settings

from accounts.credentials.public_keys import PublicKey
from accounts.models import SshKey
from sessions.models import Session
from sshserver.access import AccessRefusal, SshPrincipal, authenticate
from tests.factories import make_cluster, make_host, make_user, run_session

pytestmark = pytest.mark.django_db
KEY = PublicKey("ssh-ed25519 AAAA", "SHA256:abc", "")


def test_a_cluster_is_entered_at_a_named_member() -> None:
    owner, host = make_user(), make_host(name=settings.COMPUTE_HOST_NAME)
    SshKey.objects.create(owner=owner, title="laptop", text=KEY.text, fingerprint=KEY.fingerprint)
    first, second = (
        run_session(member, host=host)
        for member in make_cluster(2, owner=owner, name="train", resource_group=host.group)
    )

    def entered(name: str) -> str:
        found = authenticate(name, KEY)
        assert isinstance(found, SshPrincipal)
        return found.session_id

    assert [entered(name) for name in ("train", first.pk, "train.main1")] == [first.pk] * 3
    assert [entered(name) for name in (second.pk, "train.sub1")] == [second.pk] * 2
    assert isinstance(authenticate("train.sub2", KEY), AccessRefusal)
    named_alike = run_session(owner=owner, name="train.sub1", host=host)
    assert entered("train.sub1") == named_alike.pk
    SshKey.objects.all().delete()
    Session.objects.filter(pk=second.pk).update(ssh_public_key=KEY.text)
    assert [entered(name) for name in ("train", "train.sub1")] == [second.pk] * 2
