"""A hospital: what leaves it of its patients is a share of the survey, and of each round's sum."""

from torch.nn.functional import binary_cross_entropy_with_logits

import jopeq.flower
from flower_hospitals.task import Net, load_records, load_table, scheme, survey

app = jopeq.flower.record_client(
    scheme,
    model=Net,
    loss=binary_cross_entropy_with_logits,
    records=load_records,
    most_records=60,
    table=load_table,
    surveys=[survey],
)
