"""The sample configuration for nginx, run: TLS in front, the hub behind."""

import datetime
import ipaddress
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.ports import free_port
from tests.psph.test_hub_command import hub, publish

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
SAMPLE = Path(__file__).parents[2] / "examples" / "nginx-hub.conf"

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def certify(directory):
    """A certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (directory / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return ssl.create_default_context(cafile=str(directory / "cert.pem"))


@contextmanager
def nginx(directory, backend):
    """The sample with ports and files of the test; its two URLs."""
    plain, tls = free_port(), free_port()
    text = SAMPLE.read_text()
    for old, new in (
        ("127.0.0.1:8080;", f"{backend};"),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        ("listen 443 ssl http2;", f"listen 127.0.0.1:{tls} ssl http2;"),
        ("listen [::]:80;", ""),
        ("listen [::]:443 ssl http2;", ""),
        ("/etc/letsencrypt/live/hub.example.com/fullchain.pem", f"{directory}/cert.pem"),
        ("/etc/letsencrypt/live/hub.example.com/privkey.pem", f"{directory}/key.pem"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    temporary = " ".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (directory / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/errors;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{text}\n}}\n"
    )
    process = subprocess.Popen(
        [NGINX, "-p", str(directory), "-e", f"{directory}/errors", "-c", f"{directory}/nginx.conf"]
    )
    try:
        for _ in range(3_000):
            try:
                socket.create_connection(("127.0.0.1", tls), timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (directory / "errors").read_text()
                time.sleep(0.02)
        yield f"http://127.0.0.1:{plain}/", f"https://127.0.0.1:{tls}/"
    finally:
        process.terminate()
        process.wait()


def test_it_serves_the_hub_over_tls(tmp_path):
    context = certify(tmp_path)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    with (
        hub(tmp_path / "data", "--trusted-proxy", "127.0.0.1") as (_, url),
        nginx(tmp_path, url.removeprefix("http://").rstrip("/")) as (plain, tls),
    ):
        with opener.open(f"{tls}healthz", timeout=60) as answer:
            assert answer.read() == b"ok\n"
        form = b"hub.mode=publish&hub.url=http://example.com/feed"
        with opener.open(f"{tls}hub", form, timeout=60) as answer:
            assert answer.status == 204
        with opener.open(f"{tls}stream?topic=http://example.com/feed", timeout=60) as stream:
            assert stream.readline().startswith(b"retry:")
            token = (tmp_path / "data" / "admin-token").read_text().strip()
            position = publish(url, token, b"1")
            while f'"position": "{position}"'.encode() not in (line := stream.readline()):
                assert line
        with pytest.raises(urllib.error.HTTPError) as moved:
            urllib.request.build_opener(_Stay).open(f"{plain}hub", form, timeout=60)
        assert moved.value.code == 308
        moved.value.close()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None
