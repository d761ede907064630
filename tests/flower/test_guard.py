"""The guard: any app behind the node's own bounds."""

import hashlib
import os
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from torch.nn.functional import cross_entropy

import jopeq
from jopeq.errors import JoPEQError
from jopeq.flower import RoundFailedError, guard, record_client
from jopeq.flower.guard import guard_app, run_guarded, start_guarded
from tests.flower.identities import write_identity
from tests.flower.test_records import EXAMPLE, NODES, TERMS, Hospitals, X, Y, fail, net

LIMITS = {"jopeq-max-epsilon": 8.0, "jopeq-max-delta": 1e-5}


@pytest.fixture(autouse=True)
def _stays(monkeypatch):
    """A guard that starts a node in these tests' own process would end them, and all would pass."""

    def start(*_):
        raise AssertionError("a node is started")

    monkeypatch.setattr(guard.os, "execve", start)


def test_the_guard_wraps_any_app(flower, tmp_path, monkeypatch):
    totals, encode = [], jopeq.RecordSum.encode
    monkeypatch.setattr(
        jopeq.RecordSum,
        "encode",
        lambda self, total, **k: (totals.append(total.to_numpy()), encode(self, total, **k))[1],
    )
    hospitals = Hospitals(flower, tmp_path, node=LIMITS)
    bold = jopeq.RecordSum(**{**TERMS, "sampling": 1.0})  # draws more than the terms say
    given = {"model": net, "loss": cross_entropy, "load": lambda _: (X, Y), "example": EXAMPLE}
    inner = dict(hospitals.apps)
    inner[22] = record_client(bold, **given)
    inner[33] = ClientApp()  # without mod and without functions
    for n, app in inner.items():
        hospitals.apps[n] = guard_app(lambda app=app: app)
    hospitals.apps[44] = guard_app(lambda: fail(ImportError))
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=1)
    assert len(strategy.reports[0].entries) == 5
    assert sorted(bool(total.any()) for total in totals) == [False, False, False, True, True]
    assert set(hospitals.shares().values()) == {1}


@pytest.mark.parametrize("change", [{"colluding": 0}, {"batch_dependence": 0.0}, {}])
def test_the_guard_takes_no_bold_terms(flower, tmp_path, change):
    """Nor any at all where the node's configuration has no bounds."""
    scheme = jopeq.RecordSum(**{**TERMS, **change})
    hospitals = Hospitals(flower, tmp_path, scheme, node=LIMITS if change else {})
    for n in NODES:
        hospitals.apps[n] = guard_app(lambda: fail(AssertionError))
    strategy = hospitals.strategy(scheme)
    with pytest.raises(RoundFailedError):
        strategy.start(hospitals.grid, num_rounds=1)
    assert {failure.code for failure in strategy.reports[0].failed} == {"settings"}
    assert set(hospitals.shares().values()) == {0}


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["sh", "-c", "true"],
        ["flower-supernode", "--isolation", "process"],
        ["flower-supernode", "--isolation=process"],
        ["flower-supernode", "--allow-runtime-dependency-installation"],
    ],
)
def test_the_guard_starts_supernodes_alone(command):
    with pytest.raises(ValueError, match="command"):
        start_guarded(command)


def test_only_pinned_apps_run(flower, tmp_path):
    app = hashlib.sha256(b"reviewed").hexdigest()
    config = {**LIMITS, "jopeq-app-sha256": f"{'0' * 64}, {app}"}
    hospitals = Hospitals(flower, tmp_path, node=config)
    inner = dict(hospitals.apps)
    for n in NODES:
        hospitals.apps[n] = guard_app(lambda n=n: inner[n], app)
    hospitals.apps[44] = guard_app(lambda: fail(AssertionError), "1" * 64)
    hospitals.apps[55] = guard_app(lambda: fail(AssertionError))
    strategy = hospitals.strategy()
    strategy.start(hospitals.grid, num_rounds=1)
    assert sorted(strategy.reports[0].entries) == [11, 22, 33]
    assert {one.code for one in strategy.reports[0].failed} == {"limits"}
    assert [hospitals.shares()[n] for n in NODES] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize("given", ["", "abc", "g" * 64, ","])
def test_a_pin_that_pins_nothing_starts_no_node(given, monkeypatch):
    monkeypatch.setattr(guard.shutil, "which", lambda name: "/bin/true")
    command = ["flower-supernode", "--node-config", f'jopeq-app-sha256="{given}"']
    with pytest.raises(ValueError, match="sha256"):
        start_guarded(command)


# Processes: the guard becomes a SuperNode of this script, which starts what it is told to


OTHERS = ["flwr-agentapp", "flwr-connector", "flwr-model", "flwr-serverapp", "flwr-simulation"]
NEWER = "1.43.0"
LAUNCH = """
import os, shutil
from pathlib import Path
from flwr.supercore.constant import TaskType
from flwr.supercore.superexec.executor.subprocess_executor import SubprocessExecutor
from flwr.supercore.superexec.executor.types import ExecutionSpec

spec = ExecutionSpec(
    task_type=TaskType.CLIENT_APP, runtime_api_address="127.0.0.1:1", token="t", insecure=True,
    root_certificates_path=None, runtime_dependency_install=False, parent_pid=None,
    suppress_output=False, task_id=1,
)
command = Path(FOLDER, "flwr-clientapp")
text = command.read_text()
for break_it in (
    lambda: command.chmod(0o600),
    lambda: command.write_text(text.replace("#!", "#!/nowhere")),
    lambda: command.unlink(),
    lambda: shutil.rmtree(command.parent),
):
    command.write_text(text)
    command.chmod(0o700)
    break_it()
    try:
        SubprocessExecutor().launch(spec)
        print("started")
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.fixture
def config(tmp_path):
    """The configuration of a node with which nothing is wrong."""
    identity, public = write_identity(tmp_path, "one")
    (tmp_path / "trusted").write_text(public)
    jopeq.Ledger.create(tmp_path / "ledger.json", 8.0, 1e-5)
    names = {"ledger": "ledger.json", "identity": identity.name, "trusted": "trusted"}
    files = [f'jopeq-{key}="{tmp_path / name}"' for key, name in names.items()]
    return " ".join([*files, "jopeq-max-epsilon=8.0 jopeq-max-delta=1e-5"])


@pytest.fixture
def supernode(tmp_path, config):
    """Runs ``jopeq guard`` around a SuperNode of this script: exit status, and what is told."""
    programs, newer = tmp_path / "programs", tmp_path / "newer"
    for name in ("flwr-clientapp", *OTHERS):  # Flower's own, which would load the app
        write_program(programs / name, f": > '{tmp_path}/loaded'")
    metadata = newer / f"flwr-{NEWER}.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: flwr\nVersion: {NEWER}\n")

    def start(script, *, is_newer=False, options=(), more=""):
        write_program(programs / "flower-supernode", script)
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        libraries = [str(newer)] * is_newer + [*sys.path]
        environment = {**os.environ, "PATH": path, "NEWER": str(newer)}
        environment["PYTHONPATH"] = os.pathsep.join(libraries)
        command = [sys.executable, "-m", "jopeq", "guard", *options, "--", "flower-supernode"]
        command += ["--node-config", f"{config} {more}"]
        ended = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert not (tmp_path / "loaded").exists()
        return ended.returncode, ended.stdout.split(), " ".join(ended.stderr.split())

    return start


def write_program(path, script):
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def test_other_kinds_of_apps_are_refused(supernode, tmp_path):
    folder = tmp_path / "ledger.json.guard"
    folder.mkdir(mode=0o755)
    write_program(folder / "flwr-stranger", "exit 0")
    given = "--runtime-api-address 127.0.0.1:1 --token t --insecure"
    tried = [f"{name} {given}; echo $?" for name in OTHERS]
    status, statuses, told = supernode("\n".join([*tried, "exit 7"]))
    assert (status, statuses) == (7, ["1"] * len(OTHERS))
    for name in OTHERS:
        assert f"jopeq guard: {name} is refused" in told
    assert f"jopeq guard: every app of this node is started by {folder}" in told
    assert {one.name for one in folder.iterdir()} == {"flower-superexec", "flwr-clientapp", *OTHERS}
    assert {one.stat().st_mode & 0o777 for one in (folder, *folder.iterdir())} == {0o700}


def test_flowers_launcher_starts_no_app_without_the_guard(supernode, tmp_path):
    """Not executable; its interpreter gone; itself gone; the whole folder gone."""
    script = tmp_path / "launch.py"
    script.write_text(LAUNCH.replace("FOLDER", repr(f"{tmp_path}/ledger.json.guard")))
    status, told, _ = supernode(f"'{sys.executable}' '{script}'")
    assert (status, told) == (0, ["PermissionError", *["FileNotFoundError"] * 3])


def test_a_wrong_configuration_starts_no_node(supernode, tmp_path):
    """With ``--check`` it is told alone; a right one passes, and starts nothing either."""
    more = "jopeq-max-epsilom=1.0 jopeq-max-rounds=-2"
    for options, status in (((), 2), (("--check",), 1)):
        ended, output, told = supernode("echo started", options=options, more=more)
        said = " ".join([*output, told]).replace("│ ", "")
        assert ended == status
        for part in ("jopeq-max-epsilom is 1.0", "use jopeq-max-epsilon", "jopeq-max-rounds is -2"):
            assert part in said
        assert "started" not in output
    assert supernode("echo started", options=("--check",))[:2] == (
        0,
        ["-", "nothing", "is", "wrong"],
    )
    assert not (tmp_path / "ledger.json.guard").exists()
    assert supernode("echo started")[:2] == (0, ["started"])


def test_a_guard_whose_commands_do_not_run_starts_no_node(config, monkeypatch):
    monkeypatch.setattr(guard.sys, "executable", "/nowhere/python")
    monkeypatch.setattr(guard.shutil, "which", lambda name: "/bin/true")
    with pytest.raises(JoPEQError) as caught:
        start_guarded(["flower-supernode", f"--node-config={config}"])
    assert caught.value.code == "guard"


def test_apps_end_with_their_node():
    """Also where the node is killed and Flower's own end hangs; the guard is the node itself."""
    app = (
        "import time\nimport flwr.supernode.cli as cli\nfrom jopeq.flower import guard\n"
        "guard._GRACE = 0.1\n"
        "cli.flwr_clientapp = lambda: (print('runs', flush=True), time.sleep(60), print('on'))\n"
        "guard.run_guarded()"
    )
    node = subprocess.Popen(
        ["/bin/sh", "-c", '"$0" -c "$1"; true', sys.executable, app], stdout=subprocess.PIPE
    )
    with node.stdout as pipe:
        assert pipe.readline() == b"runs\n"
        node.kill()
        node.wait()
        assert pipe.read() == b""  # which the app holds open until it ends


def test_what_is_pinned_is_what_is_unpacked(flower, monkeypatch):
    """Whatever hash the server claims; an app that no pin allows is not even unpacked."""
    runner, done = import_module("flwr.supernode.runtime.run_clientapp"), []
    reviewed = hashlib.sha256(b"reviewed").hexdigest()
    config = {**LIMITS, "jopeq-app-sha256": reviewed}
    context = flower.context(node_config=config)

    def load(*which):
        done.append(which)
        return lambda msg, _: Message(RecordDict(), reply_to=msg)

    def run(bundle):  # as Flower's own command does
        runner.install_from_fab(bundle, skip_prompt=True)
        app = runner.get_load_client_app_fn(default_app_ref="", app_path=None, multi_app=True)
        message = flower.train_message({"w": np.zeros(3)}, kind="evaluate")
        done.append(app("me/app", "1.0.0", reviewed)(message, context).has_error())

    for bundle, wanted in (
        (b"hostile", [True]),
        (b"reviewed", [b"reviewed", ("me/app", "1.0.0", reviewed), False]),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(runner, "install_from_fab", lambda some, **_: done.append(some))
            patch.setattr(runner, "get_load_client_app_fn", lambda **_: load)
            command = lambda bundle=bundle: run(bundle)  # noqa: E731
            patch.setattr("flwr.supernode.cli.flwr_clientapp", command)
            patch.setattr(guard, "_end_with", lambda parent: None)
            patch.setenv(guard._PATH, os.environ["PATH"])
            run_guarded()
        assert done == wanted
        done.clear()


def test_every_kind_of_app_that_flower_starts_has_a_shim():
    from flwr.supercore.constant import TASK_TYPE_TO_COMMAND  # by which a SuperNode starts apps

    assert set(TASK_TYPE_TO_COMMAND.values()) == {"flwr-clientapp", *OTHERS}
    assert sorted(guard._OTHERS) == OTHERS


def test_an_untested_flower_starts_no_node(supernode):
    status, output, told = supernode("echo started", is_newer=True)
    assert (status, output) == (2, [])
    assert NEWER in told
    assert "flwr 1.41" in told


def test_a_flower_that_was_replaced_under_a_running_node_runs_no_app(supernode):
    script = 'PYTHONPATH="$NEWER:$PYTHONPATH" flwr-clientapp; echo $?'
    status, output, told = supernode(script)
    assert (status, output) == (0, ["1"])
    assert f"apps of Flower {NEWER}" in told


@pytest.mark.parametrize("found", [{"flwr": NEWER}, {"flwr": "1.4.1"}, {}])
@pytest.mark.parametrize("start", [run_guarded, lambda: start_guarded(["flower-supernode"])])
def test_an_untested_flower_is_refused_before_anything_is_loaded(monkeypatch, start, found):
    monkeypatch.setattr(guard, "versions", lambda *_: found)
    monkeypatch.setattr(guard, "import_module", lambda name: pytest.fail(f"{name} is loaded"))
    with pytest.raises(JoPEQError) as caught:
        start()
    assert caught.value.code == "flower-version"
