"""The model that ``jopeq attack`` attacks: often the user's own code, which may raise anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jopeq.commands.memory import is_of_memory

if TYPE_CHECKING:
    from jopeq.attacks.gradients import GradientMap

_LONGEST = 400  # characters of what the user's code said


def gradients_of(
    model: str, input_shape: tuple[int, int, int], classes: int, seed: int, device: str
) -> GradientMap:
    """The model's gradients; ValueError names --model and what was wrong, whatever was raised."""
    from jopeq.attacks.gradients import GradientMap
    from jopeq.federated.models import build

    try:
        made = build(model, input_shape, classes, seed)
        found = GradientMap(made, input_shape, device=device)
        _check_is_attackable(found)
        return found
    except (Exception, SystemExit) as error:
        raise ValueError(_words(model, input_shape, error)) from error


def _check_is_attackable(gradient_map: GradientMap) -> None:
    """An attack follows the derivative of the gradient in the image: there must be one."""
    import torch

    device, dtype = gradient_map.device, gradient_map.dtype
    image = torch.zeros(1, *gradient_map.input_shape, dtype=dtype, device=device).requires_grad_()
    rows = gradient_map(image, gradient_map.one_hot(torch.tensor([0])))
    is_used = rows.requires_grad
    if is_used:
        is_used = torch.autograd.grad(rows.sum(), image, allow_unused=True)[0] is not None
    if not is_used:
        raise ValueError(
            "its gradients do not depend on the image, so there is nothing to attack: compute the "
            "logits from the image, without .detach()"
        )


def _words(model: str, input_shape: tuple[int, int, int], error: BaseException) -> str:
    said = " ".join(str(error).split())
    said = said if len(said) <= _LONGEST else said[: _LONGEST - 1] + "…"
    if any(map(is_of_memory, (error, error.__cause__ or error))):
        return (
            f"--model {model!r} with images of {'×'.join(map(str, input_shape))} does not fit into "
            f"memory ({said}): give a smaller --shape, or a smaller model"
        )
    if isinstance(error, ValueError) and said.startswith("model "):
        return f"--{said}"  # of our own, and names it already
    if isinstance(error, ValueError):
        return f"--model {model!r}: {said}"
    kind = type(error).__name__
    return (
        f"--model {model!r} cannot be used ({kind}{said and ': '}{said}): correct its code, "
        "or give it images that it takes"
    )
