"""Quickstart: ten hospitals, real patients

This page takes ten hospitals through statistics, planning and training, in one
process and half a minute. Nobody sees all patients. First, one private sum at
ε = 0.2 tells how many patients there are, and the mean and spread of each
measurement. Then the hospitals plan, and train with the remaining ε = 0.8. In
total, every patient has ε = 1 against the server and the nine other hospitals.
The patients are the 569 of scikit-learn's breast-cancer table.
"""

# %% Patients, hospitals, and what is public
# Ten hospitals have 400 patients, and 169 others test the model. The names of
# the 30 measurements are public, and so are their bounds: the smallest and
# largest values that the description of the table publishes.
import re

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

import jopeq
from jopeq.statistics import Mean, Survey, Variance
from jopeq_lab.pictures.colours import look_of

data = load_breast_cancer()
line = r"^(\w[\w ]*\((?:mean|standard error|worst)\)): +([\d.]+) +([\d.]+)$"
described = re.findall(line, data.DESCR, re.MULTILINE)
bounds = {name: (float(low), float(high)) for name, low, high in described}
benign = np.where(data.target == 1, 1.0, -1.0)


def split(seed):
    """Numbers of the patients of each hospital, and of those who test."""
    order = np.random.default_rng(seed).permutation(569)
    return np.split(order[:400], 10), order[400:]


def table_of(patients):
    """One row per patient, one column per measurement."""
    return dict(zip(bounds, data.data[patients].T, strict=True))


hospitals, tested = split(0)
print(len(bounds), "measurements:", ", ".join(list(bounds)[:3]), "…")

# %% Ask
# Sixty questions and the count share ε = 0.2. The parts of a patient's row are
# weighted so that no row is ever clipped. Answers about fewer than 100 patients
# would be withheld, and it is public that no value is missing. Each hospital
# charges its own ledger first, and only the sum of the ten shares is decoded.
questions = [
    kind(name, low, high)
    for name, (low, high) in bounds.items()
    for kind in (Mean, Variance)
]
survey = Survey(
    questions,
    epsilon=0.2,
    delta=1e-4,
    clients=10,
    threshold=8,
    minimum=100,
    complete=True,
)
ledgers = [jopeq.Ledger(budget=1.0, delta=1e-4) for _ in hospitals]
answers = survey.ask([table_of(each) for each in hospitals], ledgers=ledgers)
print("\n".join(str(answers).splitlines()[:6]))
print(f"every patient has spent ε = {answers.epsilon:.3f}")

# %% How good the answers are
# With 400 patients and ε = 0.2 for 60 questions, the means are rough. Their
# errors are known, because the noise is. Dots show answers with two standard
# errors, and ticks the truth, in units of the public range.
scales = answers.scales()
width = scales.upper - scales.lower
table = table_of(np.concatenate(hospitals))
true = np.array([table[name].mean() for name in scales.columns])
errors = np.array([answers[name]["mean"].error for name in scales.columns])
figure, axes = plt.subplots(figsize=(5.4, 8))
axes.errorbar(
    (scales.means - scales.lower) / width,
    np.arange(30),
    xerr=2 * errors / width,
    fmt="o",
    color=look_of("clients").colour,
    label="private answer",
)
axes.plot(
    (true - scales.lower) / width,
    np.arange(30),
    "|",
    markersize=12,
    color=look_of("none").colour,
    label="truth",
)
axes.set_yticks(np.arange(30), scales.columns, fontsize=9)
axes.set(xlabel="mean, of the range", ylim=(29.5, -0.5))
axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1))
axes.grid(axis="y", alpha=0.3)
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig("means.svg")


# %% Plan before you train
# The noise is known before any patient's data is touched. `error` is the
# squared error of a round's mean gradient in units of clip². Divide it by the
# rounds and by the squared length of a typical mean gradient, about 0.1 of
# clip: up to 0.1 the model learns, up to 1 it loses some accuracy.
def scheme_of(epsilon):
    """The private sum of training: ε covers all 30 rounds."""
    return jopeq.RecordSum(
        epsilon=epsilon,
        delta=1e-4,
        clip=1.0,
        records=400,
        sampling=1.0,
        rounds=30,
        clients=10,
        threshold=8,
    )


for epsilon in (0.2, 0.8, 4.0):
    plan = scheme_of(epsilon).plan(31)  # 30 weights and a constant
    averaged = plan.error / 30 / 0.1**2
    print(f"ε = {epsilon}: {plan.bits} bits per entry, {averaged:.2f}")


# %% Train with what is left
# A round of training is also a private sum, of every patient's clipped
# gradient. `RecordSum` keeps ε = 0.8 over 30 rounds. Features are standardised
# by the answers, and each patient's row is scaled to length 1. Both depend only
# on the patient's own values and on what is public.
def by_answers(answers):
    def features_of(table):
        found = answers.standardise(table)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return features_of


def rows_of(features_of, patients):
    """Features and a constant."""
    features = features_of(table_of(patients))
    return np.column_stack((features, np.ones(len(features))))


def train(features_of, scheme, hospitals, ledgers=None, rounds=30):
    """Logistic regression; without a scheme there is no privacy."""
    model, speed = np.zeros(31), np.zeros(31)
    for number in range(rounds):
        seed, total = np.random.bytes(32), 0
        for hospital, patients in enumerate(hospitals):
            rows, signs = rows_of(features_of, patients), benign[patients]
            wrong = 1.0 / (1.0 + np.exp(signs * (rows @ model)))
            gradients = -(wrong * signs)[:, None] * rows
            if scheme is None:
                total = total + gradients.sum(axis=0) / 400
                continue
            if ledgers is not None:
                ledgers[hospital].charge(scheme, 31, run="training")
            share = scheme.encode(gradients, seed=seed)
            total = total + share.astype(int)  # under masks, elsewhere
        if scheme is not None:
            total = scheme.decode(total, seed=seed, dimension=31, clients=10)
        speed = 0.9 * speed + total
        model -= (1 + np.cos(np.pi * number / rounds)) * speed
    return model


model = train(by_answers(answers), scheme_of(0.8), hospitals, ledgers)
print(f"statistics and training: ε = {ledgers[0].spent.epsilon:.3f} of 1")


# %% Compare
# Ten splits of the patients average out chance. The second run asks nothing,
# standardises by the bounds and spends all of ε = 1 on training. The third has
# no privacy in as many rounds, and uses the true means and spreads. Asking
# first gains little, because the published bounds are tight. If bounds are
# vague, asking is the only way to standardise.
def by_bounds(table):
    low, high = np.array([bounds[name] for name in table]).T
    values = np.clip(np.column_stack(list(table.values())), low, high)
    return (2 * values - low - high) / (high - low)


def by_truth(patients):
    values = data.data[patients]
    middle, spread = values.mean(axis=0), values.std(axis=0)

    def features_of(table):
        found = (np.column_stack(list(table.values())) - middle) / spread
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    return features_of


found = {"asked, then trained": [], "public bounds": [], "no privacy": []}
for seed in range(10):
    hospitals, tested = split(seed)
    asked = by_answers(survey.ask([table_of(each) for each in hospitals]))
    truth = by_truth(np.concatenate(hospitals))
    runs = (asked, scheme_of(0.8)), (by_bounds, scheme_of(1.0)), (truth, None)
    for scores, (features_of, scheme) in zip(found.values(), runs, strict=True):
        model = train(features_of, scheme, hospitals)
        guessed = rows_of(features_of, tested) @ model > 0
        scores.append(100 * np.mean(guessed == (benign[tested] > 0)))
for name, scores in found.items():
    print(f"{name}: {np.mean(scores):.1f}% ± {np.std(scores) / 10**0.5:.1f}")

figure, axes = plt.subplots(figsize=(5.4, 2.2))
means = [np.mean(scores) for scores in found.values()]
errors = [np.std(scores) / 10**0.5 for scores in found.values()]
axes.errorbar(
    means, range(3), xerr=errors, fmt="o", color=look_of("clients").colour
)
axes.set_yticks(range(3), list(found))
axes.set(xlabel="test accuracy, %, with one standard error", ylim=(2.5, -0.5))
axes.spines[["top", "right"]].set_visible(False)
figure.tight_layout()
figure.savefig("accuracy.svg")
