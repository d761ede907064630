import copy

from jopeq.experiments.speed_targets import TARGETS, outcomes


def test_targets_can_be_missed_and_reached(kept_speed):
    for factor, expected in ((1e-6, False), (1e6, True)):
        codecs = copy.deepcopy(kept_speed["codecs"])
        for row in codecs["schemes"].values():
            for way in ("encode", "decode"):
                row[way] = [speed and speed * factor for speed in row[way]]
        found = list(outcomes(codecs))
        assert [one.target for one in found] == list(TARGETS)
        assert {one.is_reached for one in found} == {expected}


def test_targets_are_judged_at_the_largest_size_that_both_sides_did(kept_speed):
    codecs = kept_speed["codecs"]
    codecs["schemes"]["sdq E8"]["eager"][-1] = None
    found = {(one.target.scheme, one.target.rival): one for one in outcomes(codecs)}
    assert found["sdq E8", "eager"].entries == codecs["sizes"][-2]
    assert found["sdq", "copy"].entries == codecs["sizes"][-1]
