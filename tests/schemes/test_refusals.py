"""What no scheme can be built from: the error names the parameter, the value and the remedy."""

import inspect
import math
import re

import pytest

import jopeq
from jopeq.registry import parameters_of

NAMES = [*jopeq.registry.SCHEMES, "sum"]
NEEDED = {"epsilon": 4.0, "rate": 2.0, "clients": 10, "threshold": 8}
NEVER = (-1, 0, math.nan, math.inf, 10**400, True, "nonsense", [1.0], {}, object())


def needed(name):
    given = {key: value for key, value in NEEDED.items() if key in parameters_of(name)}
    if name == "sum":
        given["delta"] = 1e-5
    return given | ({"clip": 1.0} if name in ("sphere", "sum") else {})


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_is_documented_and_refuses_what_it_cannot_be(name):
    kind, known = jopeq.registry.SCHEMES.get(name, jopeq.SecureSum), parameters_of(name)
    rooms = (jopeq, jopeq.entries)
    assert kind in [getattr(room, kind.__name__, None) for room in rooms]
    built = jopeq.scheme(name, **needed(name))
    assert name == "sum" or built.is_private == (built.guarantee.nominal is not None)
    for parameter in known:
        assert re.search(rf"\n *(\w+, )*{parameter}(, \w+)* : ", kind.__doc__)
        assert parameter in inspect.signature(kind).parameters
        for bad in NEVER:
            is_switch = parameter in ("center", "paper_sensitivity") and bad is True
            if is_switch or (parameter, bad) == ("colluding", 0):
                continue
            with pytest.raises(ValueError, match=rf"\b{parameter}\b"):
                jopeq.scheme(name, **needed(name) | {parameter: bad})
    message = f"'unknown'.*{', '.join(known)}" if known else "takes no parameters: drop unknown"
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **needed(name) | {"unknown": 1})


E8 = {"lattice": "E8"}
COMBINATIONS = {
    "none": [({"clip": 1.0, "center": True}, "takes no parameters: drop clip, center")],
    "sdq": [
        ({"rat": 2.0}, r"has no parameter 'rat', did you mean 'rate'\? It takes"),
        ({"rate": None}, r"scheme 'sdq' needs rate \(bits per entry\)$"),
        ({"rate": None, "coding": "entropy"}, "needs rate .*, or step, for the size of the cells"),
        ({"rate": None, "step": 0.1}, "step needs coding='entropy'"),
        ({"step": 0.1, "coding": "entropy"}, "give either step, or rate and gamma"),
        *(
            ({"rate": None, "step": bad, "coding": "entropy"}, "step must be a positive number")
            for bad in (-0.1, 1e-320)
        ),
        ({"rate": 0.5}, r"at least 1 bits per entry \(two letters\).*raise rate"),
        ({"rate": 0.1, **E8}, "rate must be at least 0.125 bits per entry"),
        ({"rate": 65.0}, "rate must be at most 64 bits per entry"),
        ({"rate": 33.0}, "letters must be 2…4294967296 on Z"),
        ({"rate": 4.0, **E8}, "lower rate, or use coding='entropy'"),
        ({"rate": 0.125, **E8}, "too few to cover the unit ball.*raise rate or give"),
        ({"rate": 1.0, "gamma": 1e200, **E8}, r"gamma must be .* got 1e\+200"),
        ({"levels": "odd", "coding": "entropy"}, "levels='odd' needs coding='fixed'"),
        ({"rate": 1.0, "levels": "odd"}, "three letters, rate of at least 1.585 .*raise rate"),
        ({"lattice": [[1, 2], [2, 4]]}, "independent columns"),
        *(
            ({"lattice": bad}, "lattice must be a name or a 2×2 generator, got")
            for bad in (None, 5, [1.0, 2.0], [[1.0], [2.0, 3.0]], [["a"]])
        ),
        *(({"clip": clip}, "clip must be between 1e-37 and 1e") for clip in (1e-40, 1e35)),
        ({"clip": 1.0, "center": True}, "drop center or clip"),
        ({"coding": "entropy", "clients": 5, "spread": "auto"}, "not clip"),
    ],
    "laplace": [({"epsilon": None}, "scheme 'laplace' needs epsilon, .* per sample")],
    "t": [
        *(({"size": bad}, "size must be a whole number") for bad in (2.0, 1 << 17)),
        ({"nu": 1.0}, "nu must be above 2"),
        ({"nu": 3.0, "squared_scale": -1.0}, "squared_scale must be a positive number"),
        ({"nu": 5.0, "squared_scale": 1.0, "paper_sensitivity": True}, "nothing to choose"),
    ],
    "laplace+sdq": [
        ({"nu": 5.0}, "nu and squared_scale belong to law='t'"),
        ({"rate": 32.0}, r"step must be at least .* lower rate or raise gamma"),
    ],
    "t+sdq": [({"squared_scale": 1.0}, "squared_scale needs nu: give both, or neither")],
    "jopeq": [
        ({"epsilon": math.inf}, "for no privacy use scheme='sdq' or scheme='none'"),
    ],
    "response": [
        ({"rate": None}, r"scheme 'response' needs rate \(bits per entry\)"),
        ({"rate": 0.5}, "rate must be at least 1"),
        ({"levels": 5}, "levels must be 2…4.*raise rate or lower levels"),
        ({"levels": 300, "rate": 10.0}, "levels must be 2…256"),
        ({"levels": 2.5}, "levels must be a whole number"),
        ({"spread": "auto"}, "go together"),
        *(({"clients": 10, **given}, "go together") for given in ({}, {"spread": 3.0})),
        ({"clients": 5, "spread": "auto", "clip": 1.0}, "drop one"),
        ({"clip": "tight"}, "clip must be a number or 'layers', got 'tight'"),
        *(
            ({"clients": bad, "spread": "auto"}, "clients must be a whole")
            for bad in (0, 2.5, True)
        ),
    ],
    "mvu": [
        ({"epsilon": 20.0}, r"epsilon must be in \[0.1, 10.0\].*got 20.0.*'response'"),
        ({"rate": 1.5}, "rate must be 1, 2, 3, 4 or 5"),
        ({"unit": "update"}, "has no parameter 'unit'"),
    ],
    "sphere": [
        ({"epsilon": None}, "'sphere' needs epsilon, .* per update"),
        ({"epsilon": 0.001}, "raise epsilon"), ({"epsilon": 30.0}, "several"),
        ({"clip": "layers"}, "clip must be a number, got 'layers': .* whole update"),
        ({"clip": None}, "clip"),
        *(({name: bad}, name) for name, bad in (("bits", 25), ("draws", 16))),
        ({"per": "tensor"}, "per"),
    ],
    "sum": [
        ({"threshhold": 3}, "no parameter 'threshhold', did you mean 'threshold'"),
        ({"epsilon": 100.0}, "epsilon must be at most"),
        ({"epsilon": 1e4}, "protects nobody"),
        *(({name: bad}, "threshold must be from colluding")
          for name, bad in (("threshold", 1), ("colluding", 7))),
        ({"bits": 17}, "bits must be from 1 to 16"),
        ({"signal": 1.1}, "signal"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [(name, *case) for name, cases in COMBINATIONS.items() for case in cases],
)
def test_impossible_combinations_name_the_remedy(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        jopeq.scheme(name, **needed(name) | parameters)


def test_none_takes_nothing_by_its_class_either():
    with pytest.raises(ValueError, match="takes no parameters: drop clip, spread"):
        jopeq.Uncompressed(clip=1.0, spread=2.0)


@pytest.mark.parametrize(("name", "message"), [("sqd", "did you mean 'sdq'"), (None, "got None")])
def test_schemes_that_do_not_exist(name, message):
    with pytest.raises(ValueError, match=f"scheme must be one of none, sdq, .*{message}"):
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
