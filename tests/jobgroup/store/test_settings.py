"""Each variable: its default, its valid values, and the message for others."""

from pathlib import Path
from typing import Any

import pytest

from jobgroup import JobGroups, connect
from jobgroup.errors import InvalidSpecError
from jobgroup.store.pool import SocketConnection, TlsConnection
from jobgroup.store.redis_url import parse
from jobgroup.store.settings import RedisSettings, SettingsError, read_redis_settings

LOOK = (
    "REDIS_URL: the Redis URL must look like redis://user:password@host:6379/0, with the special"
    " characters of a password percent-encoded"
)
DATABASE = "REDIS_URL: the database must be a number, as in redis://host:6379/0"
# redis-py adds more of its own.
OF_URLS = {"host", "port", "db", "path", "username", "password", "health_check_interval"}
OF_URLS |= {"ssl_ca_certs", "ssl_cert_reqs"}
PREFIX = r"[^\s:]{1,64}(:[^\s:]{1,64})*"


def refusal(**env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read_redis_settings(env)
    return str(caught.value)


def parsed(**env: str) -> tuple[type, dict[str, Any]]:
    """Return how the client of the settings connects."""
    pool = read_redis_settings(env).connect().connection_pool
    kwargs = dict(pool.connection_kwargs)
    if provider := kwargs.pop("credential_provider", None):
        *user, kwargs["password"] = provider.get_credentials()
        kwargs |= dict(zip(["username"], user, strict=False))
    if certificates := kwargs.pop("certificates", None):
        kwargs |= certificates.options
    found = {name: kwargs[name] for name in kwargs.keys() & OF_URLS}
    defaults = {"host": "localhost", "port": 6379}
    return pool.connection_class, {
        name: value for name, value in found.items() if defaults.get(name) != value
    }


@pytest.mark.parametrize("env", [{}, dict.fromkeys(("REDIS_URL", "BULLMQ_PREFIX"), "")])
def test_an_unset_or_empty_variable_means_its_default(env: dict[str, str]) -> None:
    found = read_redis_settings(env)
    assert found == RedisSettings(parse("redis://127.0.0.1:6379/0"), "bull")
    assert found.location == "127.0.0.1:6379"


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("BULLMQ_PREFIX", "{bull}", "prefix", "{bull}"),
        ("BULLMQ_PREFIX", "shop:queues", "prefix", "shop:queues"),
        ("REDIS_URL", "redis://h", "location", "h:6379"),
        ("REDIS_URL", "redis://u:p@h:1/2", "location", "h:1"),
        ("REDIS_URL", "REDISS://h:1", "location", "h:1"),
        ("REDIS_URL", "unix:///run/redis.sock", "location", "/run/redis.sock"),
        ("REDIS_URL", "redis+sentinel://u:p@h1,h2:2/main", "location", "h1:26379,h2:2/main"),
    ],
)
def test_a_good_value_is_taken(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(read_redis_settings({name: value}), field) == expected


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("BULLMQ_PREFIX", "a b", f"'a b' must match {PREFIX}"),
        ("BULLMQ_PREFIX", "a:", f"'a:' must match {PREFIX}"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str, sentence: str) -> None:
    assert refusal(**{name: value}) == f"{name}: {sentence}"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://:hunter2#x@h", LOOK),
        ("redis://:hunter2/x@h", LOOK),
        ("redis://:hunter2?x@h", LOOK),
        ("redis://:hunter2@h/zero", DATABASE),
        ("redis://:hunter2@h/0/1", DATABASE),
        (
            "redis://:hunter2@h?socket_timeout=soon",
            "REDIS_URL: Invalid value for 'socket_timeout' in connection URL.",
        ),
    ],
)
def test_a_bad_url_is_refused_without_its_password(url: str, sentence: str) -> None:
    assert refusal(REDIS_URL=url) == sentence
    assert "hunter2" not in sentence


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", {}),
        ("redis://h", {"host": "h"}),
        ("redis://h/", {"host": "h"}),
        ("redis://h:1/2", {"host": "h", "port": 1, "db": 2}),
        ("redis://[::1]:1", {"host": "::1", "port": 1}),
        ("redis://:p@h", {"host": "h", "password": "p"}),
        ("redis://u@h", {"host": "h", "username": "u"}),
        ("redis://u:p@[::1]/3", {"host": "::1", "username": "u", "password": "p", "db": 3}),
        ("redis://:a,b@h", {"host": "h", "password": "a,b"}),
        ("redis://:50%@h", {"host": "h", "password": "50%"}),
        ("redis://:%40%3A%2F%25@h", {"host": "h", "password": "@:/%"}),
        ("redis://:a+b@h", {"host": "h", "password": "a+b"}),
        ("redis://h?health_check_interval=5", {"host": "h", "health_check_interval": 5}),
        ("unix:///run/redis.sock?db=4", {"path": "/run/redis.sock", "db": 4}),
        ("unix://u:p@/run/r.sock", {"path": "/run/r.sock", "username": "u", "password": "p"}),
    ],
)
def test_redis_py_reads_the_url_as_intended(url: str, expected: dict[str, Any]) -> None:
    _, kwargs = parsed(REDIS_URL=url)
    assert kwargs == expected


HARD_WORDS = [
    "hunter2",
    "p@ss:w/o?r#d&x=y%20+z",
    "100%",
    "%41",
    " in spaces ",
    "\ttab",
    "a,b;c",
    "[::2]",
    "p\u00e4\u00df\u4e16\N{PILE OF POO}",
    "'\"\\$(`",
    "two\nlines",
    "p" * 5_000,
]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"], ids=repr)
@pytest.mark.parametrize("word", HARD_WORDS, ids=range(len(HARD_WORDS)))
@pytest.mark.parametrize("url", ["redis://h:1/2", "redis://u:old@h:1/2", "rediss://[::1]:1"])
def test_user_and_password_may_be_in_files(url: str, word: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(f"{word}{end}".encode())
    _, kwargs = parsed(REDIS_URL=url, REDIS_PASSWORD_FILE=str(path))
    assert kwargs["password"] == word
    assert kwargs.get("username") == ("u" if "u:" in url else None)
    assert (kwargs["port"], kwargs["host"]) == (1, "::1" if "::1" in url else "h")
    _, kwargs = parsed(REDIS_URL=url, REDIS_PASSWORD_FILE=str(path), REDIS_USERNAME_FILE=str(path))
    assert (kwargs["username"], kwargs["password"]) == (word, word)
    found = read_redis_settings({"REDIS_URL": url, "REDIS_PASSWORD_FILE": str(path)})
    assert word not in found.location


def test_a_socket_may_have_a_password_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("p@ss")
    kind, kwargs = parsed(REDIS_URL="unix:///run/r.sock?db=1", REDIS_PASSWORD_FILE=str(path))
    assert kind is SocketConnection
    assert kwargs == {"path": "/run/r.sock", "password": "p@ss", "db": 1}


def test_the_url_may_be_in_a_file(tmp_path: Path) -> None:
    path, password = tmp_path / "url", tmp_path / "password"
    path.write_text("redis://u:old@h:1/2\n")
    password.write_text("p@ss")
    env = {"REDIS_URL_FILE": str(path), "REDIS_PASSWORD_FILE": str(password)}
    _, kwargs = parsed(REDIS_URL="redis://other", **env)
    assert kwargs == {"host": "h", "port": 1, "db": 2, "username": "u", "password": "p@ss"}
    path.write_text("redis://:hunter2@h/zero")
    assert refusal(REDIS_URL_FILE=str(path)) == DATABASE


@pytest.mark.parametrize("name", ["REDIS_URL_FILE", "REDIS_USERNAME_FILE", "REDIS_PASSWORD_FILE"])
def test_an_unreadable_file_is_named_without_its_content(name: str, tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing", tmp_path / "binary"
    binary.write_bytes(b"hunter2\xff")
    gone = f"{name}: {missing} cannot be read: No such file or directory"
    assert refusal(**{name: str(missing)}) == gone
    assert refusal(**{name: str(tmp_path)}) == f"{name}: {tmp_path} cannot be read: Is a directory"
    assert refusal(**{name: str(binary)}) == f"{name}: {binary} is not text in UTF-8"


@pytest.mark.parametrize("name", ["ca.crt", "a b&c=d%20+#?.crt"])
@pytest.mark.parametrize(
    ("url", "others"),
    [
        ("rediss://h", {"host": "h"}),
        ("rediss:///", {}),
        ("rediss://h/1?ssl_cert_reqs=none", {"host": "h", "db": 1, "ssl_cert_reqs": "none"}),
        ("rediss://h?ssl_ca_certs=/old", {"host": "h"}),
        ("REDISS://u:p@h", {"host": "h", "username": "u", "password": "p"}),
    ],
)
def test_certificates_may_be_checked_against_a_file(
    url: str, others: dict[str, Any], name: str, tmp_path: Path
) -> None:
    authority = tmp_path / name
    authority.touch()
    kind, kwargs = parsed(REDIS_URL=url, REDIS_CA_FILE=str(authority))
    assert kind is TlsConnection
    assert kwargs == {**others, "ssl_ca_certs": str(authority)}


def test_certificates_need_a_file_and_tls(tmp_path: Path) -> None:
    missing = str(tmp_path / "ca.crt")
    assert refusal(REDIS_URL="rediss://:hunter2@h", REDIS_CA_FILE=missing) == (
        f"REDIS_CA_FILE: there is no file {missing}"
    )
    for url in ("redis://:hunter2@h", "unix:///s"):
        assert refusal(REDIS_URL=url, REDIS_CA_FILE=missing) == (
            "REDIS_CA_FILE: only a rediss:// URL uses certificates, or rediss+sentinel:// and"
            " rediss+cluster://"
        )


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_in_the_url_must_exist(name: str, tmp_path: Path) -> None:
    missing = tmp_path / "tls.pem"
    sentence = f"there is no file {missing}, which is the parameter {name}"
    url = f"rediss+sentinel://:hunter2@h/main?{name}={missing}"
    assert refusal(REDIS_URL=url) == f"REDIS_URL: {sentence}"
    with pytest.raises(InvalidSpecError, match=sentence):
        connect(url)
    missing.touch()
    read_redis_settings({"REDIS_URL": url})


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
def test_a_client_certificate_may_be_in_files(scheme: str, tmp_path: Path) -> None:
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).touch()
    files = {
        "REDIS_CERT_FILE": str(tmp_path / "tls.crt"),
        "REDIS_KEY_FILE": str(tmp_path / "tls.key"),
    }
    env = {"REDIS_URL": f"{scheme}://h", "BULLMQ_PREFIX": "{bull}", **files}
    pool = read_redis_settings(env).connect().connection_pool
    options = pool.connection_kwargs["certificates"].options
    assert options["ssl_certfile"] == files["REDIS_CERT_FILE"]
    assert options["ssl_keyfile"] == files["REDIS_KEY_FILE"]
    del env["REDIS_CERT_FILE"]
    assert refusal(**env) == "REDIS_KEY_FILE: a key needs the certificate in REDIS_CERT_FILE"


def test_the_login_at_the_sentinels_may_be_in_files(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    env = {
        "REDIS_URL": "redis+sentinel://u:p@h/main?sentinel_username=s&sentinel_password=old",
        "REDIS_SENTINEL_PASSWORD_FILE": str(password),
    }
    found = read_redis_settings(env)
    assert (found.url.sentinel_username, found.url.sentinel_password) == ("s", "hunter2")
    assert (found.url.username, found.url.password) == ("u", "p")
    assert "hunter2" not in repr(found) + found.location
    assert refusal(**{**env, "REDIS_URL": "redis://:hunter2@h"}) == (
        "REDIS_SENTINEL_PASSWORD_FILE: only a redis+sentinel:// URL has sentinels"
    )


TAG = "a Redis Cluster needs a hash tag that puts all keys of the prefix into one slot: use {}"


def test_a_cluster_needs_a_prefix_with_a_hash_tag() -> None:
    cluster = {"REDIS_URL": "redis+cluster://:hunter2@h"}
    assert refusal(**cluster) == f"BULLMQ_PREFIX: {TAG.format('{bull}')}"
    wrong = f"BULLMQ_PREFIX: {TAG.format('{shop:queues}')}"
    assert refusal(**cluster, BULLMQ_PREFIX="shop:queues") == wrong
    assert read_redis_settings({**cluster, "BULLMQ_PREFIX": "{shop}:queues"}).location == "h:6379"
    with pytest.raises(InvalidSpecError, match="needs a hash tag"):
        JobGroups.connect("redis+cluster://h", "bull")
    with pytest.raises(InvalidSpecError, match="needs a hash tag"):
        connect("redis+cluster://h")


def test_the_command_line_replaces_url_and_prefix() -> None:
    env = {"REDIS_URL": "redis://h1", "REDIS_PASSWORD_FILE": "/nowhere", "BULLMQ_PREFIX": "other"}
    found = read_redis_settings(env, "redis+cluster://h2", "{bull}")
    assert (found.location, found.prefix) == ("h2:6379", "{bull}")
    with pytest.raises(SettingsError, match=r"^--prefix: a Redis Cluster needs"):
        read_redis_settings(env, "redis+cluster://h2", "bull")
    with pytest.raises(SettingsError, match=r"^--redis: the Redis URL names several hosts"):
        read_redis_settings(env, "redis://h1,h2")
