"""Optimizers of many problems at once, each with its own path and end: L-BFGS and Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

Evaluated = tuple[torch.Tensor, torch.Tensor]  # losses (N,), gradients (N, n)
State = dict[str, torch.Tensor]  # a row for each problem
LINE_SEARCHES = ("wolfe", "none")

RUNNING, CONVERGED, STALLED, SPENT, FAILED = range(5)

_DECREASE, _CURVATURE = 1e-4, 0.9  # Wolfe's constants, as Nocedal and Wright advise
_MOST_TRIALS = 20
_CHECK_EVERY = 10  # evaluations between two looks for finished problems
_LEAST_PROGRESS = 1e-3  # of the loss, in ``patience`` evaluations
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's
_DROPS = (3 / 8, 5 / 8, 7 / 8)  # of all steps: where Adam's learning rate falls to a tenth


@dataclass(frozen=True, eq=False)
class Minimum:
    """The best point found for each problem."""

    points: torch.Tensor
    losses: torch.Tensor
    status: torch.Tensor
    evaluations: torch.Tensor


@dataclass(eq=False)
class _Minimizer(ABC):
    """Minimize f_i(x_i) for all i: rounds of one evaluation each, where finished problems drop out.

    Parameters
    ----------
    evaluate
        (points, rows) → losses and gradients; ``rows`` are the problems that ``points`` belong to.
    evaluations
        Largest number of rounds.
    tolerance
        A loss at or below it is converged.
    patience
        Evaluations in which the best loss must fall by a thousandth, or else it is stalled. 0:
        never.
    """

    evaluate: Callable[[torch.Tensor, torch.Tensor], Evaluated]
    evaluations: int = field(default=6000, kw_only=True)
    tolerance: float = field(default=1e-9, kw_only=True)
    patience: int = field(default=200, kw_only=True)
    progress: Callable[[int, int], None] | None = field(default=None, kw_only=True)

    def minimize(self, start: torch.Tensor) -> Minimum:
        """Run all problems to their end from ``start`` (N, n)."""
        count = len(start)
        rows = torch.arange(count, device=start.device)
        state = self._begin(start, rows)
        result = Minimum(
            *(state[name].clone() for name in ("points", "losses", "status", "evaluations"))
        )
        for number in range(1, self.evaluations + 1):
            if number % _CHECK_EVERY == 1 or number == self.evaluations:
                finished = int((state["status"] != RUNNING).sum())
                if finished == len(rows):
                    break
                # copying the state costs about two rounds: wait until it pays
                if finished and (finished * 8 >= len(rows) or start.device.type == "cpu"):
                    _keep(result, rows, state)
                    running = (state["status"] == RUNNING).nonzero()[:, 0]
                    rows = rows[running]
                    state = {name: value[running] for name, value in state.items()}
                if self.progress is not None:
                    self.progress(number - 1, count - len(rows))
            self._step(state, rows, number)
        _keep(result, rows, state)
        result.status[result.status == RUNNING] = SPENT
        return result

    @abstractmethod
    def _begin(self, start: torch.Tensor, rows: torch.Tensor) -> State:
        """The state before the first round; "points" and "losses" are the best so far."""

    @abstractmethod
    def _step(self, state: State, rows: torch.Tensor, number: int) -> None:
        """One evaluation of every problem, in place."""


def _keep(result: Minimum, rows: torch.Tensor, state: State) -> None:
    for name in ("points", "losses", "status", "evaluations"):
        getattr(result, name)[rows] = state[name]


@dataclass(eq=False)
class BatchedLBFGS(_Minimizer):
    """L-BFGS, each problem with its own history and line search.

    ``line_search`` is "wolfe": bisection for the weak Wolfe conditions (Lewis and Overton 2013),
    which always decreases the loss; or "none": the whole step, as ``torch.optim.LBFGS`` takes it by
    default and the DLG authors use it.
    """

    history: int = field(default=100, kw_only=True)
    line_search: str = field(default="wolfe", kw_only=True)

    def _begin(self, start: torch.Tensor, rows: torch.Tensor) -> State:
        state = _first_state(start, *self.evaluate(start, rows), self.history)
        self._judge(state)
        return state

    def _step(self, state: State, rows: torch.Tensor, number: int) -> None:
        points, step, direction = state["points"], state["step"], state["direction"]
        running = state["status"] == RUNNING
        trial = points + step[:, None] * direction
        losses, gradients = self.evaluate(trial, rows)
        finite = losses.isfinite() & gradients.isfinite().all(1)
        state["evaluations"] += running
        state["trials"] += 1
        if self.line_search == "wolfe":
            accepted = self._search(state, losses, gradients, finite) & running
        else:
            state["status"].masked_fill_(running & ~finite, FAILED)
            accepted = running & finite
        moved = trial - points
        turned = gradients - state["gradients"]
        used = min(number, self.history)
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
        self, state: State, losses: torch.Tensor, gradients: torch.Tensor, finite: torch.Tensor
    ) -> torch.Tensor:
        """Mark the problems that may move; the others get another step to try."""
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

    def _judge(self, state: State) -> None:
        """Mark who is done."""
        status, losses = state["status"], state["losses"]
        running = status == RUNNING
        status.masked_fill_(running & ~losses.isfinite(), FAILED)
        status.masked_fill_(running & (losses <= self.tolerance), CONVERGED)
        if self.patience:
            due = running & (state["evaluations"] - state["since"] >= self.patience)
            slow = losses > (1.0 - _LEAST_PROGRESS) * state["reference"]
            status.masked_fill_(due & slow & (status == RUNNING), STALLED)
            state["since"] = torch.where(due, state["evaluations"], state["since"])
            state["reference"] = torch.where(due, losses, state["reference"])


def _first_state(
    start: torch.Tensor, losses: torch.Tensor, gradients: torch.Tensor, history: int
) -> State:
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
    state: State, moved: torch.Tensor, turned: torch.Tensor, accepted: torch.Tensor
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


def _direction(state: State, turned: torch.Tensor, good: torch.Tensor, used: int) -> torch.Tensor:
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


@dataclass(eq=False)
class BatchedAdam(_Minimizer):
    """Adam on the signs of gradients, as Geiping et al. (2020) use it.

    Each path keeps its best point. The first ``boxed`` entries of a point stay in [0, 1]. Patience
    begins when the learning rate has fallen for the last time.
    """

    learning_rate: float = field(default=0.1, kw_only=True)
    boxed: int = field(default=0, kw_only=True)

    def _begin(self, start: torch.Tensor, rows: torch.Tensor) -> State:
        zeros = torch.zeros_like(rows)
        infinite = torch.full((len(start),), torch.inf, dtype=start.dtype, device=start.device)
        return {
            "path": start.clone(),
            "points": start.clone(),
            "losses": infinite.clone(),
            "status": zeros.clone(),
            "evaluations": zeros.clone(),
            "reference": infinite.clone(),
            "mean": torch.zeros_like(start),
            "square": torch.zeros_like(start),
        }

    def _step(self, state: State, rows: torch.Tensor, number: int) -> None:
        path, status = state["path"], state["status"]
        losses, gradients = self.evaluate(path, rows)
        running = status == RUNNING
        finite = losses.isfinite() & gradients.isfinite().all(1)
        state["evaluations"] += running
        status.masked_fill_(running & ~finite, FAILED)
        better = running & finite & (losses < state["losses"])
        state["points"] = torch.where(better[:, None], path, state["points"])
        state["losses"] = torch.where(better, losses, state["losses"])
        status.masked_fill_(running & finite & (losses <= self.tolerance), CONVERGED)
        if self.patience and number % self.patience == 0:
            if number > _DROPS[-1] * self.evaluations:
                slow = state["losses"] > (1.0 - _LEAST_PROGRESS) * state["reference"]
                status.masked_fill_((status == RUNNING) & slow, STALLED)
            state["reference"] = state["losses"].clone()
        signs = gradients.sign()
        mean = _BETA1 * state["mean"] + (1 - _BETA1) * signs
        square = _BETA2 * state["square"] + (1 - _BETA2) * signs.square()
        state["mean"], state["square"] = mean, square
        rate = self.learning_rate * 0.1 ** sum(number > drop * self.evaluations for drop in _DROPS)
        scale = (square / (1 - _BETA2**number)).sqrt() + _EPSILON
        moved = path - rate * (mean / (1 - _BETA1**number)) / scale
        if self.boxed:
            boxed = moved[:, : self.boxed].clamp(0.0, 1.0)
            moved = torch.cat((boxed, moved[:, self.boxed :]), 1)
        state["path"] = torch.where(running[:, None], moved, path)
