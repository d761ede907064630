"""What `import jopeq` brings with it, and what it leaves for when it is needed."""

import json
import subprocess
import sys

LATER = ["torch", "scipy", "matplotlib", "cryptography", "flwr", "numba", "triton"]


def run(code):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_import_loads_numpy_alone():
    code = f"import jopeq, json, sys; print(json.dumps([m for m in {LATER} if m in sys.modules]))"
    assert json.loads(run(code)) == []


def test_a_round_trip_needs_neither_torch_nor_matplotlib():
    code = """
import sys
sys.modules["torch"] = sys.modules["matplotlib"] = sys.modules["flwr"] = None  # not installed
import jopeq, numpy as np
for scheme in (
    jopeq.scheme("none"),
    jopeq.scheme("sdq", rate=2.0),
    jopeq.scheme("jopeq", epsilon=4.0, rate=1.0),
    jopeq.scheme("jopeq", epsilon=3.0, rate=2.0, lattice="A2"),
):
    state = {"a": np.ones(5, np.float32), "n": np.array(3)}
    scheme.decode(scheme.encode(state), like=state)
    print(scheme.decode(scheme.encode(np.ones(3))).shape)
"""
    assert run(code) == "(3,)\n" * 4


def test_packages_are_imported_when_they_are_used():
    code = """
import jopeq, sys
assert not any(name.startswith(("torch", "jopeq_lab")) for name in sys.modules)
assert {"plan", "torch", "flower", "circle"} <= set(dir(jopeq))
print(jopeq.plan.__name__, jopeq.circle.__name__, jopeq.torch.__name__)
try:
    jopeq.unheard
except AttributeError as error:
    print(error)
"""
    names = "plan jopeq.circle jopeq.torch"
    assert run(code) == f"{names}\nmodule 'jopeq' has no attribute 'unheard'\n"


def test_the_guard_without_flower_says_how_to_install_it():
    code = """
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *more: None if name == "flwr" else find(name, *more)
from typer.testing import CliRunner
from jopeq.cli import app
done = CliRunner().invoke(app, ["guard", "--", "flower-supernode"])
print(done.exit_code, done.output)
"""
    told = run(code)
    assert told.startswith("2 ")
    assert "pip install 'jopeq[flower]'" in told
