"""The tests leave what they did not create: an API server with controllers, without a chart."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cluster import installation
from testbed.servers.apiserver import ApiServer
from testbed.support.errors import Unavailable
from testbed.support.resources import CRDS, install_crds, manifest, namespace_named
from testbed.support.sagas import job

ORDER = manifest("order", job("charge"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with ApiServer(tmp_path_factory.mktemp("cluster"), controllers=True) as server:
        yield server


@pytest.fixture
def cluster(server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """Return a cluster with the namespace that the chart is installed in, and nothing else."""
    monkeypatch.setenv("KUBECONFIG", str(server.admin))
    monkeypatch.setattr(installation, "uninstall", lambda: None)
    server.user.create(namespace_named(installation.NAMESPACE))
    yield server
    server.kubectl("delete", "--ignore-not-found", "-f", str(CRDS))
    server.kubectl("delete", "namespace", "--ignore-not-found", installation.NAMESPACE)


def install(cluster: ApiServer) -> None:
    """Install the CRDs as the chart of the tests does."""
    install_crds(cluster)
    owner = f"meta.helm.sh/release-namespace={installation.NAMESPACE}"
    cluster.kubectl("annotate", "crds", *installation.CRDS, owner)


def order(cluster: ApiServer, namespace: str = "default", name: str = "order") -> None:
    body = {**ORDER, "metadata": {"name": name}}
    cluster.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(body))


def crds(cluster: ApiServer) -> set[str]:
    return set(cluster.kubectl("get", "crds", "--output=name").split())


NAMES = {f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in installation.CRDS}


def test_what_a_run_installed_is_removed(cluster: ApiServer) -> None:
    assert installation.refuse_others() == []
    install(cluster)
    assert installation.is_installed()
    installation.remove([])
    assert crds(cluster) == set()
    assert cluster.user.get("Namespace", installation.NAMESPACE) is None
    assert not installation.is_installed()


def test_crds_that_were_there_before_are_left(cluster: ApiServer) -> None:
    install(cluster)
    before = installation.refuse_others()
    assert sorted(before) == sorted(installation.CRDS)
    installation.remove(before)
    assert crds(cluster) == NAMES


def test_crds_of_another_installation_are_refused(cluster: ApiServer) -> None:
    install_crds(cluster)
    with pytest.raises(Unavailable, match="The operator is installed in this cluster already"):
        installation.refuse_others()


def test_a_cluster_with_objects_that_no_test_created_is_refused(cluster: ApiServer) -> None:
    install(cluster)
    for number in range(5):
        order(cluster, name=f"order-{number}")
    listed = "default/order-0, default/order-1, default/order-2 and 2 more"
    with pytest.raises(Unavailable, match=f"objects that no test created: {listed}"):
        installation.refuse_others()


def test_objects_of_a_kept_story_are_accepted(cluster: ApiServer) -> None:
    install(cluster)
    story = namespace_named("story-1")
    story["metadata"]["labels"] = {installation.STORY_LABEL: ""}
    cluster.user.create(story)
    order(cluster, "story-1")
    assert installation.refuse_others()
    cluster.user.delete("Namespace", "story-1")


def test_objects_that_somebody_created_during_a_run_are_kept(
    cluster: ApiServer, capsys: pytest.CaptureFixture[str]
) -> None:
    install(cluster)
    order(cluster)
    installation.remove([])
    assert crds(cluster) == NAMES
    assert capsys.readouterr().out == "Kept the CRDs: no test created default/order.\n"


def test_the_namespaces_of_stories_have_the_label() -> None:
    conftest = Path(__file__).parents[2] / "e2e" / "conftest.py"
    assert "{STORY_LABEL:" in conftest.read_text()
