import numpy as np
import pytest
from torch import nn

import jopeq
from jopeq.federated.models import ModelVector
from jopeq.federated.simulation import Transport

KEY = bytes(range(32))
LAYOUT = ModelVector(nn.Linear(16, 3))


def sent(transport, scheme, update, number=0, client=0):
    return transport.send(scheme, [update], number, [client])


def test_every_payload_has_its_own_noise():
    scheme = jopeq.scheme("laplace", epsilon=1, clip=1)
    transport = Transport(LAYOUT, 0, KEY)
    zeros = np.zeros(51, dtype=np.float32)
    places = [(number, client) for number in range(3) for client in range(3)]
    apart = [sent(transport, scheme, zeros, *place).decoded[0].tobytes() for place in places]
    assert len(set(apart)) == 9
    together = [transport.send(scheme, [zeros] * 3, number, range(3)) for number in range(3)]
    assert apart == [decoded.tobytes() for each in together for decoded in each.decoded]
    other = sent(Transport(LAYOUT, 1, KEY), scheme, zeros).decoded[0].tobytes()
    assert other not in apart


def test_without_a_key_only_what_promises_nothing_repeats():
    update = np.linspace(-1, 1, 51, dtype=np.float32)
    public, transport = jopeq.scheme("sdq", rate=2), Transport(LAYOUT, 0)
    one, two = (sent(transport, public, update).decoded[0] for _ in range(2))
    assert np.array_equal(one, two)
    other = sent(Transport(LAYOUT, 1), public, update).decoded[0]
    assert not np.array_equal(one, other)


def test_without_a_key_nothing_private_repeats():
    scheme = jopeq.scheme("response", epsilon=4, rate=2)
    transport = Transport(LAYOUT, 0)
    update = np.linspace(-1, 1, 51, dtype=np.float32)
    one, two = (sent(transport, scheme, update) for _ in range(2))
    assert not np.array_equal(one.decoded[0], two.decoded[0])
    assert one.statistics[0].payload_bytes == two.statistics[0].payload_bytes


def test_tensors_are_scaled_apart():
    scheme = jopeq.scheme("sdq", rate=4, per="tensor")
    update = np.full(51, 1e-6, dtype=np.float32)
    update[:48] = 1.0
    decoded = sent(Transport(LAYOUT, 0, KEY), scheme, update).decoded[0]
    assert decoded.shape == (51,)
    np.testing.assert_allclose(decoded[48:], 1e-6, rtol=0.5)  # the bias keeps its own scale


@pytest.mark.parametrize("per", ["update", "tensor"])
@pytest.mark.parametrize("bad", [np.nan, 1e38])
def test_an_update_that_diverged_stops_the_simulation(bad, per):
    scheme = jopeq.scheme("response", epsilon=4, rate=2, per=per)
    with pytest.raises(jopeq.UpdateError):
        sent(Transport(LAYOUT, 0), scheme, np.full(51, bad, dtype=np.float32))


def test_the_noise_of_a_vote_is_its_own():
    zeros = {"lane": 0, "start": 0, "count": 8}
    streams = [Transport(LAYOUT, 0, KEY).clip_noise(*place) for place in ((0, 0), (0, 1), (1, 0))]
    assert len({stream.read(**zeros).tobytes() for stream in streams}) == 3
    assert Transport(LAYOUT, 0).clip_noise(0, 0) is None  # fresh noise
