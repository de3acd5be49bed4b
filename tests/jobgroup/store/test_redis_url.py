"""Each form of a URL, and a sentence for each mistake."""

from typing import Any

import pytest

from jobgroup.errors import InvalidSpecError
from jobgroup.store.redis_url import Kind, RedisUrl, hash_tag, parse, tagged

LIST = "redis+sentinel://h1:1,h2/main"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", RedisUrl(Kind.SINGLE, False, (("localhost", 6379),))),
        ("rediss://h", RedisUrl(Kind.SINGLE, True, (("h", 6379),))),
        ("REDIS://h:1", RedisUrl(Kind.SINGLE, False, (("h", 1),))),
        ("redis://[::1]:1", RedisUrl(Kind.SINGLE, False, (("::1", 1),))),
        ("redis://[::1]", RedisUrl(Kind.SINGLE, False, (("::1", 6379),))),
        ("unix:///run/r.sock", RedisUrl(Kind.SOCKET, False, (), path="/run/r.sock")),
        (
            "redis+sentinel://h1:1,h2/main",
            RedisUrl(Kind.SENTINEL, False, (("h1", 1), ("h2", 26379)), service="main"),
        ),
        (
            "rediss+sentinel://[::1]:1,[fe80::2]/a%20b/",
            RedisUrl(
                Kind.SENTINEL,
                True,
                (("::1", 1), ("fe80::2", 26379)),
                service="a b",
                sentinel_tls=True,
            ),
        ),
        ("redis+cluster://h1,h2:2", RedisUrl(Kind.CLUSTER, False, (("h1", 6379), ("h2", 2)))),
        ("rediss+cluster://h1:1/0", RedisUrl(Kind.CLUSTER, True, (("h1", 1),))),
    ],
)
def test_kind_and_hosts(url: str, expected: RedisUrl) -> None:
    assert parse(url) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://u:p@h/3", {"username": "u", "password": "p", "options": {"db": "3"}}),
        ("redis://h/3?db=4", {"options": {"db": "4"}}),
        ("redis://h?username=u&password=p", {"username": "u", "password": "p", "options": {}}),
        ("redis://h?username=u&password=a%2Bb+c%20d", {"password": "a+b+c d"}),
        ("redis://:p@ss@h", {"username": "", "password": "p@ss"}),
        ("redis+cluster://:a,b@h1,h2", {"password": "a,b"}),
        ("redis+cluster://u:%40%3A%2F%25@h", {"username": "u", "password": "@:/%"}),
        ("redis+sentinel://u:p@h/main/5", {"password": "p", "options": {"db": "5"}}),
        (
            f"{LIST}?sentinel_username=a&sentinel_password=%26b&ssl_check_hostname=false"
            "&sentinel_tls=true",
            {
                "sentinel_username": "a",
                "sentinel_password": "&b",
                "sentinel_tls": True,
                "tls": False,
                "options": {"ssl_check_hostname": "false"},
            },
        ),
        (
            f"{LIST}?sentinel_tls=false".replace("redis+", "rediss+"),
            {"tls": True, "sentinel_tls": False, "options": {}},
        ),
    ],
)
def test_users_and_parameters(url: str, expected: dict[str, Any]) -> None:
    found = parse(url)
    assert {name: getattr(found, name) for name in expected} == expected


BEGINNING = (
    "the Redis URL must begin with redis://, rediss://, unix://, redis+sentinel://,"
    " rediss+sentinel://, redis+cluster:// or rediss+cluster://"
)
LOOK = "the Redis URL must look like {}, with the special characters of a password percent-encoded"
OF_SENTINELS = (
    "the Redis URL has the parameter {}, which only redis+sentinel:// and rediss+sentinel:// have"
)
SERVICE = (
    "the Redis URL must name the service that the sentinels watch, as in"
    " redis+sentinel://host:26379/mymaster/0"
)
PORT = "the port of {} of the Redis URL is not one from 1 to 65535"
ONCE = (
    "the Redis URL must name user and password once, before the first host, as in {}, with the"
    " special characters of a password percent-encoded"
)
NO_HOST = "the Redis URL names no host, as in {}"
CLUSTER = "redis+cluster://user:password@host1:6379,host2:6379"
SENTINEL = "redis+sentinel://user:password@host1:26379,host2:26379/mymaster/0"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("hunter2", BEGINNING),
        ("hunter2://h", BEGINNING),
        ("sentinel://:hunter2@h", BEGINNING),
        ("redis:h", BEGINNING),
        ("redis://:hun/ter2@h", LOOK.format("redis://user:password@host:6379/0")),
        ("redis+cluster://:hun?ter2@h1,h2", LOOK.format(CLUSTER)),
        ("redis+sentinel://:hun#ter2@h/m", LOOK.format(SENTINEL)),
        ("redis://h/0#hunter2", LOOK.format("redis://user:password@host:6379/0")),
        (
            "redis://:hunter2@h1:1,h2:2",
            "the Redis URL names several hosts: use redis+sentinel:// for sentinels, or"
            " redis+cluster:// for a Redis Cluster",
        ),
        ("redis+sentinel://:hunter2@h1:1,h2:2", SERVICE),
        ("redis+sentinel://h1//3", SERVICE),
        (
            "redis+sentinel://h/main/zero",
            "the database must be a number, as in redis+sentinel://host:26379/mymaster/0",
        ),
        (
            "redis+sentinel://h/main/0/1",
            "the database must be a number, as in redis+sentinel://host:26379/mymaster/0",
        ),
        ("redis://h/zero", "the database must be a number, as in redis://host:6379/0"),
        ("redis+cluster://h/main", "the database must be a number, as in redis://host:6379/0"),
        ("redis+cluster://h/1", "a Redis Cluster has only the database 0"),
        ("redis+cluster://h?db=1", "a Redis Cluster has only the database 0"),
        ("redis+cluster://:hunter2@", NO_HOST.format(CLUSTER)),
        ("redis+sentinel:///main", NO_HOST.format(SENTINEL)),
        ("redis+cluster://h1,,h3", "host 2 of the Redis URL is empty"),
        ("redis+cluster://h1,", "host 2 of the Redis URL is empty"),
        ("redis+cluster://:1", "the host of the Redis URL is empty"),
        ("redis+cluster://h1,h2:port", PORT.format("host 2")),
        ("redis+cluster://h1:0", PORT.format("the host")),
        ("redis://h:65536", PORT.format("the host")),
        ("redis://[::1", "the host of the Redis URL is not host:port; an IPv6 address must be in"
         " brackets, as in [::1]:6379"),
        ("redis+cluster://h,fe80::1", "host 2 of the Redis URL is not host:port; an IPv6 address"
         " must be in brackets, as in [::1]:6379"),
        ("redis://h?sentinel_password=hunter2", OF_SENTINELS.format("sentinel_password")),
        ("redis+cluster://h?sentinel_tls=true", OF_SENTINELS.format("sentinel_tls")),
        (f"{LIST}?sentinel_tls=1", "the parameter sentinel_tls of the Redis URL must be true or"
         " false"),
        ("redis://h?databse=1", "the Redis URL has the unknown parameter databse; those of"
         " redis-py are known"),
        ("redis://h?Hunter2!=1", "the Redis URL has the unknown parameter; those of redis-py are"
         " known"),
        ("redis://h?ssl_ca_certs=/ca", "the Redis URL has the parameter ssl_ca_certs, but no TLS:"
         " use a rediss... scheme"),
        (f"rediss{LIST[5:]}?sentinel_tls=no", "the parameter sentinel_tls of the Redis URL must be"
         " true or false"),
        ("redis://u:hunter2@h1,u2:hunter2@h2", ONCE.format("redis://user:password@host:6379/0")),
        ("redis+cluster://u:hunter2@h1,u2:hunter2@h2", ONCE.format(CLUSTER)),
        (f"{LIST}?sentinel_tls=", "the parameter sentinel_tls of the Redis URL is empty"),
        ("redis://h?password", "the parameter password of the Redis URL is empty"),
        ("redis+cluster://h1;h2", "the host of the Redis URL is neither a name nor an address"),
        ("redis+cluster://h1,h name", "host 2 of the Redis URL is neither a name nor an address"),
        ("redis://h%20name", "the host of the Redis URL is neither a name nor an address"),
        ("redis://h?db=-1", "the database must be a number, as in redis://host:6379/0"),
        (f"{LIST}?db=x", "the database must be a number, as in"
         " redis+sentinel://host:26379/mymaster/0"),
        ("unix://h", "the Redis URL names no socket, as in unix:///run/redis.sock"),
    ],
)  # fmt: skip
def test_a_mistake_has_a_sentence_without_secrets(url: str, sentence: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        parse(url)
    assert str(caught.value) == sentence
    assert "hunter2" not in sentence


def test_the_location_names_all_hosts_and_no_secret() -> None:
    query = "sentinel_username=hunter2&sentinel_password=hunter2&ssl_password=hunter2"
    found = parse(f"rediss+sentinel://hunter2:hunter2@h1:1,[::1]/main/3?{query}")
    assert found.location == "h1:1,[::1]:26379/main"
    assert parse("redis://:hunter2@h").location == "h:6379"
    assert parse("redis+cluster://h1,h2:2").location == "h1:6379,h2:2"
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("prefix", "tag", "right"),
    [
        ("{bull}", "bull", ""),
        ("shop:{a:b}:x", "a:b", ""),
        ("{{a}", "{a", ""),
        ("bull", "", "{bull}"),
        ("shop:queues", "", "{shop:queues}"),
        ("{}bull", "", "{bull}"),
        ("{}{bull}", "", "{bull}"),
        ("{bull", "", "{bull}"),
        ("}{", "", "{bull}"),
    ],
)
def test_the_hash_tag_of_a_prefix(prefix: str, tag: str, right: str) -> None:
    assert hash_tag(prefix) == tag
    if right:
        assert tagged(prefix) == right
        assert hash_tag(right)
