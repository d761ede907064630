"""What no scheme can be built from: the error names the parameter, the value and the remedy."""

import inspect
import math
import re

import pytest

import jopeq
from jopeq.registry import parameters_of

OTHERS = {"sphere": jopeq.Sphere, "clients": jopeq.ClientSum}
NAMES = [*jopeq.registry.SCHEMES, *OTHERS]
NEEDED = {"epsilon": 4.0, "rate": 2.0, "clients": 10, "threshold": 8}
NEVER = (-1, 0, math.nan, math.inf, 10**400, True, "nonsense", [1.0], {}, object())


def needed(name):
    given = {key: value for key, value in NEEDED.items() if key in parameters_of(name)}
    if name == "clients":
        given["delta"] = 1e-5
    return given | ({"clip": 1.0} if name in ("sphere", "clients") else {})


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_documented_and_refuses_what_it_cannot_be(name):
    kind, known = {**jopeq.registry.SCHEMES, **OTHERS}[name], parameters_of(name)
    rooms = (jopeq, jopeq.entries)
    assert kind in [getattr(room, kind.__name__, None) for room in rooms]
    built = jopeq.scheme(name, **needed(name))
    assert name == "clients" or built.is_private == (built.guarantee.nominal is not None)
    for parameter in known:
        assert re.search(rf"\n *(\w+, )*{parameter}(, \w+)* : ", kind.__doc__)
        assert parameter in inspect.signature(kind).parameters
        for bad in NEVER:
            is_switch = parameter == "center" and bad is True
            if is_switch or (parameter, bad) in (("colluding", 0), ("mean", [1.0])):
                continue
            with pytest.raises(ValueError, match=rf"\b{parameter}\b"):
                jopeq.scheme(name, **needed(name) | {parameter: bad})
    message = f"'unknown'.*It takes {', '.join(known) or 'none'}"
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **needed(name) | {"unknown": 1})


def test_a_slip_is_answered_with_the_nearest_name():
    with pytest.raises(ValueError, match="no parameter 'epsilom', did you mean 'epsilon'"):
        jopeq.scheme("jopeq", epsilom=4.0, rate=1.0)


E8 = {"lattice": "E8"}
COMBINATIONS = {
    "none": [{"clip": 1.0, "center": True}],
    "sdq": [
        {"rate": None},
        *({"rate": rate} for rate in (0.5, 65.0)),
        *({"rate": rate, **E8} for rate in (0.1, 4.0, 0.125)),
        {"gamma": 1e200, "rate": 1.0, **E8},
        *({"levels": "odd", "rate": 1.0}, {"levels": "even"}),
        *({"lattice": bad} for bad in (None, 5, [1.0, 2.0], [[1.0], [2.0, 3.0]], [["a"]])),
        *({"clip": 1e-40}, {"clip": 1e35}, {"center": True, "clip": 1.0}),
    ],
    "laplace": [{"epsilon": None}],
    "t": [
        *({"size": 2.0}, {"size": 1 << 17}, {"nu": 1.0}, {"squared_scale": -1.0, "nu": 3.0}),
    ],
    "laplace+sdq": [{"nu": 5.0}, {"rate": 32.0}],
    "t+sdq": [{"squared_scale": 1.0}],
    "jopeq": [{"epsilon": math.inf}],
    "response": [
        *({"rate": None}, {"rate": 0.5}, {"levels": 5}, {"levels": 300, "rate": 10.0}),
        *({"levels": 2.5}, {"spread": "auto"}, {"clients": 10}, {"clients": 10, "spread": 3.0}),
        *({"clip": 1.0, "clients": 5, "spread": "auto"}, {"clip": "tight"}),
        *({"clients": bad, "spread": "auto"} for bad in (0, 2.5, True)),
    ],
    "mvu": [{"epsilon": 20.0}, {"rate": 1.5}, {"unit": "update"}],
    "sphere": [
        *({"epsilon": epsilon} for epsilon in (None, 0.001, 30.0)),
        *({"clip": "layers"}, {"clip": None}, {"bits": 25}, {"draws": 16}),
        {"per": "tensor"},
    ],
    "clients": [
        *({"threshhold": 3}, {"epsilon": 100.0}, {"epsilon": 1e4}, {"threshold": 1}),
        *({"colluding": 7}, {"bits": 33}, {"largest_mean": 1.1}),
    ],
}


@pytest.mark.parametrize(
    ("name", "parameters"), [(name, case) for name, cases in COMBINATIONS.items() for case in cases]
)
def test_impossible_combinations_name_a_parameter(name, parameters):
    with pytest.raises(ValueError, match=rf"\b{next(iter(parameters))}\b"):
        jopeq.scheme(name, **needed(name) | parameters)


def test_a_word_that_is_no_clip_is_told_the_one_that_is():
    with pytest.raises(ValueError, match="'layers', got 'layer'"):
        jopeq.scheme("sdq", rate=2.0, clip="layer")


def test_none_takes_nothing_by_its_class_either():
    with pytest.raises(ValueError, match="clip"):
        jopeq.Uncompressed(clip=1.0)


@pytest.mark.parametrize("name", ["sqd", None])
def test_schemes_that_do_not_exist(name):
    with pytest.raises(ValueError, match=f"scheme must.*{name}"):
        jopeq.scheme(name)


@pytest.mark.parametrize(
    "spec",
    ["", "5", "[]", "null", '"sdq"', '["sdq"]', '["sdq",5]', '["sdq",{}', '[["sdq"],{}]',
     "[" * 100_000, '["sdq",{"rate":1e999}]', '["sdq",{"rate":[]}]', '["nothing",{}]',
     '["sdq",{"lattice":5,"rate":1.0}]', '["sdq",{"lattice":[[1]],"rate":1.0}]'],
    ids=lambda s: s[:30],
)  # fmt: skip
def test_specifications_that_are_none_are_value_errors(spec):
    with pytest.raises(ValueError, match=r"."):
        jopeq.scheme_from_spec(spec)
