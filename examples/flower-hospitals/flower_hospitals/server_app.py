"""The server: any optimizer steps with the mean gradient, and it tests on data of its own."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

import jopeq.flower
from flower_hospitals import task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, with the test accuracy after each."""
    config = context.run_config
    rounds = int(config["num-server-rounds"])
    strategy = jopeq.flower.RecordStrategy(
        task.scheme,
        model=task.Net(),
        optimizer=lambda p: torch.optim.SGD(p, lr=12.0, momentum=0.9),
        schedule=lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, rounds),
        trusted=str(config["trusted"]) or None,
        checkpoint=str(config["checkpoint"]) or None,
        table=str(config["table"]) or None,
    )
    strategy.start(grid, num_rounds=rounds, evaluate_fn=evaluate)


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test accuracy of the global model."""
    model = task.Net()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(model)})
