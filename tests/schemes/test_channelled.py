import pytest

from jopeq import scheme, scheme_from_spec

BUILT = [
    scheme("response", epsilon=4.0, rate=2.0, clip=1.0),
    scheme("mvu", epsilon=4.0, rate=2.0, clip=1.0),
]


@pytest.mark.parametrize("built", BUILT, ids=lambda built: built.name)
def test_figures_are_those_of_the_channel(built):
    channel = built.finite_channel
    assert built.guarantee.epsilon == channel.epsilon <= 4.0
    assert built.guarantee.is_exact
    assert built.guarantee.assumptions == ()
    assert built.distortion == channel.distortion(0.0)
    assert built.distortion_for(0.4) == channel.gaussian_distortion(0.4)
    assert built.bits_per_entry == 2.0
    assert built.fingerprint == channel.fingerprint.hex()


@pytest.mark.parametrize("name", ["response", "mvu"])
def test_another_fingerprint_is_refused(name):
    built = scheme(name, epsilon=4.0, rate=2.0)
    assert scheme_from_spec(built.spec) == built
    with pytest.raises(ValueError, match="same jopeq and SciPy versions on both ends"):
        scheme_from_spec(built.spec.replace(built.fingerprint, "ff" * 8))
    with pytest.raises(ValueError, match="has no parameter 'fingerprint'"):
        scheme(name, epsilon=4.0, rate=2.0, fingerprint=built.fingerprint)
