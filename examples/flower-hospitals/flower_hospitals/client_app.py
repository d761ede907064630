"""A hospital: its patients' clipped gradients leave it in masked sums alone."""

from torch.nn.functional import cross_entropy

import jopeq.flower
from flower_hospitals.task import Net, load_records, scheme

app = jopeq.flower.record_client(
    scheme, model=Net, loss=cross_entropy, records=load_records, cap=200
)
