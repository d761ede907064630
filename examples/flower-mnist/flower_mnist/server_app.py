"""The server: federated averaging. PayloadStrategy decodes the updates before they are averaged."""

from __future__ import annotations

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_mnist import task
from jopeq.flower import PayloadStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """All rounds, with the test accuracy after each."""
    nodes = int(context.run_config["min-nodes"])
    averaging = FedAvg(fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes)
    strategy = PayloadStrategy(averaging, task.scheme)
    result = strategy.start(
        grid,
        initial_arrays=ArrayRecord(task.new_model().state_dict()),
        num_rounds=int(context.run_config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
    if path := str(context.run_config["result-file"]):
        history = {
            "accuracy": [m["accuracy"] for m in result.evaluate_metrics_serverapp.values()],
            "train": [dict(metrics) for metrics in result.train_metrics_clientapp.values()],
        }
        Path(path).write_text(json.dumps(history, indent=1) + "\n", encoding="utf-8")


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """Test accuracy of the global model."""
    model = task.new_model()
    model.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(model)})
