"""The house stays small: the way of the data, the public members and names."""

from dataclasses import fields

import typer

import jopeq
from jopeq.cli import app
from jopeq_lab.cli import app as lab_app
from tools import hops


def test_the_way_of_the_data_is_short():
    found = hops.walks()
    most = {"encode": (55, 12), "decode": (35, 9)}
    for (name, what), walk in found.items():
        functions, files = most[what]
        assert walk.functions <= functions, (name, what, walk)
        assert walk.files <= files, (name, what, walk)


def test_the_public_face_is_small():
    members = {name for name in dir(jopeq.Scheme) if not name.startswith("_")}
    assert len(members - {field.name for field in fields(jopeq.Scheme)} | {"name"}) <= 20
    assert len(jopeq.__all__) <= 26
    assert all(getattr(jopeq, name) is not None for name in jopeq.__all__)


def test_the_command_line_is_small():
    assert len(typer.main.get_command(app).commands) <= 8
    train = typer.main.get_command(lab_app).commands["train"]
    assert len(train.params) <= 17
