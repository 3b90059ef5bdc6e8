"""A host joins once with a token; what it is given is its own."""

import os
import socket
import stat
from pathlib import Path
from typing import Any
from uuid import UUID

import environ
import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.utils import timezone
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from hostaccess import host_file, keys, roles, services
from hostaccess.grants import GRANTS
from hostaccess.host_file import JoinError
from hostaccess.models import HostAccess
from resources.models import Host
from sessions.access import app_states
from tests.api import client_of
from tests.factories import make_group, make_host, make_user
from tests.joined_hosts import hosts_may_join, joined_host

JOIN = "/api/v1/hosts/join/"


@pytest.fixture(autouse=True)
def _roles(transactional_db: None, installation: UUID) -> Any:
    with hosts_may_join(installation):
        yield


def test_a_token_is_good_once_and_for_an_hour(client: Any) -> None:
    token = services.add("gpu7", "lab").token
    assert token not in str(HostAccess.objects.values().get())
    assert client.get(JOIN).status_code == 405
    assert client.post(JOIN, {}, "application/json").status_code == 400
    assert client.post(JOIN, {"token": "x" * 43}, "application/json").status_code == 403
    given = client.post(JOIN, {"token": token}, "application/json")
    assert given.status_code == 200
    assert given["Cache-Control"] == "no-store"
    assert given.json()["COMPUTE_HOST_NAME"] == "gpu7"
    assert client.post(JOIN, {"token": token}, "application/json").status_code == 403
    late = services.add("gpu8", "lab").token
    HostAccess.objects.filter(name="gpu8").update(token_expires_at=timezone.now())
    assert client.post(JOIN, {"token": late}, "application/json").status_code == 403
    signed_in = client_of(make_user())
    assert signed_in.get("/api/v1/hosts/").json()["results"] == [], "a host is known once its worker has registered"


def test_each_host_has_its_own_key_and_no_platform_key(settings: Settings) -> None:
    with joined_host("gpu7") as one, joined_host("gpu8") as other:
        assert one["COMPUTE_HOST_KEY"] != other["COMPUTE_HOST_KEY"]
        assert keys.key_of("gpu7") == one["COMPUTE_HOST_KEY"]
        assert settings.SECRET_KEY not in str(one)
        assert one["COMPUTE_HOST_KEY"].encode() not in bytes(HostAccess.objects.get(name="gpu7").encrypted_key)
        token = app_states.token_of("gpu7", "session", 8888)
        assert token != app_states.token_of("gpu8", "session", 8888)
        settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another" * 10
        assert keys.rekey() == 2
        settings.SECRET_KEY_FALLBACKS = []
        assert keys.key_of("gpu7") == one["COMPUTE_HOST_KEY"]
        settings.SECRET_KEY, settings.COMPUTE_HOST_NAME = "none of the platform" * 3, "gpu7"
        settings.COMPUTE_HOST_KEY = one["COMPUTE_HOST_KEY"]
        assert app_states.token_of("gpu7", "session", 8888) == token, "the host knows the tokens of its apps"
        settings.COMPUTE_HOST_KEY, settings.SECRET_KEY = "", "another" * 10


def test_joining_again_replaces_the_credentials() -> None:
    with joined_host("gpu7") as first:
        second = services.join(services.add("gpu7", "lab").token)
        assert {name for name in first if first[name] != second[name]} >= {"DATABASE_URL", "COMPUTE_HOST_KEY"}
        assert HostAccess.objects.count() == 1


def test_the_first_host_locks_one_table_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    apply, depths = roles._apply, list[int]()

    def noted(*arguments: Any) -> None:
        depths.append(len(connection.savepoint_ids))
        apply(*arguments)

    monkeypatch.setattr(roles, "_apply", noted)
    monkeypatch.setattr(roles, "_digest", lambda: "of another version")
    call_command("add_host", "gpu7", "--group", "lab", "--create-group")
    assert depths == [0] * len(GRANTS), "in a transaction each: together they would deadlock with what runs meanwhile"


def test_the_commands_say_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("add_host", "gpu7", "--group", "lab", "--create-group")
    said = capsys.readouterr()
    assert "install host --join" in said.out
    assert "manage.py join" in said.out
    assert "PostgreSQL listens on no network" in said.err
    make_host(name="gpu7", gateway_url="http://10.0.0.7:8010")
    call_command("revoke_host", "gpu7")
    host = Host.objects.get(name="gpu7")
    assert (host.is_cordoned, host.gateway_url) == (True, "")
    with pytest.raises(CommandError, match="no credentials"):
        call_command("revoke_host", "gpu7")
    with pytest.raises(CommandError):
        call_command("add_host", "x" * 65)


def test_a_misspelt_group_is_refused_with_those_like_it() -> None:
    for name in ("a100", "a40", "cpu"):
        make_group(name=name)
    with pytest.raises(CommandError, match=r"'a10'\. There are: a100, a40\."):
        call_command("add_host", "gpu7", "--group", "a10")
    assert not HostAccess.objects.exists()
    call_command("add_host", "gpu7", "--group", "a40")
    call_command("add_host", "gpu8")  # the group of an installation that names none
    assert set(HostAccess.objects.values_list("group__name", flat=True)) == {"a40", settings.COMPUTE_HOST_GROUP}


@pytest.mark.loopback
def test_join_writes_a_file_for_its_owner_alone(live_server: LiveServer, tmp_path: Path) -> None:
    target, token = tmp_path / "host.env", services.add("gpu7", "lab").token
    found = host_file.credentials(live_server.url, token)
    host_file.write(target, found)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert host_file.read(target) == found
    assert list(tmp_path.iterdir()) == [target]
    with pytest.raises(JoinError, match="it was used"):
        host_file.credentials(live_server.url, token)


def test_a_host_is_told_of_others_in_its_group() -> None:
    group = make_group(name="lab")
    make_host(name="gpu7", group=group, cluster_address="10.0.0.7")
    make_host(group=group, cluster_address="")
    make_host(group=group, cluster_address="10.0.0.8")
    make_host(cluster_address="10.0.0.9")
    with joined_host("gpu7", "lab") as found:
        assert found["COMPUTE_CLUSTER_PEERS"] == "10.0.0.8"


@pytest.mark.loopback
def test_join_says_that_a_slow_platform_may_take_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_file, "TIMEOUT_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(JoinError, match="may take the token"):
        host_file.credentials(f"http://127.0.0.1:{server.getsockname()[1]}", "token")


def test_join_sends_no_token_in_the_clear(tmp_path: Path) -> None:
    for url in ("http://gpu.example.org", "ftp://127.0.0.1", "http://127.0.0.1.example.org"):
        with pytest.raises(JoinError, match="https"):
            host_file.credentials(url, "token")


def test_hosts_reach_the_database_by_the_address_that_is_set(settings: Settings) -> None:
    settings.COMPUTE_HOSTS_DATABASE_ADDRESS = "db.internal:5432"
    settings.COMPUTE_HOSTS_REDIS_ADDRESS = "db.internal:6379"
    settings.CHANNEL_REDIS_URL = "redis://:secret@127.0.0.1:6379/0"
    assert services.reach_problem() == ""
    assert "@db.internal:5432/" in services._database_url("role", "password")
    assert services._redis_url("role", "password") == "redis://role:password@db.internal:6379/0"


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "db1,127.0.0.1"])
def test_addresses_of_the_web_server_alone_are_reported(
    name: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "HOST", name)
    monkeypatch.setitem(connection.settings_dict, "PORT", "5432")
    settings.CHANNEL_REDIS_URL = "redis://:secret@[::1]:6379/0"
    assert services.reach_problem() == (
        "PostgreSQL is at an address of this machine alone: set COMPUTE_HOSTS_DATABASE_ADDRESS; "
        "Redis is at an address of this machine alone: set COMPUTE_HOSTS_REDIS_ADDRESS"
    )
    settings.COMPUTE_HOSTS_DATABASE_ADDRESS, settings.COMPUTE_HOSTS_REDIS_ADDRESS = "10.0.0.1:5432", "10.0.0.1:6379"
    assert services.reach_problem() == ""


def test_hosts_are_given_all_servers_that_fail_over(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    own = connection.settings_dict
    monkeypatch.setitem(own, "HOST", "db1,db2")
    monkeypatch.setitem(own, "PORT", "5432,5433")
    monkeypatch.setitem(own, "OPTIONS", {**own["OPTIONS"], "target_session_attrs": "read-write"})
    settings.CHANNEL_REDIS_URL = "redis+sentinel://:secret@s1:26379,s2:26379/lab/0"
    assert services.reach_problem() == ""
    url = services._database_url("role", "password")
    assert "@db1:5432,db2:5433/" in url
    assert "target_session_attrs=read-write" in url
    parsed = environ.Env.db_url_config(url)
    assert (parsed["HOST"], parsed["PORT"]) == ("db1,db2", "5432,5433")
    assert services._redis_url("role", "word") == "redis+sentinel://role:word@s1:26379,s2:26379/lab/0"
    monkeypatch.setitem(own, "PORT", "6000")
    assert "@db1:6000,db2:6000/" in services._database_url("role", "password")


def test_credentials_of_an_installed_host_are_replaced_where_they_are(tmp_path: Path) -> None:
    """A package has a link to them; root replaces them, and the platform's user reads them."""
    (tmp_path / "etc").mkdir()
    file, link = tmp_path / "etc" / "host.env", tmp_path / "host.env"
    file.touch()
    os.chown(file, 54321, 54322)
    link.symlink_to(file)
    host_file.write(link, {"A": "b"})
    assert link.is_symlink()
    assert host_file.read(file) == {"A": "b"}
    about = file.stat()
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (54321, 54322, 0o600)
