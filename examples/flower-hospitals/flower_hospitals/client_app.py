"""A hospital: what leaves it of its patients is a share of the survey, and of each round's sum."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import jopeq.flower
from flower_hospitals.task import BOUNDS, Net, load_records, load_table, scheme, survey

app = jopeq.flower.record_client(
    scheme,
    model=Net,
    loss=binary_cross_entropy_with_logits,
    load=load_records,
    example=(torch.zeros(len(BOUNDS)), torch.tensor(0.0)),
    most_records=60,
    load_table=load_table,
    surveys=[survey],
)
