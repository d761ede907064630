"""What one round cost, measured: by node in Python, summed up in Flower's metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from flwr.app import MetricRecord


@dataclass
class RoundReport:
    """One round as the server saw it. Keys are node ids."""

    server_round: int
    scheme: str
    bytes_up: dict[int, int] = field(default_factory=dict)  # payloads that were accepted
    bytes_down: dict[int, int] = field(default_factory=dict)  # arrays sent for training
    entries: dict[int, int] = field(default_factory=dict)  # numbers in each payload
    rejected: dict[int, str] = field(default_factory=dict)  # replies that were not usable, why
    failed: dict[int, str] = field(default_factory=dict)  # error replies
    epsilon: dict[int, float] = field(default_factory=dict)  # spent towards the server so far
    clip: float | None = None

    @property
    def bits_per_parameter(self) -> float:
        """Payload bits, header and checksum included, per number of the update."""
        entries = sum(self.entries.values())
        return 8.0 * sum(self.bytes_up.values()) / entries if entries else 0.0

    def metrics(self) -> MetricRecord:
        """For the run's history; lists are in the order of node ids."""
        record = MetricRecord(
            {
                "jopeq-clients": len(self.bytes_up),
                "jopeq-rejected": len(self.rejected),
                "jopeq-failed": len(self.failed),
                "jopeq-bytes-up": [self.bytes_up[node] for node in sorted(self.bytes_up)],
                "jopeq-bytes-down": [self.bytes_down[node] for node in sorted(self.bytes_down)],
                "jopeq-bits-per-parameter": self.bits_per_parameter,
                "jopeq-epsilon": [self.epsilon[node] for node in sorted(self.epsilon)],
            }
        )
        if self.clip is not None:
            record["jopeq-clip"] = self.clip
        return record
