"""Schemes that somebody else's payload names: what an encoder writes, and nothing costlier."""

from __future__ import annotations

import json

import pytest

import jopeq
from jopeq.schemes import written_scheme

BUILT = [
    ("none", {}),
    ("dq", {"rate": 2}),
    ("sdq", {"rate": 2, "rotate": True}),
    ("sdq", {"step": 0.1, "coding": "entropy"}),
    ("sdq", {"rate": 1.5, "lattice": "E8", "gamma": 1.2}),
    ("sdq", {"rate": 2, "spread": "auto", "clients": 3}),
    ("laplace", {"epsilon": 4}),
    ("t", {"epsilon": 2, "nu": 5, "size": 4}),
    ("l2", {"epsilon": 2, "size": 1}),
    ("gaussian", {"epsilon": 2}),
    ("t+sdq", {"epsilon": 3, "rate": 2, "lattice": "A2", "nu": 4, "squared_scale": 0.2}),
    ("jopeq", {"epsilon": 4, "rate": 1, "paper_sensitivity": True}),
    ("jopeq", {"epsilon": 4, "rate": 2, "lattice": "A2", "law": "gaussian"}),
    ("mvu", {"epsilon": 4, "rate": 2}),
    ("staircase", {"epsilon": 4}),
    ("staircase", {"epsilon": 4, "rate": 2}),
    ("staircase", {"epsilon": 4, "rate": 3, "coding": "entropy"}),
    ("staircase", {"epsilon": 4, "rate": 2, "lattice": "A2"}),
    ("response", {"epsilon": 4, "rate": 2, "per": "tensor", "center": True}),
    ("response", {"epsilon": 4, "rate": 2, "channel": "randomized", "levels": 3}),
    ("response", {"epsilon": 4, "rate": 2, "channel": "optimal"}),
    ("response", {"epsilon": 40, "rate": 2}),
    ("response", {"epsilon": 4, "rate": 2, "spread": "auto", "clients": 10}),
    ("response", {"epsilon": 4, "rate": 2, "unit": "update", "clip": 1.0}),
]


@pytest.mark.parametrize(("name", "parameters"), BUILT, ids=lambda value: str(value)[:40])
def test_what_an_encoder_writes_is_read(name, parameters):
    built = jopeq.scheme(name, **parameters)
    assert written_scheme(built.spec) == built


@pytest.mark.parametrize("name", ["staircase", "response", "mvu"])
def test_what_would_have_to_be_chosen_first_is_refused(name):
    spec = json.dumps([name, {"epsilon": 4.0, "rate": 2.0}], separators=(",", ":"))
    with pytest.raises(ValueError, match="no payload names this scheme"):
        written_scheme(spec)


@pytest.mark.parametrize(
    "spec",
    [
        '["sdq", {"rate":2.0}]',  # a space
        '["sdq",{"rate":2}]',
        '["sdq",{"rate":2.0,"spread":3.0}]',  # the default
        '["sdq",{"clients":3,"rate":2.0,"spread":"auto"}]',
    ],
)
def test_other_spellings_are_refused(spec):
    with pytest.raises(ValueError, match="no payload names this scheme"):
        written_scheme(spec)


def test_another_scheme_than_the_one_wanted_is_refused_by_name():
    spec = jopeq.scheme("sdq", rate=2.0).spec
    assert written_scheme(spec, only="sdq").spec == spec
    with pytest.raises(ValueError, match="scheme must be 'none' here, got 'sdq'"):
        written_scheme(spec, only="none")
