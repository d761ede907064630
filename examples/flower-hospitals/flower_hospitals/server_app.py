"""The server: it asks, standardises by the answers, trains, and tests on patients of its own."""

from __future__ import annotations

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import jopeq.flower
from flower_hospitals import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """The survey, then all rounds, with the test accuracy after each."""
    config = context.run_config
    rounds, trusted = int(config["num-server-rounds"]), str(config["trusted"]) or None
    checkpoint = str(config["checkpoint"]) or None
    if checkpoint and Path(checkpoint).exists():
        model = task.Net()  # a resumed run finds the answers in the model
    else:
        answers = jopeq.flower.ask(
            grid, task.survey, trusted=trusted, min_available_nodes=task.HOSPITALS
        )
        print(answers)
        model = task.Net(answers)
    strategy = jopeq.flower.RecordStrategy(
        task.scheme,
        model=model,
        optimizer=lambda p: torch.optim.SGD(p, lr=2.0, momentum=0.9),
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, rounds),
        trusted=trusted,
        checkpoint=checkpoint,
        csv=str(config["table"]) or None,
    )
    strategy.start(grid, num_rounds=rounds, evaluate_fn=evaluate)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test accuracy of the global model."""
    model = task.Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(model)})
