"""Certificates for servers, signed by an authority that a test creates."""

import subprocess
from pathlib import Path

NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """A certificate authority; clients that have its certificate trust those it signs."""

    def __init__(self, folder: Path, name: str) -> None:
        self.certificate = folder / f"{name}.crt"
        self._key = folder / f"{name}.key"
        who = ("-subj", f"/CN={name}", "-addext", "keyUsage=critical,keyCertSign")
        out = ("-keyout", str(self._key), "-out", str(self.certificate))
        _openssl("req", "-x509", *NEW_KEY, *who, *out)

    def certify(self, host: str) -> Path:
        """Return a certificate with its key for a host, which is DNS:name or IP:address."""
        file = self.certificate.with_suffix(".server.pem")
        request, extensions = file.with_suffix(".csr"), file.with_suffix(".ext")
        # Newer versions of Python require the last two.
        extensions.write_text(
            f"subjectAltName={host}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        _openssl("req", *NEW_KEY, "-subj", "/CN=redis", "-keyout", str(file), "-out", str(request))
        signer = ("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial")
        signed = _openssl(
            *("x509", "-req", "-in", str(request), *signer, "-extfile", str(extensions))
        )
        with file.open("a") as pem:
            pem.write(signed)
        return file


def _openssl(*arguments: str) -> str:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
