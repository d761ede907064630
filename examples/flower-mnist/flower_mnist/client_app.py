"""A client: trains on its part of the digits. PayloadMod makes its update small and private."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from flower_mnist import task
from jopeq.flower import PayloadMod

# The metrics below stay on the client as long as the scheme is private: jopeq-metrics of the node
# declares the metrics that are sent in the clear.
app = ClientApp(mods=[PayloadMod(task.scheme)])


@app.train()
def train(msg: Message, context: Context) -> Message:
    """Local training from the server's model."""
    model = task.new_model()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    inputs, labels = task.part(
        int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    )
    settings = context.run_config
    loss = task.train(
        model,
        inputs,
        labels,
        steps=int(settings["local-steps"]),
        batch_size=int(settings["batch-size"]),
        learning_rate=float(settings["learning-rate"]),
        momentum=float(settings["momentum"]),
    )
    metrics = MetricRecord({"num-examples": len(labels), "train-loss": loss})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)
