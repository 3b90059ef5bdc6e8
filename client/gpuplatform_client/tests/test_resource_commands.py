"""Commands of the tables as a superadmin runs them against a live server; `test_table_commands` has each of them."""

import json
from pathlib import Path

import pytest
import yaml

from accounts.models import ApiToken, ResourcePolicy, SshKey, User
from gpuplatform_client.tests.program import Command
from gpuplatform_client.tests.test_api_coverage import ACTS
from notifications.models import Notification
from resources.models import Host
from tests.factories import make_group, make_host, make_image, make_preset, make_session, make_user, run_session
from webhooks.models import Webhook

pytestmark = [pytest.mark.loopback, pytest.mark.django_db(transaction=True)]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGZqJGMYNqD7GuMBpFvkXwvOfJl0KLxGsvGyhkkTfeDg me@laptop"


@pytest.fixture
def user(transactional_db: None) -> User:
    host = make_host(name="alpha", group=make_group(name="lab"), gpus=1)
    make_preset(group=host.group, name="small")
    make_image(reference="team/torch:2", environment="PyTorch", version="2")
    return make_user(email="user@example.org", is_superuser=True)


def test_everything_that_needs_no_name_can_be_listed(signed_in: Command) -> None:
    for collection, name, act in ACTS:
        if act.shows == "rows" and act.method == "GET" and "{" not in collection.path_of(act):
            done = signed_in(*collection.group.split(), name, "-o", "json")
            assert done.exit_code == 0, (collection.group, name, done.stderr)
    assert signed_in("presets", "-q").stdout == "small\n"
    assert signed_in("images", "show", "team/torch:2", "-o", "name").stdout == "team/torch:2\n"


def test_tokens_keys_and_webhooks_are_made_changed_and_removed(signed_in: Command, user: User, tmp_path: Path) -> None:
    secret = signed_in("tokens", "create", "laptop", "--scope", "read", "--days", "3").stdout.strip()
    assert signed_in("whoami", "-q", GPUPLATFORM_TOKEN=secret).stdout == "user@example.org\n"
    assert signed_in("tokens", "revoke", "laptop").exit_code == 0
    assert signed_in("whoami", GPUPLATFORM_TOKEN=secret).exit_code == 3
    (tmp_path / "id.pub").write_text(f"{KEY}\n")
    added = signed_in("keys", "add", str(tmp_path / "id.pub"), "--title", "laptop")
    assert (added.exit_code, added.stdout) == (0, "laptop\n"), added.stderr
    assert signed_in("keys", "rm", "laptop", "laptop").exit_code == 4  # the first one is gone then
    assert not SshKey.objects.exists()
    made = signed_in("webhooks", "create", "https://hooks.example.org/a", "session.running", "--name", "chat")
    assert made.stdout.startswith("whsec_"), made.stderr
    assert signed_in("webhooks", "set", "chat", "--no-enabled", "--event-types", "session.error").exit_code == 0
    webhook = Webhook.objects.get()
    assert (webhook.is_enabled, webhook.event_types) == (False, ["session.error"])
    assert signed_in("webhooks", "rm", "chat").exit_code == 0
    assert ApiToken.objects.count() == 1
    assert signed_in("account", "set", "--first-name", "Kim").stdout == "user@example.org\n"
    assert "Kim" in signed_in("account", "show").stdout


def test_administrators_change_policies_and_hosts(signed_in: Command, tmp_path: Path) -> None:
    limits = ("--cpu", "8", "--memory", "16g", "--max-lifetime", "2h", "--no-allow-sudo")
    made = signed_in("admin", "policies", "create", "students", *limits)
    assert made.stdout == "students\n", made.stderr
    assert signed_in("admin", "policies", "set", "students", "--cpu", "none", "--max-sessions", "2").exit_code == 0
    policy = ResourcePolicy.objects.get(name="students")
    assert (policy.cpu, policy.memory, policy.max_sessions, policy.allow_sudo) == (None, 16 * 2**30, 2, False)
    assert yaml.safe_load(signed_in("admin", "policies", "show", "Students", "-o", "yaml").stdout)["max_sessions"] == 2
    assert signed_in("admin", "policies", "rm", "students").exit_code == 0
    refused = signed_in("admin", "policies", "create", "x", "--memory", "much")
    assert (refused.exit_code, "memory: " in refused.stderr) == (5, True)
    for words, expected in (
        (("cordon", "alpha", "--cordon-reason", "new fans"), (True, "new fans")),
        (("uncordon", "alpha"), (False, "")),
        (("drain", "alpha", "--reason", "repair"), (True, "repair")),
        (("undrain", "alpha"), (False, "")),
    ):
        done = signed_in("hosts", *words)
        assert done.exit_code == 0, done.stderr
        host = Host.objects.get(name="alpha")
        assert (host.is_cordoned, host.cordon_reason) == expected
    exported = signed_in("admin", "configuration", "show").stdout
    (tmp_path / "site.yaml").write_text(exported)
    assert signed_in("admin", "configuration", "import", str(tmp_path / "site.yaml"), "-o", "json").exit_code == 0
    assert signed_in("admin", "users", "show", "nobody@example.org").exit_code == 4
    [newest, *_] = signed_in("admin", "audit-log", "--object-type", "resources.Host", "-o", "json").stdout.splitlines()
    assert json.loads(newest)["object_text"] == "alpha"


def test_people_choose_how_they_are_told(signed_in: Command, user: User) -> None:
    session, ways = make_session(owner=user, name="train"), {"on_page": True, "in_browser": False, "by_email": False}
    Notification.objects.create(user=user, key="1", kind="STARTED", session=session, facts={"name": "train"}, **ways)
    [told] = signed_in("notifications", "-q").stdout.split()
    assert signed_in("notifications", "read", told).exit_code == 0
    assert Notification.objects.get().read_at
    assert signed_in("notifications", "prefer", "ended", "--by-email").exit_code == 0
    shown = [json.loads(each) for each in signed_in("notifications", "preferences", "-o", "json").stdout.splitlines()]
    assert next(each for each in shown if each["kind"] == "ENDED")["by_email"] is True
    assert signed_in("notifications", "prefer", "ended").exit_code == 2
    assert signed_in("notifications", "prefer", "nothing", "--on-page").exit_code == 4


def test_what_is_said_of_one_session_is_shown(signed_in: Command, user: User) -> None:
    waiting = make_session(owner=user, name="queued")
    assert "ahead" in signed_in("place", "queued").stdout
    running = run_session(owner=user, name="train")
    assert signed_in("changes", running.pk, "-q").stdout == "QUEUED\n"
    assert signed_in("admin", "sessions", "requeue", "train").exit_code == 5  # an interactive one that runs
    ended = signed_in("stop", "queued", "train").stdout.splitlines()
    assert sorted(ended) == [f"queued ({waiting.pk}): CANCELLED", f"train ({running.pk}): TERMINATING"]
