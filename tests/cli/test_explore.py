"""``jopeq explore``, and the lines that its page gives to copy."""

import shlex

import pytest
from typer.main import get_command

from jopeq.cli import app
from jopeq.lab.explorer import Setting, page
from jopeq.lab.explorer.lines import lines


@pytest.mark.parametrize(
    "setting",
    [
        Setting(scheme="sphere", epsilon=4.0, rounds=30, entries=1000, clients=10_000),
        Setting(scheme="sum", epsilon=8.0, delta=1e-6, rounds=10, entries=1000, clients=30),
        Setting(scheme="response", epsilon=2.0, rounds=10, entries=1000),
    ],
    ids=lambda setting: setting.scheme,
)
def test_lines_run(setting, capsys, jopeq_command):
    texts = lines(setting, spread=2.5)
    exec(compile(texts["python"], "python", "exec"), {})
    assert "ε" in capsys.readouterr().out
    pytest.importorskip("flwr")
    exec(compile(texts["flower"], "flower", "exec"), {})
    plan, *others = texts["cli"].replace("\\\n", " ").splitlines()
    jopeq, command, *words = shlex.split(plan)  # takes seconds: its options are read, not used
    assert (jopeq, command) == ("jopeq", "plan")
    given = get_command(app).commands["plan"].make_context("plan", words).params
    assert (given["dimension"], given["rounds"]) == (1000, setting.rounds)
    for line in others:
        done = jopeq_command(*shlex.split(line)[1:], "--draws", 1000)
        assert done.exit_code == 0, done.output


def test_the_command_writes_and_opens(jopeq_command, monkeypatch, tmp_path):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda uri: opened.append(uri) or False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "page.html"
    assert jopeq_command("explore", "--out", path).exit_code == 0
    assert path.read_text(encoding="utf-8") == page()
    assert jopeq_command("explore", "--no-open").exit_code == 0
    assert opened == []
    done = jopeq_command("explore")
    assert (done.exit_code, len(opened)) == (0, 1)
    assert "open the file yourself" in done.output
    assert opened[0].startswith(tmp_path.as_uri())
    done = jopeq_command("explore", "--out", tmp_path / "missing" / "page.html")
    assert done.exit_code == 2
    assert "cannot be written" in done.output
