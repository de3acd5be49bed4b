"""The certificates of TLS connections, read again when one of their files has changed."""

import logging
import ssl
from collections.abc import Mapping
from typing import Any

from redis.asyncio import SSLConnection
from redis.asyncio.connection import RedisSSLContext

from jobgroup.store.files import stamps

logger = logging.getLogger(__name__)

# The parameters of redis-py that name a file.
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class Certificates:
    """What the TLS connections of a client share: reading it takes tens of milliseconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take the parameters of redis-py that begin with ssl_."""
        self.options = options
        self._files = [options[name] for name in FILES if name in options]
        self._seen: object = None
        self._context: ssl.SSLContext | None = None
        self._described()

    def get(self) -> ssl.SSLContext:
        """Return the context for a new connection; the last one while a file cannot be read."""
        found = stamps(self._files)
        if self._context is None or found != self._seen:
            self._seen = found
            try:
                self._context = self._described().get()
            except (OSError, ValueError) as error:
                if self._context is None:
                    raise
                files = ", ".join(self._files)
                logger.warning("keeping the certificates that were in %s: %s", files, error)
        return self._context

    def _described(self) -> RedisSSLContext:
        """Return the context as redis-py makes it, before it reads any file."""
        return SSLConnection(**self.options).ssl_context
