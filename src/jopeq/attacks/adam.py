"""Adam for many problems at once, as Geiping et al. (2020) use it: signed gradients, in a box."""

from __future__ import annotations

from collections.abc import Callable

import torch

from jopeq.attacks.lbfgs import CONVERGED, FAILED, RUNNING, SPENT, STALLED, Evaluated, Minimum

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_CHECK_EVERY = 10  # steps between looks at who is done
_DROPS = (3 / 8, 5 / 8, 7 / 8)  # of all steps: where the learning rate falls to a tenth
_LEAST_PROGRESS = 1e-3  # of the loss, in ``patience`` evaluations


class BatchedAdam:
    """Minimize f_i(x_i) for all i; the best point each path met is kept.

    Parameters
    ----------
    evaluate
        (points, rows) → losses and gradients; ``rows`` are the problems that ``points`` belong to.
    boxed
        The first ``boxed`` entries of a point are kept in [0, 1].
    is_signed
        Whether only the signs of the gradients are used.
    patience
        Evaluations in which the best loss must fall by a thousandth, or else it is stalled, once
        the learning rate has fallen for the last time. 0: never.
    """

    def __init__(
        self,
        evaluate: Callable[[torch.Tensor, torch.Tensor], Evaluated],
        *,
        evaluations: int = 6000,
        learning_rate: float = 0.1,
        boxed: int = 0,
        is_signed: bool = True,
        tolerance: float = 1e-9,
        patience: int = 200,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        for name, value, least in (("evaluations", evaluations, 1), ("patience", patience, 0)):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        if not learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {learning_rate}")
        self._evaluate = evaluate
        self._limit, self._rate = evaluations, learning_rate
        self._boxed, self._is_signed = boxed, is_signed
        self._tolerance, self._patience = tolerance, patience
        self._progress = progress

    def minimize(self, start: torch.Tensor) -> Minimum:
        """Run all problems to their end from ``start`` (N, n)."""
        count = len(start)
        rows = torch.arange(count, device=start.device)
        zeros = torch.zeros(count, dtype=torch.int64, device=start.device)
        infinite = torch.full((count,), torch.inf, dtype=start.dtype, device=start.device)
        result = Minimum(start.clone(), infinite, zeros.clone(), zeros.clone())
        state = {
            "points": start.clone(),
            "best": start.clone(),
            "losses": infinite.clone(),
            "status": zeros.clone(),
            "evaluations": zeros.clone(),
            "reference": infinite.clone(),
            "mean": torch.zeros_like(start),
            "square": torch.zeros_like(start),
        }
        for number in range(1, self._limit + 1):
            if number % _CHECK_EVERY == 1:
                finished = state["status"] != RUNNING
                if bool(finished.any()):
                    _keep(result, rows, state)
                    kept = (~finished).nonzero()[:, 0]
                    rows = rows[kept]
                    state = {name: value[kept] for name, value in state.items()}
                if not len(rows):
                    break
                if self._progress is not None:
                    self._progress(number - 1, count - len(rows))
            self._step(state, rows, number)
        _keep(result, rows, state)
        result.status[result.status == RUNNING] = SPENT
        return result

    def _step(self, state: dict[str, torch.Tensor], rows: torch.Tensor, number: int) -> None:
        points, status = state["points"], state["status"]
        losses, gradients = self._evaluate(points, rows)
        running = status == RUNNING
        finite = losses.isfinite() & gradients.isfinite().all(1)
        state["evaluations"] += running
        status.masked_fill_(running & ~finite, FAILED)
        better = running & finite & (losses < state["losses"])
        state["best"] = torch.where(better[:, None], points, state["best"])
        state["losses"] = torch.where(better, losses, state["losses"])
        status.masked_fill_(running & finite & (losses <= self._tolerance), CONVERGED)
        if self._patience and number % self._patience == 0:
            if number > _DROPS[-1] * self._limit:
                slow = state["losses"] > (1.0 - _LEAST_PROGRESS) * state["reference"]
                status.masked_fill_((status == RUNNING) & slow, STALLED)
            state["reference"] = state["losses"].clone()
        used = gradients.sign() if self._is_signed else gradients
        mean = _BETA1 * state["mean"] + (1 - _BETA1) * used
        square = _BETA2 * state["square"] + (1 - _BETA2) * used.square()
        state["mean"], state["square"] = mean, square
        rate = self._rate * 0.1 ** sum(number > drop * self._limit for drop in _DROPS)
        scale = (square / (1 - _BETA2**number)).sqrt() + _EPSILON
        moved = points - rate * (mean / (1 - _BETA1**number)) / scale
        if self._boxed:
            boxed = moved[:, : self._boxed].clamp(0.0, 1.0)
            moved = torch.cat((boxed, moved[:, self._boxed :]), 1)
        state["points"] = torch.where(running[:, None], moved, points)


def _keep(result: Minimum, rows: torch.Tensor, state: dict[str, torch.Tensor]) -> None:
    result.points[rows], result.losses[rows] = state["best"], state["losses"]
    result.status[rows], result.evaluations[rows] = state["status"], state["evaluations"]
