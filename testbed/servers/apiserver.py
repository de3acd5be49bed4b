"""A Kubernetes API server on this machine: etcd, kube-apiserver and, on request, controllers."""

import json
import secrets
import ssl
import subprocess
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from testbed import ROOT
from testbed.build import binaries
from testbed.servers.processes import Server, free_port, on_free_port

if TYPE_CHECKING:
    from testbed.support.user import User

OPERATOR_MANIFEST = ROOT / "deploy" / "rbac.yaml"
OPERATOR_NAMESPACE = "jobgroup-system"
OPERATOR_ACCOUNT = "jobgroup-operator"


class ApiServer:
    """etcd and kube-apiserver with two identities: an admin, and the operator with its RBAC."""

    def __init__(
        self,
        folder: Path,
        controllers: bool = False,
        apiserver_flags: Sequence[str] = (),
    ) -> None:
        self._folder = folder
        self._token = secrets.token_urlsafe()
        self._flags = apiserver_flags
        names = ["etcd", "kube-apiserver", "kubectl"]
        self._binaries = binaries.find(*names, *["kube-controller-manager"] * controllers)
        with ExitStack() as undo:
            self._write_secrets()
            self._etcd, self._etcd_port = on_free_port(self._start_etcd)
            # Killed instead of stopped: it is faster, and the data is thrown away.
            undo.callback(lambda: self._etcd.kill())
            self._apiserver, self._port = on_free_port(self._start_apiserver)
            undo.callback(lambda: self._apiserver.kill())
            self.admin = self._write_kubeconfig("admin", self._token)
            self.operator = self._make_operator()
            if controllers:
                undo.callback(self._start_controllers().kill)
            self._stop = undo.pop_all()

    @property
    def servers(self) -> list[Server]:
        """Return the servers without which there is no API."""
        return [self._etcd, self._apiserver]

    @property
    def kubectl_path(self) -> Path:
        return self._binaries["kubectl"]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    def kubectl(
        self, *arguments: str, stdin: str | None = None, identity: Path | None = None
    ) -> str:
        """Run kubectl as the admin, or as another identity, and return what it prints."""
        command = [str(self._binaries["kubectl"]), "--kubeconfig", str(identity or self.admin)]
        done = subprocess.run(
            [*command, *arguments], input=stdin, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    @cached_property
    def user(self) -> "User":
        """Return the admin as a user of the official client, without starting kubectl each time."""
        # Imported when it is needed: every test imports this module, and not every test a client.
        from testbed.support.user import User

        user = User.connect(self.admin)
        self._stop.callback(user.close)
        return user

    def crash(self) -> None:
        """Kill etcd and kube-apiserver, as a crash of their machine does."""
        self._apiserver.kill()
        self._etcd.kill()

    def start_again(self) -> None:
        """Start again on the same ports, with the same data and certificates."""
        self._etcd = self._start_etcd(self._etcd_port)
        self._apiserver = self._start_apiserver(self._port)

    def kubeconfig(self, name: str, server: str) -> Path:
        """Write a kubeconfig of the operator for another address of the same server."""
        config = json.loads(self.operator.read_text())
        config["clusters"][0]["cluster"]["server"] = server
        path = self._folder / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))
        return path

    def identity(self, namespace: str, account: str) -> Path:
        """Return a kubeconfig of a service account."""
        token = self.kubectl("create", "token", account, "-n", namespace, "--duration=24h")
        return self._write_kubeconfig(f"{namespace}-{account}", token.strip())

    def stop(self) -> None:
        """End the servers, the last one started first."""
        self._stop.close()

    def _write_secrets(self) -> None:
        tokens = self._folder / "tokens.csv"
        tokens.write_text(f'{self._token},admin,admin,"system:masters"\n')
        make_key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
        subprocess.run([*make_key, "-out", str(self._folder / "accounts.key")], check=True)

    def _start_etcd(self, port: int) -> Server:
        client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
        command = [str(self._binaries["etcd"]), "--data-dir", str(self._folder / "etcd")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"default={peer}", "--unsafe-no-fsync"]
        return self._server("etcd", command, lambda _: _contains(f"{client}/health", '"true"'))

    def _start_apiserver(self, port: int) -> Server:
        key = str(self._folder / "accounts.key")
        command = [
            str(self._binaries["kube-apiserver"]),
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={self._folder}",
            f"--token-auth-file={self._folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24",
            *self._flags,
        ]
        readyz = f"https://127.0.0.1:{port}/readyz"
        return self._server(
            "kube-apiserver", command, lambda _: _contains(readyz, "ok", self.certificate)
        )

    @property
    def certificate(self) -> Path:
        return self._folder / "apiserver.crt"

    def _start_controllers(self) -> Server:
        command = [
            str(self._binaries["kube-controller-manager"]),
            f"--kubeconfig={self.admin}",
            f"--service-account-private-key-file={self._folder / 'accounts.key'}",
            f"--root-ca-file={self.certificate}",
            "--leader-elect=false",
            "--secure-port=0",
            "--use-service-account-credentials",
        ]

        def ready(_: int) -> bool:
            """Return whether a controller has created the account of the first namespace."""
            try:
                self.kubectl("get", "serviceaccount", "default", "-n", "default")
            except KubectlError:
                return False
            return True

        return self._server("kube-controller-manager", command, ready)

    def _server(self, name: str, command: Sequence[str], ready: Any) -> Server:
        log = self._folder / f"{name}.log"
        log.unlink(missing_ok=True)
        return Server(name, command, log, ready)

    def _make_operator(self) -> Path:
        """Create the account of the operator, with the rights that it is deployed with."""
        self.kubectl("apply", "-f", str(OPERATOR_MANIFEST))
        return self.identity(OPERATOR_NAMESPACE, OPERATOR_ACCOUNT)

    def _write_kubeconfig(self, user: str, token: str) -> Path:
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": user,
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": user, "context": {"cluster": "testbed", "user": user}}],
        }
        path = self._folder / f"{user}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))
        return path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class KubectlError(Exception):
    """kubectl failed; the message is what it printed."""


def _opener(certificate: Path | None) -> urllib.request.OpenerDirector:
    """Return an opener of URLs on this machine, which uses no proxy."""
    trust = ssl.create_default_context(cafile=str(certificate)) if certificate else None
    handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)]
    return urllib.request.build_opener(*handlers)


def _contains(url: str, word: str, certificate: Path | None = None) -> bool:
    """Return whether the answer of a URL contains a word."""
    try:
        with _opener(certificate).open(url, timeout=2) as answer:
            return word in answer.read().decode()
    except OSError:
        return False
