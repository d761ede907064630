"""Install a wheel in an empty environment, with its core dependencies alone, and use it.

python tools/try_wheel.py dist
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
CODEC = """
import sys
import numpy as np
import jopeq

update = np.random.default_rng(0).normal(0.0, 0.01, 7850).astype(np.float32)
for scheme in (
    jopeq.scheme("response", epsilon=4.0, rate=2.0, clip=0.03),
    jopeq.scheme("jopeq", epsilon=3.0, rate=2.0, lattice="A2"),
    jopeq.scheme("jopeq", epsilon=4.0, rate=2.0),
):
    payload = scheme.encode(update)
    decoded = scheme.decode(payload)
    assert decoded.shape == update.shape and np.isfinite(decoded).all()
    print(f"{scheme.name}: {len(payload)} bytes, {scheme.guarantee}")
heavy = {"torch", "flwr", "matplotlib", "sklearn"} & set(sys.modules)
assert not heavy, heavy
assert jopeq.__file__.startswith(sys.prefix), jopeq.__file__
"""


def main(folder: Path) -> None:
    """Raises where anything fails."""
    wheels = sorted(folder.resolve().glob("jopeq-*.whl"))
    if len(wheels) != 1:
        sys.exit(f"{folder} must hold one wheel of jopeq, has {len(wheels)}: run make dist")
    with tempfile.TemporaryDirectory() as place:
        venv.create(place)
        python = Path(place) / "bin" / "python"
        # this interpreter's pip, for that environment: one without pip is made in no time
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        install = ["install", "--quiet", "--no-compile", "-c", str(CONSTRAINTS), str(wheels[0])]
        _run(*pip, *install, cwd=place)
        job = ["--epsilon", "4", "--rate", "2", "--dimension", "7850", "--rounds", "95"]
        _run(python.with_name("jopeq"), "plan", *job, cwd=place)
        _run(python.with_name("jopeq"), "audit", *job[:4], "--draws", "20000", cwd=place)
        _run(python, "-c", CODEC, cwd=place)
    sys.stdout.write(f"{wheels[0].name} works alone\n")


def _run(*command: str | Path, cwd: str) -> None:
    environment = {"PATH": os.defpath, "HOME": cwd, **_index_settings()}
    subprocess.run(list(map(str, command)), check=True, cwd=cwd, env=environment)


def _index_settings() -> dict[str, str]:
    """How this machine reaches its package index; nothing else of the caller's environment."""
    kept = ("PIP_", "SSL_", "REQUESTS_", "HTTP_", "HTTPS_", "NO_PROXY", "http", "https", "no_proxy")
    return {name: value for name, value in os.environ.items() if name.startswith(kept)}


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("dist"))
