"""The house stays small: public members, names and commands."""

from dataclasses import fields

import typer

import jopeq
from jopeq.cli import app
from jopeq_lab.cli import app as lab_app


def test_the_public_face_is_small():
    members = {name for name in dir(jopeq.Scheme) if not name.startswith("_")}
    assert len(members - {field.name for field in fields(jopeq.Scheme)} | {"name"}) <= 20
    assert len(jopeq.__all__) <= 26
    assert all(getattr(jopeq, name) is not None for name in jopeq.__all__)


def test_the_command_line_is_small():
    assert len(typer.main.get_command(app).commands) <= 8
    train = typer.main.get_command(lab_app).commands["train"]
    assert len(train.params) <= 17
