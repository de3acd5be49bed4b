"""A cluster that has never seen the chart."""

from collections.abc import Iterator

import pytest

from testbed.apiserver import ApiServer


@pytest.fixture(scope="session")
def bare_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("bare")) as api:
        yield api
