"""Federated training: data, partitions, models, and the rounds that send real payloads.

>>> from jopeq_lab.training import data, models, partition
>>> digits = data.load("digits")
>>> parts = partition.partition(digits.train_labels, clients=10, how="dirichlet", seed=1)
>>> model = models.build("linear", digits.input_shape, digits.classes, seed=1)
>>> len(parts), models.count_parameters(model)
(10, 650)
"""
