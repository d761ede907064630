"""Wheels and sdists, and the library alone in an empty environment: what ``make dist`` does."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import jopeq

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    if find_spec("build") is None:
        pytest.skip("needs build: pip install build")
    folder = tmp_path_factory.mktemp("dist")
    ask = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "hatchling"]
    reached = subprocess.run([*ask, "--dest", str(folder / "asked")], check=False)
    if reached.returncode:
        pytest.skip("no package index within reach")
    for place in (ROOT, ROOT / "lab"):
        command = [sys.executable, "-m", "build", "--outdir", str(folder), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return folder


def test_known_holes_of_dependencies_are_below_the_ranges():
    """torch.load before 2.6 runs code of a hostile file; Pillow before 10.3 overflows a buffer."""
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in (ROOT, ROOT / "lab")
    ]
    extras = [one["optional-dependencies"].values() for one in projects]
    named = [one["dependencies"] for one in projects]
    wanted = map(Requirement, chain(*named, *chain(*extras)))
    ranges = {one.name: one.specifier for one in wanted if one.name != "jopeq"}
    assert "2.5.1" not in ranges["torch"]
    assert "10.2.0" not in ranges["pillow"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    pinned = dict(line.lower().replace("_", "-").split("==") for line in lines)
    for name in ("torch", "pillow"):
        assert pinned[name] in ranges[name]


def test_names_carry_the_version(dist):
    version = jopeq.__version__
    names = sorted(path.name for path in dist.iterdir() if path.is_file())
    both = ("jopeq", "jopeq_lab")
    made = [f"{one}-{version}{kind}" for one in both for kind in ("-py3-none-any.whl", ".tar.gz")]
    assert names == sorted(made)


@pytest.mark.parametrize(
    ("package", "source", "other"),
    [("jopeq", "src", "py.typed"), ("jopeq_lab", "lab", "explorer/data/page.html")],
)
def test_a_wheel_holds_its_package_and_nothing_else(dist, package, source, other):
    with zipfile.ZipFile(next(dist.glob(f"{package}-*.whl"))) as wheel:
        names = wheel.namelist()
    about = f"{package}-{jopeq.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {package, about}
    assert f"{package}/{other}" in names
    held = {name for name in names if name.endswith(".py")}
    files = (ROOT / source).rglob("*.py")
    assert held == {path.relative_to(ROOT / source).as_posix() for path in files}


def test_the_sdist_can_be_tested_and_documented(dist):
    with tarfile.open(next(dist.glob("jopeq-*.tar.gz"))) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    for needed in (
        *("README.md", "CHANGELOG.md", "LICENSE", "Makefile", "constraints.txt", "mkdocs.yml"),
        *("tests/conftest.py", "docs/index.md", "examples/compress_an_update.py"),
        *("results/table1.jsonl", "tools/try_wheel.py", "src/jopeq/__init__.py"),
        *("paper/__main__.py", "paper/pages/paper.md.j2", "lab/pyproject.toml"),
    ):
        assert needed in names


def test_the_wheel_works_alone(dist):
    command = [sys.executable, str(ROOT / "tools" / "try_wheel.py"), dist.name]
    done = subprocess.run(command, cwd=dist.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert "response: " in done.stdout
    assert "works alone" in done.stdout
