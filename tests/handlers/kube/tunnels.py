"""An HTTP proxy that supports CONNECT, for the proxy-url of a kubeconfig."""

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class Tunnel:
    """The address of the proxy, and the targets that clients requested."""

    url: str = ""
    targets: list[str] = field(default_factory=list)


@contextmanager
def tunnel() -> Iterator[Tunnel]:
    """Run a proxy in separate threads."""
    seen = Tunnel()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            method, target, _ = self.rfile.readline().decode().split()
            assert method == "CONNECT"
            while self.rfile.readline().strip():
                pass
            seen.targets.append(target)
            host, _, port = target.rpartition(":")
            with socket.create_connection((host, int(port))) as upstream:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=copy, args=(upstream, self.connection), daemon=True)
                back.start()
                copy(self.connection, upstream)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        seen.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield seen
        server.shutdown()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source is closed, then close the target for writing."""
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
