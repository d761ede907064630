"""Distortion against rate: the points are the schemes' own figures, the figure is drawn."""

from jopeq_lab.pictures.tradeoff import SCHEMES, tradeoff


def test_what_a_scheme_refuses_has_no_point():
    points = tradeoff(epsilons=(1.0,), rates=(1.0, 1.5, 2.0, 6.0))
    drawn = {name: [p.rate for p in points if p.name == name] for name in SCHEMES}
    assert drawn["mvu"] == [1.0, 2.0]  # whole bits up to 5
    for name in ("laplace", "laplace+sdq", "jopeq", "response"):
        assert drawn[name] == [1.0, 1.5, 2.0, 6.0]
    points = tradeoff(epsilons=(11.0,), rates=(2.0,))  # mvu ends at ε = 10
    assert [p.name for p in points] == [name for name in SCHEMES if name != "mvu"]
