from torch import nn

from jopeq.federated.layers import stacked_forward

CLASSES = 4


def test_hooked_layers_are_left_to_vmap():
    model = nn.Sequential(nn.Flatten(), nn.Linear(256, CLASSES))
    model[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    assert stacked_forward(model) is None
