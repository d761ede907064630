"""The commands of docs/go-live.md, typed in the page's order by a server and three hospitals."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import jopeq
from tests.flower.test_federation import BIN, HANG, free_port, needs_flower, wait_for

pytestmark = [*needs_flower, pytest.mark.golive]
REPOSITORY = Path(__file__).parents[2]
HOSPITALS = 3


def blocks():
    """Who types, whether it runs on, and what, for every block of commands."""
    page = (REPOSITORY / "docs" / "go-live.md").read_text("utf-8")
    found = re.findall(r"^```(sh|python)\n# (server|hospital)(.*)\n((?:.*\n)*?)```$", page, re.M)
    assert len(found) == 11
    return found


def test_what_the_page_says_works_when_it_is_typed(tmp_path):
    port, folders = free_port(), [tmp_path / f"hospital{n}" for n in range(HOSPITALS)]
    server, example = tmp_path / "server", REPOSITORY / "examples" / "flower-hospitals"
    for folder in (server, *folders):
        folder.mkdir(mode=0o700)
    shutil.copytree(example, server / "flower-hospitals")
    task = server / "flower-hospitals" / "flower_hospitals" / "task.py"
    text = task.read_text()
    for old, new in (
        ("HOSPITALS, PATIENTS = 10, 40", f"HOSPITALS, PATIENTS = {HOSPITALS}, 130"),
        ("threshold=8", f"threshold={HOSPITALS}"),
        ("most_records=60", "most_records=140"),
    ):
        assert old in text
        text = text.replace(old, new)
    task.write_text(text)
    client = task.with_name("client_app.py")
    client.write_text(client.read_text().replace("most_records=60", "most_records=140"))
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("JOPEQ_")},
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1",
    }
    living, stack = [], ExitStack()

    def type_in(folder, language, text, *, number=0, runs_on=False):
        own = {**environment, "FLWR_HOME": str(folder / "flwr"), "HOME": str(folder)}
        changes = {
            "DNS:fl.example.org": "IP:127.0.0.1",
            "fl.example.org:8000": f"127.0.0.1:{port}",
            "--port 8000": f"--port {port}",
            "--port 9095": f"--port {free_port()}",
            "--host 0.0.0.0": "--host 127.0.0.1",
            "hospital = 0": f"hospital = {number}",
            "hospital.pub": f"hospital{number}.pub",
            "checkpoint=": "num-server-rounds=2 checkpoint=",
        }
        for old, new in changes.items():
            text = text.replace(old, new)
        command = ["bash", "-euo", "pipefail", "-c", text]
        if language == "python":
            own["PYTHONPATH"] = str(server / "flower-hospitals")
            command = [sys.executable, "-c", text]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=own, stdout=log, stderr=log, start_new_session=True
            )
        stack.callback(stop, process)
        if runs_on:
            living.append(process)
        else:
            assert process.wait(HANG) == 0, f"{text}\n{(folder / 'log').read_text()[-3000:]}"

    with stack:
        for language, who, which, text in blocks():
            is_lasting = "runs on" in which
            if who == "server" and "for each hospital" in which:
                for n, folder in enumerate(folders):
                    shutil.copy(folder / "node.key.pub", server / f"hospital{n}.pub")
                    type_in(server, language, text, number=n)
                lines = "".join((folder / "line.txt").read_text() for folder in folders)
                for folder in (server, *folders):  # what is sent to everybody
                    (folder / "trusted.txt").write_text(lines)
                (bundle,) = server.glob("*.fab")
                for folder in folders:
                    shutil.copy(bundle, folder / "app.fab")
                    shutil.copy(server / "ca.crt", folder)
            elif who == "server":
                type_in(server, language, text, runs_on=is_lasting)
                if is_lasting:
                    check = [
                        "curl",
                        "-fs",
                        "--cacert",
                        "ca.crt",
                        f"https://127.0.0.1:{port}/health",
                    ]
                    wait_for(
                        lambda c=check: not subprocess.run(c, cwd=server, check=False).returncode,
                        alive=living,
                    )
            else:
                for n, folder in enumerate(folders):
                    if language == "python":
                        shutil.copy(server / "model.pt", folder)
                    type_in(folder, language, text, number=n, runs_on=is_lasting)
    kept = torch.load(server / "run.pt", weights_only=True)
    assert kept["model"]["linear.weight"].abs().sum() > 0.0
    for folder in folders:
        ledger = jopeq.Ledger.load(folder / "ledger.json")
        assert [run.spent.rounds for run in ledger.runs] == [1, 2]
        assert {len(run.about["app"]) for run in ledger.runs} == {64}
        assert "nothing is wrong" in (folder / "log").read_text()
        assert "to train a model" in (folder / "privacy-report.html").read_text()


def stop(process):
    """End a process and those that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
