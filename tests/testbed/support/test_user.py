"""A user of the Kubernetes API: objects, refusals and waiting, on a real API server."""

import threading

import pytest
from kubernetes.watch import Watch

from testbed.servers.apiserver import ApiServer
from testbed.support.errors import Rejected
from testbed.support.user import User
from testbed.support.workloads import workload


@pytest.fixture
def user(api: ApiServer, namespace: str) -> User:
    return api.user.within(namespace)


def replicas(user: User, name: str = "web") -> int:
    found = user.get("Deployment", name)
    assert found
    return int(found["spec"]["replicas"])


def test_objects_are_created_changed_and_deleted(user: User) -> None:
    user.create(workload("web", 1))
    assert replicas(user) == 1
    user.apply(workload("web", 2), workload("mail", 0))
    user.patch("Deployment", "mail", {"spec": {"replicas": 3}})
    assert (replicas(user), replicas(user, "mail")) == (2, 3)
    found = user.find("Deployment", field_selector="metadata.name=mail")
    assert [(each["kind"], each["metadata"]["name"]) for each in found] == [("Deployment", "mail")]
    user.delete("Deployment", "web")
    assert user.get("Deployment", "web") is None
    user.delete_all("Deployment")
    assert user.find("Deployment") == []


def test_a_namespace_holds_only_its_own_objects(user: User) -> None:
    user.create(workload("web"))
    assert user.within("default").get("Deployment", "web") is None
    everywhere = [each["metadata"]["namespace"] for each in user.within("").find("Deployment")]
    assert user.namespace in everywhere


def test_a_refusal_has_the_sentence_of_the_server(user: User) -> None:
    user.create(workload("web"))
    with pytest.raises(Rejected, match=r'^deployments.apps "web" already exists$'):
        user.create(workload("web"))
    wrong = workload("mail")
    wrong["spec"]["replcas"] = 1
    with pytest.raises(Rejected, match=r'unknown field "spec.replcas"'):
        user.create(wrong)
    with pytest.raises(Rejected, match=r'^deployments.apps "other" not found$'):
        user.patch("Deployment", "other", {"spec": {"replicas": 3}})
    with pytest.raises(Rejected, match=r"no kind Fleet of example.org/v1"):
        user.patch("example.org/v1/Fleet", "a", {})


def test_waiting_ends_with_the_change_that_is_waited_for(user: User) -> None:
    user.create(workload("web"))
    change = {"spec": {"replicas": 2}}
    later = threading.Timer(0.3, user.patch, ("Deployment", "web", change))
    later.start()
    found = user.wait_for("Deployment", "web", lambda body: body["spec"]["replicas"] == 2)
    assert found["metadata"]["name"] == "web"
    later = threading.Timer(0.3, user.delete, ("Deployment", "web"))
    later.start()
    user.wait_gone("Deployment", field_selector="metadata.name=web")
    assert user.get("Deployment", "web") is None


def test_waiting_in_vain_fails_with_the_last_state(api: ApiServer, user: User) -> None:
    hasty = User(api.user.client, user.namespace, patience=1)
    hasty.create(workload("web"))
    with pytest.raises(AssertionError, match="Deployment web is not as expected after 1 s"):
        hasty.wait_for("Deployment", "web", lambda _: False)
    with pytest.raises(AssertionError, match="Deployment still there after 1 s: web"):
        hasty.wait_gone("Deployment")
    with pytest.raises(AssertionError, match="there is no Deployment mail"):
        hasty.wait_for("Deployment", "mail", lambda _: True)


def test_a_watch_begins_with_what_exists_and_ends_when_it_is_stopped(user: User) -> None:
    user.create(workload("web"))
    watcher, seen = Watch(), []
    for change, body in user.watch("Deployment", watcher):
        seen.append((change, body["metadata"]["name"]))
        if change == "ADDED":
            user.delete("Deployment", "web")
        else:
            watcher.stop()
    assert seen == [("ADDED", "web"), ("DELETED", "web")]


def test_every_text_can_be_applied(user: User) -> None:
    text = 'Zoë 😀 \u2028 \x7f " \\ud83d'
    for _ in range(2):
        user.apply({**workload("web"), "metadata": {"name": "web", "annotations": {"note": text}}})
    found = user.get("Deployment", "web")
    assert found
    assert found["metadata"]["annotations"] == {"note": text}


def test_an_apply_removes_the_fields_that_it_no_longer_has(user: User) -> None:
    paused = workload("web")
    paused["spec"]["paused"] = True
    user.apply(paused)
    user.apply(workload("web"))
    found = user.get("Deployment", "web")
    assert found
    assert "paused" not in found["spec"]
