"""Adam for many problems at once, as Geiping et al. (2020) use it: signed gradients, in a box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

# L-BFGS for many problems at once, each with its own history, line search and end


Evaluated = tuple[torch.Tensor, torch.Tensor]  # losses (N,), gradients (N, n)
LINE_SEARCHES = ("wolfe", "none")

RUNNING, CONVERGED, STALLED, SPENT, FAILED = range(5)

_DECREASE, _CURVATURE = 1e-4, 0.9  # Wolfe's constants, as Nocedal and Wright advise
_MOST_TRIALS = 20
_CHECK_EVERY = 10  # rounds between looks at who is done
_LEAST_PROGRESS = 1e-3  # of the loss, in ``patience`` evaluations


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best point found for each problem."""

    points: torch.Tensor
    losses: torch.Tensor
    status: torch.Tensor
    evaluations: torch.Tensor


class BatchedLBFGS:
    """Minimize f_i(x_i) for all i.

    Parameters
    ----------
    evaluate
        (points, rows) → losses and gradients; ``rows`` are the problems that ``points`` belong to.
    line_search
        "wolfe": bisection for the weak Wolfe conditions (Lewis and Overton 2013), which always
        decreases the loss; "none": the whole step, as ``torch.optim.LBFGS`` does by default and
        the DLG authors use it.
    tolerance
        A loss at or below it is converged.
    patience
        Evaluations in which a loss must fall by a thousandth, or else it is stalled. 0: never.
    """

    def __init__(
        self,
        evaluate: Callable[[torch.Tensor, torch.Tensor], Evaluated],
        *,
        evaluations: int = 6000,
        history: int = 100,
        line_search: str = "wolfe",
        tolerance: float = 1e-9,
        patience: int = 200,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        if line_search not in LINE_SEARCHES:
            raise ValueError(
                f"line_search must be one of {', '.join(LINE_SEARCHES)}, got {line_search!r}"
            )
        for name, value, least in (
            ("evaluations", evaluations, 1),
            ("history", history, 1),
            ("patience", patience, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        self._evaluate = evaluate
        self._limit, self._history = evaluations, history
        self._searches = line_search == "wolfe"
        self._tolerance, self._patience = tolerance, patience
        self._progress = progress

    def minimize(self, start: torch.Tensor) -> Minimum:
        """Run all problems to their end from ``start`` (N, n)."""
        count = len(start)
        rows = torch.arange(count, device=start.device)
        losses, gradients = self._evaluate(start, rows)
        state = _begin(start, losses, gradients, self._history)
        self._judge(state)
        result = Minimum(
            start.clone(), losses.clone(), state["status"].clone(), state["evaluations"].clone()
        )
        for number in range(1, self._limit + 1):
            if number % _CHECK_EVERY == 1 or number == self._limit:
                finished = int((state["status"] != RUNNING).sum())
                if finished == len(rows):
                    break
                # copying the history costs about two rounds: wait until it pays
                if finished and (finished * 8 >= len(rows) or start.device.type == "cpu"):
                    _keep(result, rows, state)
                    running = (state["status"] == RUNNING).nonzero()[:, 0]
                    rows = rows[running]
                    state = {name: value[running] for name, value in state.items()}
                if self._progress is not None:
                    self._progress(number - 1, count - len(rows))
            self._round(state, rows, number)
        _keep(result, rows, state)
        result.status[result.status == RUNNING] = SPENT
        return result

    def _round(self, state: dict[str, torch.Tensor], rows: torch.Tensor, number: int) -> None:
        """One evaluation of every problem, in place."""
        points, step, direction = state["points"], state["step"], state["direction"]
        running = state["status"] == RUNNING
        trial = points + step[:, None] * direction
        losses, gradients = self._evaluate(trial, rows)
        finite = losses.isfinite() & gradients.isfinite().all(1)
        state["evaluations"] += running
        state["trials"] += 1
        if self._searches:
            accepted = self._search(state, losses, gradients, finite) & running
        else:
            state["status"].masked_fill_(running & ~finite, FAILED)
            accepted = running & finite
        moved = trial - points
        turned = gradients - state["gradients"]
        used = min(number, self._history)
        good = _remember(state, moved, turned, accepted)
        state["points"] = torch.where(accepted[:, None], trial, points)
        state["gradients"] = torch.where(accepted[:, None], gradients, state["gradients"])
        state["losses"] = torch.where(accepted, losses, state["losses"])
        found = _direction(state, turned, good, used)
        slope = (found * state["gradients"]).sum(1)
        uphill = accepted & ~(slope < 0)
        given_up = running & ~accepted & (state["trials"] >= _MOST_TRIALS)
        # a history that points uphill or nowhere is forgotten; without one, nothing is left to try
        state["status"].masked_fill_(given_up & (state["count"] == 0), STALLED)
        forgotten = uphill | given_up
        for name in ("count", "head"):
            state[name].masked_fill_(forgotten, 0)
        found = torch.where(forgotten[:, None], -state["gradients"], found)
        fresh = accepted | given_up
        state["direction"] = torch.where(fresh[:, None], found, direction)
        state["slope"] = (state["direction"] * state["gradients"]).sum(1)
        first = 1.0 / state["gradients"].abs().sum(1).clamp(min=1e-30)
        step = torch.where(fresh, torch.where(forgotten, first.clamp(max=1.0), 1.0), state["step"])
        state["step"] = step
        state["low"].masked_fill_(fresh, 0.0)
        state["high"].masked_fill_(fresh, torch.inf)
        state["trials"].masked_fill_(fresh, 0)
        self._judge(state)

    def _search(
        self,
        state: dict[str, torch.Tensor],
        losses: torch.Tensor,
        gradients: torch.Tensor,
        finite: torch.Tensor,
    ) -> torch.Tensor:
        """Who may move; the others get another step to try."""
        step, slope = state["step"], state["slope"]
        falls = finite & (losses <= state["losses"] + _DECREASE * step * slope)
        flat = (gradients * state["direction"]).sum(1) >= _CURVATURE * slope
        tired = state["trials"] >= _MOST_TRIALS
        accepted = falls & (flat | tired)
        state["high"] = torch.where(falls, state["high"], step)
        state["low"] = torch.where(falls & ~flat, step, state["low"])
        low, high = state["low"], state["high"]
        state["step"] = torch.where(high.isfinite(), 0.5 * (low + high), 2.0 * step)
        return accepted

    def _judge(self, state: dict[str, torch.Tensor]) -> None:
        """Mark who is done."""
        status, losses = state["status"], state["losses"]
        running = status == RUNNING
        status.masked_fill_(running & ~losses.isfinite(), FAILED)
        status.masked_fill_(running & (losses <= self._tolerance), CONVERGED)
        if self._patience:
            due = running & (state["evaluations"] - state["since"] >= self._patience)
            slow = losses > (1.0 - _LEAST_PROGRESS) * state["reference"]
            status.masked_fill_(due & slow & (status == RUNNING), STALLED)
            state["since"] = torch.where(due, state["evaluations"], state["since"])
            state["reference"] = torch.where(due, losses, state["reference"])


def _begin(
    start: torch.Tensor, losses: torch.Tensor, gradients: torch.Tensor, history: int
) -> dict[str, torch.Tensor]:
    count, size = start.shape
    integers = torch.zeros(count, dtype=torch.int64, device=start.device)
    return {
        "points": start.clone(),
        "losses": losses.clone(),
        "gradients": gradients.clone(),
        "direction": -gradients,
        "slope": -gradients.square().sum(1),
        "step": (1.0 / gradients.abs().sum(1).clamp(min=1e-30)).clamp(max=1.0),
        "low": torch.zeros_like(losses),
        "high": torch.full_like(losses, torch.inf),
        "trials": integers.clone(),
        "evaluations": integers + 1,
        "since": integers.clone(),
        "reference": losses.clone(),
        "status": integers.clone(),
        "moves": start.new_zeros(count, history, size),  # S
        "turns": start.new_zeros(count, history, size),  # Y
        "products": start.new_zeros(count, history, history),  # s_i·y_j for pair i before j
        "squares": start.new_ones(count),  # y·y of the last pair
        "count": integers.clone(),  # pairs remembered
        "head": integers.clone(),  # where the next one goes
    }


def _remember(
    state: dict[str, torch.Tensor],
    moved: torch.Tensor,
    turned: torch.Tensor,
    accepted: torch.Tensor,
) -> torch.Tensor:
    """Add (s, y) where it was accepted and s·y > 0, in the oldest one's place if need be."""
    moves, turns = state["moves"], state["turns"]
    history = moves.shape[1]
    product, square = (moved * turned).sum(1), turned.square().sum(1)
    good = accepted & (product > 1e-10 * (moved.square().sum(1) * square).sqrt())
    rows, place, each = torch.arange(len(good), device=good.device), state["head"], good[:, None]
    moves[rows, place] = torch.where(each, moved, moves[rows, place])
    turns[rows, place] = torch.where(each, turned, turns[rows, place])
    state["squares"] = torch.where(good, square, state["squares"])
    state["head"] = torch.where(good, (place + 1) % history, place)
    state["count"] = torch.where(good, (state["count"] + 1).clamp(max=history), state["count"])
    return good


def _direction(
    state: dict[str, torch.Tensor], turned: torch.Tensor, good: torch.Tensor, used: int
) -> torch.Tensor:
    """−H g by the history's first ``used`` places; ``turned`` is the y added where ``good``."""
    gradients = state["gradients"]
    moves, turns = state["moves"][:, :used], state["turns"][:, :used]
    history = state["moves"].shape[1]
    # both products with S in one pass over it: s_i·y, of which those of pairs i that come later
    # are never read, and s_i·g. With the few rows on the left, as CPUs are five times faster at it.
    with_moves = torch.bmm(torch.stack((turned, gradients), 1), moves.mT)
    rows, last = torch.arange(len(good), device=good.device), (state["head"] - 1) % history
    column = state["products"][rows, :used, last]
    state["products"][rows, :used, last] = torch.where(good[:, None], with_moves[:, 0], column)
    places = torch.arange(used, device=gradients.device)
    is_full = state["count"] == history
    order = torch.where(is_full[:, None], (state["head"][:, None] + places) % history, places)
    known = places < state["count"][:, None]  # in order of age
    products = state["products"][:, :used, :used]
    products = products.gather(1, order[:, :, None].expand(-1, -1, used))
    products = products.gather(2, order[:, None, :].expand(-1, used, -1))
    products = torch.where(known[:, :, None] & known[:, None, :], products.triu(), 0.0)
    diagonal = torch.where(known, products.diagonal(dim1=1, dim2=2), 1.0)
    products = products + torch.diag_embed(torch.where(known, 0.0, 1.0))
    latest = diagonal.gather(1, (state["count"] - 1).clamp(min=0)[:, None])[:, 0]
    scale = torch.where(state["count"] > 0, latest / state["squares"], 1.0)

    def ordered(values: torch.Tensor) -> torch.Tensor:
        return torch.where(known, values.gather(1, order), 0.0)[:, :, None]

    def placed(values: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(values[:, :, 0]).scatter(1, order, values[:, :, 0])[:, None]

    right = ordered(with_moves[:, 1])
    first = torch.linalg.solve_triangular(products, right, upper=True)
    rest = gradients - torch.bmm(placed(first), turns)[:, 0]
    right = diagonal[:, :, None] * first - scale[:, None, None] * ordered(
        torch.bmm(rest[:, None], turns.mT)[:, 0]
    )
    second = torch.linalg.solve_triangular(products.mT, right, upper=False)
    return -(scale[:, None] * rest + torch.bmm(placed(second), moves)[:, 0])


def _keep(result: Minimum, rows: torch.Tensor, state: dict[str, torch.Tensor]) -> None:
    for name in ("points", "losses", "status", "evaluations"):
        getattr(result, name)[rows] = state[name]


# Adam for many problems at once, as Geiping et al. (2020) use it: signed gradients, in a box


_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_DROPS = (3 / 8, 5 / 8, 7 / 8)  # of all steps: where the learning rate falls to a tenth


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
                    _keep_adam(result, rows, state)
                    kept = (~finished).nonzero()[:, 0]
                    rows = rows[kept]
                    state = {name: value[kept] for name, value in state.items()}
                if not len(rows):
                    break
                if self._progress is not None:
                    self._progress(number - 1, count - len(rows))
            self._step(state, rows, number)
        _keep_adam(result, rows, state)
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


def _keep_adam(result: Minimum, rows: torch.Tensor, state: dict[str, torch.Tensor]) -> None:
    result.points[rows], result.losses[rows] = state["best"], state["losses"]
    result.status[rows], result.evaluations[rows] = state["status"], state["evaluations"]
