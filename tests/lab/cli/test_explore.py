"""``jopeq-lab explore``, and the lines that its page gives to copy."""

import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from jopeq.cli import app
from jopeq_lab.explorer import Setting
from jopeq_lab.explorer.lines import lines


@pytest.mark.parametrize(
    "setting",
    [
        Setting(scheme="sphere", epsilon=4.0, rounds=30, entries=1000, clients=10_000),
        Setting(scheme="clients", epsilon=8.0, delta=1e-6, rounds=10, entries=1000, clients=30),
        Setting(scheme="records", epsilon=1.0, rounds=30, entries=1000, clients=10),
        Setting(scheme="response", epsilon=2.0, rounds=10, entries=1000),
    ],
    ids=lambda setting: setting.scheme,
)
def test_lines_run(setting, capsys, jopeq_command, tmp_path, monkeypatch):
    texts = lines(setting, spread=2.5, sampling=0.14)
    exec(compile(texts["python"], "python", "exec"), {})
    assert "ε" in capsys.readouterr().out
    pytest.importorskip("flwr")
    monkeypatch.chdir(tmp_path)
    Path("trusted.txt").touch(0o600)
    Path("trusted.txt").write_text("\n".join(f"{n:064x}" for n in range(setting.clients)))
    made = {}
    exec(compile(texts["flower"], "flower", "exec"), made)
    assert {"app", "strategy"} <= {*made}
    assert "unsigned" not in texts["flower"]  # on both ends or on none
    plan, *others = texts["cli"].replace("\\\n", " ").splitlines()
    jopeq, command, *words = shlex.split(plan)  # takes seconds: its options are read, not used
    assert (jopeq, command) == ("jopeq", "plan")
    given = get_command(app).commands["plan"].make_context("plan", words).params
    assert (given["dimension"], given["rounds"]) == (1000, setting.rounds)
    for line in others:
        done = jopeq_command(*shlex.split(line)[1:], "--draws", 1000)
        assert done.exit_code == 0, done.output
