"""A certificate for tests of TLS, made at test time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def self_signed(folder: Path, host: str = "127.0.0.1") -> tuple[Path, Path] | None:
    """Certificate and key for `host`, made now by the `openssl` command; None where there is none."""
    if shutil.which("openssl") is None:
        return None
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    argv += ["-days", "2", "-subj", "/CN=stub", "-addext", f"subjectAltName=IP:{host},DNS:localhost"]
    argv += ["-keyout", str(key), "-out", str(certificate)]
    done = subprocess.run(argv, check=False, capture_output=True, timeout=30)
    return (certificate, key) if done.returncode == 0 else None


# -- whole-run scenarios
