"""The URL of Redis, of one server or of Sentinels, as each of its users needs it."""

import ssl

import pytest
from kombu import Connection

from messaging import clients
from messaging.redis_url import RedisUrlError, broker_options, broker_url, sentinel_address, url_for

SENTINELS = "redis+sentinel://:p%40ss@s1:26380,s2,[::1]:7/lab/2?sentinel_username=asks&sentinel_password=word"


def test_url_of_sentinels_says_where_who_and_which_service() -> None:
    address = sentinel_address(SENTINELS)
    assert address
    assert address.sentinels == (("s1", 26380), ("s2", 26379), ("::1", 7))
    assert address.service == "lab"
    assert address.server_options() == {"username": None, "password": "p@ss", "db": 2}
    assert address.sentinel_options().items() >= {"username": "asks", "password": "word"}.items()
    for server in ("redis://h:6379/0", "rediss://h/0", "unix:///a/socket"):
        assert sentinel_address(server) is None
        assert broker_options(server) == {}


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://s1:26379",
        "redis+sentinel:///lab",
        "redis+sentinel://s1,,s2/lab",
        "redis+sentinel://s1:port/lab",
        "redis+sentinel://s1/lab/first",
        "redis+sentinel://s1/lab?sentinel_pasword=x",
        "redis+sentinel://s1/lab?ssl_ca_certs=/etc/ssl/lab.pem",
    ],
)
def test_what_is_no_url_of_sentinels_is_refused(url: str) -> None:
    with pytest.raises(RedisUrlError, match="URL of Sentinels"):
        sentinel_address(url)


def test_celery_reads_its_url_as_it_is_meant() -> None:
    connection = Connection(broker_url(SENTINELS), transport_options=broker_options(SENTINELS))
    assert (connection.transport_cls, connection.password, connection.virtual_host) == ("sentinel", "p@ss", "2")
    assert [each.rpartition("@")[2] for each in connection.alt] == ["s1:26380/2", "s2:26379/2", "[::1]:7/2"]
    assert (connection.transport_options or {})["master_name"] == "lab"
    assert broker_url("unix:///a/socket") == "redis+socket:///a/socket"
    assert broker_url("redis://:word@h:6379/0") == "redis://:word@h:6379/0"


def test_celery_verifies_certificates_too() -> None:
    for server in ("rediss://h/0", "rediss+sentinel://s1,s2/lab"):
        assert Connection(broker_url(server)).ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    for server in ("rediss://h/0?ssl_ca_certs=/a%20b.pem", "rediss+sentinel://s1/lab?ssl_ca_certs=/a%20b.pem"):
        assert Connection(broker_url(server)).ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED, "ssl_ca_certs": "/a b.pem"}
    assert Connection(broker_url("rediss://h/0?ssl_cert_reqs=none")).ssl == {"ssl_cert_reqs": ssl.CERT_NONE}


def test_tls_is_spoken_to_servers_and_sentinels() -> None:
    address = sentinel_address("rediss+sentinel://s1/lab?ssl_ca_certs=/etc/ssl/lab.pem")
    assert address
    tls = {"ssl": True, "ssl_ca_certs": "/etc/ssl/lab.pem"}.items()
    assert address.server_options().items() >= tls
    assert address.sentinel_options().items() >= tls


def test_another_user_is_given_the_same_redis() -> None:
    assert url_for("unix:///a/socket", "me", "w/d") == "unix://me:w%2Fd@/a/socket"
    assert url_for("redis://:secret@h:6379/0", "me", "word", "other:1") == "redis://me:word@other:1/0"
    ours = url_for(SENTINELS, "me", "word", "t1:1,t2:2")
    assert ours == "redis+sentinel://me:word@t1:1,t2:2/lab/2?sentinel_username=asks&sentinel_password=word"
    assert "p%40ss" not in url_for(SENTINELS, "me", "word")


def test_channel_layer_gets_sentinels_with_time_limits() -> None:
    host = clients.channel_host(SENTINELS)
    assert host["master_name"] == "lab"
    assert host["sentinel_kwargs"]["socket_connect_timeout"]
    assert clients.channel_host("redis://h/0") == {"address": "redis://h/0"}
