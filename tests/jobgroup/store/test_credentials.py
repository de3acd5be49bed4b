"""User and password come from files, and change while sagas run."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import AuthenticationError

from jobgroup import Driver, JobGroups, Store
from jobgroup.store import credentials
from jobgroup.store.connection import RedisError, is_transient
from jobgroup.store.settings import read_redis_settings
from testbed.servers.redis import RedisServer
from testbed.servers.redis_sentinel import SentinelServers
from testbed.support.sagas import reached
from testbed.support.waiting import eventually

# ruff: noqa: ASYNC240, S106
pytestmark = pytest.mark.server

JOBS = [{"name": "pay", "queueName": "payments"}]
USER = ("~*", "&*", "+@all")


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "LOOK_SECONDS", 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def password(tmp_path: Path) -> Path:
    return tmp_path / "password"


def set_password(server: RedisServer, word: str) -> None:
    server.call("ACL", "SETUSER", "shop", "on", "resetpass", f">{word}", *USER)


@asynccontextmanager
async def connected(**env: str) -> AsyncIterator[JobGroups]:
    settings = read_redis_settings(env)
    async with JobGroups(Store(settings.connect(), settings.prefix)) as groups:
        yield groups


def in_file(server: RedisServer, password: Path) -> dict[str, str]:
    url = server.url.replace("redis://", "redis://shop@")
    return {"REDIS_URL": url, "REDIS_PASSWORD_FILE": str(password)}


def close_connections(server: RedisServer) -> None:
    server.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def reports(groups: JobGroups, text: str) -> None:
    """Wait until calls fail with a transient error that begins with a text."""
    last: list[RedisError] = []

    async def does() -> bool:
        try:
            await groups.store.ping()
        except RedisError as error:
            last[:] = [error]
        return bool(last) and str(last[0]).startswith(text)

    await eventually(does)
    assert is_transient(last[0])


async def works(groups: JobGroups) -> None:
    """Wait until a call succeeds."""

    async def does() -> bool:
        try:
            await groups.store.ping()
        except RedisError:
            return False
        return True

    await eventually(does)


async def test_sagas_run_while_the_password_changes(server: RedisServer, password: Path) -> None:
    password.write_text("one")
    set_password(server, "one")
    async with connected(**in_file(server, password)) as groups:
        driver = asyncio.create_task(Driver(groups.store).run())
        for word in ("two", "three"):
            node = await groups.add_group("order", JOBS)
            # The server first, as with a Secret that is mounted a minute later. It also closes all
            # connections, as a provider does when a token expires.
            set_password(server, word)
            close_connections(server)
            await reports(groups, f"Redis rejects the credentials in {password}, which are read")
            password.write_text(word)
            await works(groups)
            await groups.cancel_group(node.group_id)
            await reached(groups.store, node.group_id, state="FAILED")
        assert not driver.done()
        driver.cancel()
        await asyncio.wait([driver])


async def test_an_open_connection_authenticates_again_and_survives_a_rejection(
    server: RedisServer, password: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password.write_text("one")
    set_password(server, "one")
    async with connected(**in_file(server, password)) as groups:
        await groups.store.ping()
        opened: Any
        (opened,) = groups.store.redis.connection_pool._available_connections
        # The file is newer than the server: the connection still works.
        password.write_text("newer")
        await groups.store.ping()
        assert f"Redis rejects the credentials in {password}" in caplog.text
        assert "newer" not in caplog.text
        set_password(server, "newer")

        async def is_authenticated() -> bool:
            await groups.store.ping()
            return bool(opened._used == ("shop", "newer"))

        await eventually(is_authenticated)
        assert groups.store.redis.connection_pool._available_connections == [opened]
        assert opened.is_connected


async def test_a_file_that_looks_the_same_is_read_again_after_a_rejection(
    server: RedisServer, password: Path
) -> None:
    password.write_text("one")
    set_password(server, "one")
    async with connected(**in_file(server, password)) as groups:
        await groups.store.ping()
        before = password.stat()
        password.write_text("two")
        os.utime(password, ns=(before.st_atime_ns, before.st_mtime_ns))
        set_password(server, "two")
        close_connections(server)
        await works(groups)


def test_a_file_that_cannot_be_read_is_logged_once(
    password: Path, caplog: pytest.LogCaptureFixture
) -> None:
    password.write_text("one")
    env = {"REDIS_URL": "redis://h", "REDIS_PASSWORD_FILE": str(password)}
    options: Any = read_redis_settings(env).connect().connection_pool.connection_kwargs
    found = options["credential_provider"]
    password.unlink()
    for _ in range(3):
        assert found.current() == ("one",)
    password.mkdir()
    for _ in range(3):
        assert found.current() == ("one",)
    said = f"keeping the credentials of Redis: REDIS_PASSWORD_FILE: {password} cannot be read: "
    assert [each.message for each in caplog.records] == [
        f"{said}No such file or directory",
        f"{said}Is a directory",
    ]
    password.rmdir()
    password.write_text("two")
    assert found.current() == ("two",)


async def test_a_file_with_the_url_is_read_again(server: RedisServer, tmp_path: Path) -> None:
    url = tmp_path / "url"
    url.write_text(server.url.replace("redis://", "redis://shop:one@"))
    set_password(server, "one")
    async with connected(REDIS_URL_FILE=str(url)) as groups:
        await groups.store.ping()
        set_password(server, "two")
        url.write_text(server.url.replace("redis://", "redis://shop:two@"))
        close_connections(server)
        await works(groups)
        # What cannot be read, because it is being replaced, changes nothing.
        url.unlink()
        await groups.store.ping()


async def test_a_wrong_password_that_is_in_no_file_is_permanent(server: RedisServer) -> None:
    set_password(server, "one")
    url = server.url.replace("redis://", "redis://shop:hunter2@")
    async with connected(REDIS_URL=url) as groups:
        with pytest.raises(AuthenticationError) as raised:
            await groups.store.ping()
    assert not is_transient(raised.value)
    assert "hunter2" not in str(raised.value)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="this Redis is in packages of Debian")
async def test_the_password_of_the_sentinels_changes(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("one")
    with SentinelServers(tmp_path / "servers", sentinel_password="one") as servers:
        env = {
            "REDIS_URL": servers.url.partition("?")[0],
            "REDIS_SENTINEL_PASSWORD_FILE": str(password),
        }
        async with connected(**env) as groups:
            await groups.store.ping()
            password.write_text("two")
            await groups.store.redis.connection_pool.disconnect()
            said = "no sentinel knows the master of shop: a sentinel rejects the credentials in"
            await reports(groups, said)
            for sentinel in servers.sentinels:
                sentinel.call("ACL", "SETUSER", "default", ">two")
            await groups.store.ping()
