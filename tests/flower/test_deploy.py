"""The files in examples/flower-hospitals/deploy: what they start is what docs/go-live.md types."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import jopeq
from tests.flower.identities import write_identity
from tests.flower.test_federation import BIN, needs_flower

pytestmark = needs_flower
REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "examples" / "flower-hospitals" / "deploy"
INSTALLED = "/opt/jopeq/bin"  # of the units
PAGE = (REPOSITORY / "docs" / "go-live.md").read_text("utf-8")


def words_of(line):
    """A command as plain words; options may have their values after ``=``."""
    words = shlex.split(line) if isinstance(line, str) else line
    split = (word.split("=", 1) if word.startswith("--") else [word] for word in words)
    return [part.removeprefix(f"{INSTALLED}/") for parts in split for part in parts]


def typed(start):
    """The one command of the page that starts like this."""
    lines = re.sub(r"\\\n\s*", "", PAGE).splitlines()
    (found,) = {tuple(words_of(line)) for line in lines if line.startswith(start)}
    return list(found)


def read_unit(name):
    """(key, value) of all lines of a unit."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / name).read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return [tuple(line.split("=", 1)) for line in lines]


def environment_of(unit):
    given = [word for key, value in unit if key == "Environment" for word in value.split()]
    return dict(word.split("=", 1) for word in given)


@pytest.mark.parametrize("name", ["superlink", "supernode"])
def test_units_start_what_the_page_types(name):
    unit = read_unit(f"jopeq-{name}.service")
    settings, environment = dict(unit), environment_of(unit)
    begin = "flower-superlink" if name == "superlink" else "jopeq guard -- "
    assert words_of(settings["ExecStart"]) == typed(begin)
    if name == "supernode":  # nothing is tried again that a look at the configuration tells
        assert words_of(settings["ExecStartPre"]) == typed("jopeq guard --check")
    assert (settings["Restart"], settings["StartLimitIntervalSec"]) == ("always", "0")
    home = settings["WorkingDirectory"]
    assert settings["ReadWritePaths"] == home  # all else is read-only, with all that is written:
    assert {environment[key] for key in ("FLWR_HOME", "XDG_CACHE_HOME")} == {
        f"{home}/flwr",
        f"{home}/cache",
    }
    assert environment["PATH"].startswith(f"{INSTALLED}:")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_reads_the_units(tmp_path):
    units = [tmp_path / path.name for path in DEPLOY.glob("*.service")]
    for unit in units:
        text = (DEPLOY / unit.name).read_text("utf-8")
        unit.write_text(text.replace(INSTALLED, str(BIN)))
    told = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True)
    assert (told.returncode, told.stdout, told.stderr, len(units)) == (0, "", "", 2)


def test_the_container_starts_what_the_page_types():
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"].values()
    assert words_of(service["command"]) == typed("jopeq guard -- ")
    how, *check = service["healthcheck"]["test"]
    assert (how, words_of(check)) == ("CMD", typed("jopeq doctor --node"))
    home = service["working_dir"]
    assert service["volumes"] == [f"./node:{home}"]
    assert all(path.startswith(f"{home}/") for path in service["environment"].values())
    assert service["read_only"]
    assert service["restart"] == "always"
    image = (DEPLOY / service["build"] / "Dockerfile").read_text("utf-8")
    (extras,) = re.findall(r"^ARG JOPEQ=jopeq\[(.*)\]$", image, re.M)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    (python,) = re.findall(r"^FROM python:([\d.]+)-slim$", image, re.M)
    least = project["requires-python"].removeprefix(">=")
    assert tuple(map(int, python.split("."))) >= tuple(map(int, least.split(".")))


@pytest.mark.parametrize("program", ["flower-superlink", "flower-supernode"])
def test_flower_knows_every_option(program):
    words = typed("flower-superlink" if program == "flower-superlink" else "jopeq guard -- ")
    given = {word for word in words[words.index(program) :] if word.startswith("--")}
    told = subprocess.run([BIN / program, "--help"], capture_output=True, text=True, check=True)
    assert given <= set(re.findall(r"--[a-z-]+", told.stdout))
    assert len(given) > 5


def test_the_node_is_checked_as_the_page_types(tmp_path):
    """``guard --check`` and ``doctor --node``, which unit and container call."""
    identity, public = write_identity(tmp_path, "one")
    (tmp_path / "trusted.txt").write_text(public)
    jopeq.Ledger.create(tmp_path / "ledger.json", 1.0, 1e-4)
    (node,) = re.findall(r"cat > node\.toml <<END\n((?:.*\n)*?)END\n", PAGE)
    node = node.replace("$PWD/identity.pem", str(identity)).replace("$PWD", str(tmp_path))
    (tmp_path / "node.toml").write_text(re.sub(r"\$\(.*\)", "0" * 64, node))
    for start in ("jopeq guard --check", "jopeq doctor --node"):
        command = [sys.executable, "-m", *typed(start)]
        told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (told.returncode, told.stdout) == (0, "- nothing is wrong\n"), told.stderr
