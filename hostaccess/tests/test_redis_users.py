"""The Redis users of a host reach its own queue, and no message of anybody else's."""

from collections.abc import Iterator

import pytest
import redis
from django.core.cache import cache
from django.db import transaction
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from gpuplatform import cache_values
from hostaccess import redis_users, services, tasks
from hostaccess.models import HostAccess
from hostaccess.roles import role_prefix
from sessions.notify import proxies_redis, routes_channel, send_to_host
from tests.factories import make_group
from tests.joined_hosts import hosts_may_join, joined_host
from tests.queues import take_all
from tests.wait import SECONDS


@pytest.fixture
def taker(variables: dict[str, str]) -> Iterator[redis.Redis]:
    """A connection with the user of `gpu7` that takes messages."""
    with redis.Redis.from_url(variables["REDIS_URL"]) as client:
        yield client


@pytest.fixture
def sender(variables: dict[str, str]) -> Iterator[redis.Redis]:
    """A connection with the user of `gpu7` that sends messages."""
    with redis.Redis.from_url(variables["COMPUTE_REDIS_SEND_URL"]) as client:
        yield client


def test_other_hosts_queues_cannot_be_consumed(taker: redis.Redis, sender: redis.Redis) -> None:
    with transaction.atomic():
        send_to_host("gpu8", "stop_session", "abc", 1)
    for client in (taker, sender):
        for queue in ("host.gpu8", "scheduler", "host.gpu7x", "host.gpu70", "unacked"):
            for command in (("BRPOP", queue, "1"), ("DEL", queue), ("LRANGE", queue, "0", "-1"), ("RPOP", queue)):
                with pytest.raises(NoPermissionError):
                    client.execute_command(*command)
        for words in ("KEYS *", "SCAN 0", "FLUSHALL", "CONFIG GET *", "ACL LIST", "MONITOR", "CLIENT LIST"):
            with pytest.raises(NoPermissionError):
                client.execute_command(*words.split())
    with pytest.raises(NoPermissionError):
        sender.lpush("host.gpu8", "x")
    with pytest.raises(NoPermissionError):
        taker.publish("asgi__group__superadmins", "x")
    for client in (taker, sender):
        with pytest.raises(NoPermissionError):
            client.execute_command("SUBSCRIBE", "asgi__group__superadmins")
    assert take_all("host.gpu8") == [("hostworker.tasks.stop_session", ("abc", 1))]


@pytest.mark.django_db(transaction=True)
def test_a_redis_without_client_setinfo_takes_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis 7.0 refuses rules that name a command that it has not; one that no version has stands for it."""
    monkeypatch.setattr(redis_users, "SETINFO", "+nothing")
    monkeypatch.setattr(redis_users, "CONNECTING", (*redis_users.CONNECTING, "+nothing"))
    make_group(name="lab")
    with hosts_may_join(), joined_host("gpu8", "lab") as found, redis.Redis.from_url(found["REDIS_URL"]) as client:
        assert client.ping()


def test_redis_users_come_back_after_redis_lost_them(variables: dict[str, str], taker: redis.Redis) -> None:
    access = HostAccess.objects.get(name="gpu7")
    proxies_redis().acl_deluser(access.role, f"{access.role}{redis_users.SENDER}")
    with pytest.raises(RedisError):
        taker.ping()
    tasks.hold_redis_users()
    with redis.Redis.from_url(variables["REDIS_URL"]) as again:
        assert again.ping()


def test_users_of_the_version_before_get_what_is_new(variables: dict[str, str], taker: redis.Redis) -> None:
    access, channel = HostAccess.objects.get(name="gpu7"), routes_channel("gpu7")
    proxies_redis().execute_command("ACL", "SETUSER", access.role, "resetchannels", "&gp.routes")
    with pytest.raises(NoPermissionError):
        taker.publish(channel, "x")
    tasks.hold_redis_users()
    assert taker.publish(channel, "x") == 0
    with pytest.raises(NoPermissionError):
        taker.publish(routes_channel("gpu8"), "x")


def test_a_revoked_host_is_out_of_redis_at_once(transactional_db: None) -> None:
    with joined_host("gone") as variables:
        client = redis.Redis.from_url(variables["REDIS_URL"])
        assert client.ping()
        read_before = list(HostAccess.objects.filter(name="gone"))
        services.revoke("gone")
        with pytest.raises((AuthenticationError, NoPermissionError, redis.ConnectionError)):
            client.ping()
        tasks.hold_redis_users()
        redis_users.hold(read_before, role_prefix())  # as one that was under way meanwhile
        with pytest.raises(AuthenticationError):
            redis.Redis.from_url(variables["REDIS_URL"]).ping()


def test_no_pickle_is_in_the_cache() -> None:
    cache.set("some", {"a": [1, None, "x"]}, SECONDS)
    assert proxies_redis().get(":1:some") == b'{"a": [1, null, "x"]}'
    assert cache.get("some") == {"a": [1, None, "x"]}
    cache.set("count", 1, SECONDS)
    assert cache.incr("count") == 2
    with pytest.raises(TypeError):
        cache_values.JsonSerializer().dumps(object())


def test_revoked_and_changed_users_are_brought_in_line(variables: dict[str, str]) -> None:
    access = HostAccess.objects.get(name="gpu7")
    gone = f"{role_prefix()}999{redis_users.SENDER}"
    stranger = "gpuplatform_host_0_1"
    server = proxies_redis()
    for name in (gone, stranger, access.role):
        server.execute_command("ACL", "SETUSER", name, "reset", "on", ">old", "~*", "+@all")
    try:
        tasks.hold_redis_users()
        assert gone not in server.acl_users()
        assert stranger in server.acl_users()  # of another installation
        with redis.Redis.from_url(variables["REDIS_URL"]) as again:
            assert again.ping()
        with (
            redis.Redis.from_url(variables["REDIS_URL"], username=access.role, password="old") as old,
            pytest.raises(RedisError),
        ):
            old.execute_command("KEYS", "*")
    finally:
        server.acl_deluser(gone, stranger)
