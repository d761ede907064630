"""Models in a few messages: accuracy, intervals and seconds of ``jopeq.models``, as data.

    python benchmarks/fits.py coverage            # 1,000 fits in each setting, central noise
    python benchmarks/fits.py shares              # 50 fits through real shares
    python benchmarks/fits.py mnist --data DIR    # DIR has the four files of MNIST
    python benchmarks/fits.py fashion --data DIR  # or of Fashion-MNIST
    python benchmarks/fits.py cifar --data FILE   # by examples/public-features/features.py imagenet
    python benchmarks/fits.py tables --site DIR   # needs the tables of other packages
    python benchmarks/fits.py levels --site DIR   # levels of length ½ and 1, on other tables
    python benchmarks/fits.py sizes               # four hospitals of unequal sizes
    python benchmarks/fits.py hospitals           # converged models of docs/hospitals.md
    python benchmarks/fits.py seconds             # one fit of 60,000 × 521, and one hospital's part
    python benchmarks/fits.py page                # then the tables of docs/models.md

Every run appends lines to results/fits.jsonl. DIR holds the unpacked packages lifelines,
scikit-survival and statsmodels, whose tables are read; with interpret installed, ``tables`` also
fits its DP-EBM in one trusted place. With ``--converged`` images and tables get the converged model
without privacy instead, its weight decay chosen on held-out training records. Bounds of columns are
public knowledge, written down here. Nothing was tuned on these test sets. Central noise has the law
of the plan: as much as the shares of all hospitals together.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from jopeq.models import Category, Features, Linear, Logistic, Number, Poisson, Softmax, State
from jopeq.models.inference import sigmoid

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results/fits.jsonl", ROOT / "docs/models.md"
IMAGES = {"mnist": "MNIST, HOG", "fashion": "Fashion-MNIST, HOG", "cifar": "CIFAR-10, ImageNet"}
START, END = "<!-- fits: begin -->\n", "<!-- fits: end -->\n"
TERMS = {"epsilon": 1.0, "delta": 1e-5, "clients": 10, "threshold": 6}


def report(**figures):
    line = json.dumps(figures, ensure_ascii=False)
    print(line, flush=True)
    with RESULTS.open("a") as file:
        file.write(line + "\n")


def fit_centrally(model, table, rng):
    """A fit with the plan's noise drawn at once, instead of through shares."""
    records, state = model.read(table), State()
    while state.step < model.method.messages:
        total = model.total(records, state.step, state.sent).to_numpy()
        noise = rng.normal(0.0, model.noise_of(state.step), len(total))
        state = model.advance(state, (total + noise) / model.records)
    return model.finish(state)


# Intervals


def make_table(rng, count, columns, kind, share, effect=0.7):
    x = rng.uniform(-1, 1, (count, columns))
    x[:, -1] = rng.random(count) < (0.02 if kind == "rare level" else 0.3)
    if kind == "collinear":
        x[:, 1] = 0.9 * x[:, 0] + 0.1 * x[:, 1]
    if kind == "skewed":
        x[:, 0], x[:, 1] = 2 * rng.beta(1, 8, count) - 1, 2 * rng.beta(2, 8, count) - 1
    slopes = rng.normal(0.0, effect, columns)
    explained = x @ slopes
    constant = -0.5
    if share is not None:  # by bisection
        low, high = -30.0, 30.0
        for _ in range(60):
            constant = (low + high) / 2
            is_few = sigmoid(constant + explained).mean() < share
            low, high = (constant, high) if is_few else (low, constant)
    truth = np.append(constant, slopes)
    table = {f"x{i}": x[:, i] for i in range(columns - 1)}
    table["level"] = x[:, -1].astype(int)
    return table, truth, constant + explained


def columns_of(columns):
    return [*(Number(f"x{i}", -1, 1) for i in range(columns - 1)), Category("level", [0, 1])]


def usual_errors(table, truth):
    """Standard errors of maximum likelihood, at the truth."""
    x = np.column_stack([np.ones(len(table["level"])), *table.values()])[:, : len(truth)]
    mean = sigmoid(x @ truth)
    return np.sqrt(np.diag(np.linalg.inv((x * (mean * (1 - mean))[:, None]).T @ x)))


SETTINGS = {  # patients, columns, ε, kind, share of events
    "1,000 patients": (1000, 4, 1.0, "plain", None),
    "4,000 patients": (4000, 8, 1.0, "plain", None),
    "20,000 patients, ε = 0.5": (20_000, 8, 0.5, "plain", None),
    "4,000 patients, outcome of 5%": (4000, 4, 1.0, "plain", 0.05),
    "20,000 patients, outcome of 5%": (20_000, 4, 1.0, "plain", 0.05),
    "4,000 patients, collinear columns": (4000, 4, 1.0, "collinear", None),
    "4,000 patients, rare level": (4000, 4, 1.0, "rare level", None),
    "4,000 patients, outcome of 1%": (4000, 4, 1.0, "plain", 0.01),
}


def study(name, model_of, draw, fits, fit, first_seed, plain=None):
    """Coverage of 95% intervals over fits, mean over the coefficients that are told."""
    covers, told, ratios, errors = [], 0, [], []
    for seed in range(first_seed, first_seed + fits):
        rng = np.random.default_rng(seed)
        table, truth = draw(rng)
        found = fit(model_of(), table, rng)
        usual = plain(table, truth) if plain and seed < first_seed + 50 else None
        for place, one in enumerate(found.values()):
            if one.value is not None:
                told += 1
                low, high = one.interval
                covers.append(low <= truth[place] <= high)
                errors.append(one.error)
                if usual is not None:
                    ratios.append(one.error / usual[place])
    count = fits * len(truth)
    report(
        bench="coverage",
        setting=name,
        fits=fits,
        coverage=round(float(np.mean(covers)), 4) if covers else None,
        told=round(told / count, 3),
        error=round(float(np.median(errors)), 4) if errors else None,
        of_without_privacy=round(float(np.median(ratios)), 2) if ratios else None,
        first_seed=first_seed,
    )


def logistic_study(name, fits, fit, first_seed, label=""):
    count, columns, epsilon, kind, share = SETTINGS[name]

    def draw(rng):
        table, truth, logit = make_table(rng, count, columns, kind, share)
        table["y"] = rng.random(count) < sigmoid(logit)
        return table, truth

    terms = {**TERMS, "epsilon": epsilon, "records": count}
    model = Logistic("y", columns_of(columns), **terms)
    study(name + label, lambda: model, draw, fits, fit, first_seed, usual_errors)


def linear_study(fits, fit, first_seed):
    def draw(rng):
        table, truth, _ = make_table(rng, 4000, 8, "plain", None, 0.15)
        explained = truth[0] + sum(
            b * one for b, one in zip(truth[1:], table.values(), strict=True)
        )
        table["y"] = 100 * (explained + rng.normal(0, 0.25, 4000))
        return table, 100 * truth

    model = Linear("y", columns_of(8), bounds=(-200, 200), **TERMS, records=4000)
    study("linear, 4,000 patients", lambda: model, draw, fits, fit, first_seed)


def poisson_study(fits, fit, first_seed):
    def draw(rng):
        table, truth, logit = make_table(rng, 4000, 4, "plain", None, 0.4)
        table["years"] = rng.uniform(0.5, 5, 4000)
        table["y"] = rng.poisson(table["years"] * np.exp(logit - 0.5))
        return table, truth - np.array([0.5, 0, 0, 0, 0])

    terms = {**TERMS, "records": 4000, "most": 8, "exposure": "years", "most_exposure": 5}
    model = Poisson("y", columns_of(4), **terms)
    study("Poisson, 4,000 patients", lambda: model, draw, fits, fit, first_seed)


def fit_by_shares(model, table, rng):
    """A fit through the real shares of ten hospitals."""
    parts = np.array_split(rng.permutation(len(table["y"])), 10)
    return model.fit([{name: one[part] for name, one in table.items()} for part in parts])


def run_coverage(options):
    for name in SETTINGS:
        logistic_study(name, options.fits, fit_centrally, options.seed)
    linear_study(options.fits, fit_centrally, options.seed)
    poisson_study(options.fits, fit_centrally, options.seed)


def run_shares(options):
    for name in ("1,000 patients", "4,000 patients"):
        logistic_study(name, 50, fit_by_shares, options.seed, ", real shares")


# Accuracy


def idx(path):
    read = gzip.decompress(path.read_bytes())
    axes = read[3]
    shape = [int.from_bytes(read[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    return np.frombuffer(read, np.uint8, offset=4 + 4 * axes).reshape(shape)


def hog_images(folder):
    """Rows of public features, and classes: of 60,000 images and of 10,000."""
    import torch

    from jopeq_lab.training.features import features, finished

    for part in ("train", "t10k"):
        images = torch.from_numpy(idx(folder / f"{part}-images-idx3-ubyte.gz").copy())
        rows = finished(features(images.float()[:, None] / 255, "hog")).numpy()
        yield {"x": rows, "y": idx(folder / f"{part}-labels-idx1-ubyte.gz")}


def kept_rows(file):
    """Rows that examples/public-features has computed, and classes."""
    import torch

    from jopeq_lab.training.features import finished, unit

    found = np.load(file)
    for part in ("train", "test"):
        rows = finished(unit(torch.from_numpy(found[f"{part}_inputs"]).float())).numpy()
        yield {"x": rows, "y": found[f"{part}_labels"]}


def hospitals_of(table, rng, count=10):
    parts = np.array_split(rng.permutation(len(table["y"])), count)
    return [{name: one[part] for name, one in table.items()} for part in parts]


def converge(rows, wanted, decay, start):
    """Weights of least log loss and ``decay``/2·‖weights‖², by L-BFGS in whitened coordinates."""
    from scipy.optimize import minimize
    from scipy.special import log_softmax

    count, width = rows.shape
    around = (rows.T @ rows).astype(float) / (2 * count) + decay * np.eye(width)
    back = np.linalg.inv(np.linalg.cholesky(around)).T  # weights of whitened coordinates

    def loss(point):
        weights = back @ point.reshape(width, -1)
        logs = log_softmax(rows @ weights.astype(rows.dtype), axis=1)
        errors = np.exp(logs) - wanted
        value = -np.sum(logs * wanted, dtype=float) / count + decay / 2 * np.sum(weights**2)
        slope = (rows.T @ errors).astype(float) / count + decay * weights
        return value, (back.T @ slope).ravel()

    begin = np.linalg.solve(back, start).ravel()
    found = minimize(
        loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 500, "ftol": 1e-8}
    )
    return back @ found.x.reshape(width, -1)


def fit_without_privacy(rows, targets, score, cuts, seed):
    """Weights of the converged model, and the decay that ``score`` likes on a sixth held out."""
    decays = 10.0 ** -np.arange(1, 9)
    classes = np.arange(int(targets.max()) + 1)
    wanted = (targets[:, None] == classes).astype(rows.dtype)
    scores = np.zeros(len(decays))
    for cut in range(cuts):
        order = np.random.default_rng((seed, cut)).permutation(len(rows))
        held, used = np.split(order, [len(rows) // 6])
        weights = np.zeros((rows.shape[1], len(classes)))
        for place, decay in enumerate(decays):
            weights = converge(rows[used], wanted[used], decay, weights)
            scores[place] += score(rows[held] @ weights, targets[held])
    best = float(decays[np.argmax(scores)])
    return converge(rows, wanted, best, np.zeros_like(weights)), best


def accuracy_of(logits, targets):
    return 100 * float(np.mean(logits.argmax(axis=1) == targets))


def likelihood_of(logits, targets):
    from scipy.special import log_softmax

    return float(log_softmax(logits, axis=1)[np.arange(len(targets)), targets.astype(int)].mean())


def fit_images(name, sets, counts, options):
    train, test = sets
    if options.converged:
        weights, decay = fit_without_privacy(train["x"], train["y"], accuracy_of, 1, options.seed)
        accuracy = round(accuracy_of(test["x"] @ weights, test["y"]), 2)
        report(bench="converged", table=name, accuracy=accuracy, decay=decay)
        return
    for messages in counts:
        model = Softmax(
            "y",
            [Features("x", train["x"].shape[1])],
            classes=range(10),
            records=len(train["y"]),
            messages=messages,
            **TERMS,
        )
        scores = []
        for seed in range(options.seed, options.seed + 3):
            fit = model.fit(hospitals_of(train, np.random.default_rng(seed)))
            scores.append(100 * fit.score(test))
        report(
            bench=name,
            messages=messages,
            epsilon=round(fit.epsilon, 4),
            accuracy=round(float(np.mean(scores)), 2),
            each=[round(one, 2) for one in scores],
        )


def run_mnist(options):
    fit_images("mnist", hog_images(options.data), (4, 7, 21), options)


def run_fashion(options):
    fit_images("fashion", hog_images(options.data), (4, 7, 8), options)


def run_cifar(options):
    fit_images("cifar", kept_rows(options.data), (4, 7), options)


def run_hospitals(options):
    """Converged models without privacy of the data of docs/hospitals.md that come with packages."""
    from jopeq_lab.training.features import features, finished
    from jopeq_lab.training.seeding import permutation
    from paper.hospitals import SETS, dataset_of

    for label in ("MNIST, 400 a hospital", "breast cancer", "flchain"):
        one, found = SETS[label], {"accuracy": [], "auc": []}
        dataset = dataset_of(label, str(options.data or "."))
        for seed in range(one.seeds):
            mine = dataset.split_anew(one.test, seed) if one.test else dataset
            taken = permutation(len(mine.train_labels), seed, "records")[: one.samples]
            parts = (mine.train_inputs[taken], mine.test_inputs)
            train, test = (finished(features(part, one.features)).numpy() for part in parts)
            labels, truth = mine.train_labels[taken].numpy(), mine.test_labels.numpy()
            score, cuts = (accuracy_of, 1) if dataset.classes > 2 else (likelihood_of, 10)
            logits = test @ fit_without_privacy(train, labels, score, cuts, seed)[0]
            found["accuracy"].append(accuracy_of(logits, truth))
            if dataset.classes == 2:
                found["auc"].append(100 * area(logits @ [-1, 1], truth))
        means = {name: round(float(np.mean(each)), 2) for name, each in found.items() if each}
        spreads = {f"± {name}": round(float(np.std(each, ddof=1)), 2)
                   for name, each in found.items() if each}  # fmt: skip
        report(bench="hospitals", table=label, seeds=one.seeds, **means, **spreads)


# Tables of patients: bounds that somebody who knows the field would write down


def cancer(site):
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    means = [  # rounded to what a pathologist expects of a nucleus
        (5, 25), (8, 32), (40, 160), (100, 1500), (0.06, 0.14), (0, 0.25), (0, 0.3), (0, 0.15),
        (0.1, 0.26), (0.05, 0.08),
    ]  # fmt: skip
    spreads = [
        (0, 1.2), (0, 3), (0, 8), (0, 150), (0, 0.015), (0, 0.08), (0, 0.1), (0, 0.03),
        (0.005, 0.045), (0, 0.01),
    ]  # fmt: skip
    worst = [
        (5, 30), (10, 42), (40, 200), (100, 2500), (0.07, 0.2), (0, 0.7), (0, 0.9), (0, 0.3),
        (0.15, 0.5), (0.05, 0.13),
    ]  # fmt: skip
    names = [str(name) for name in found.feature_names]
    bounds = zip(names, [*means, *spreads, *worst], strict=True)
    columns = [Number(name, *ends) for name, ends in bounds]
    return {**dict(zip(names, found.data.T, strict=True)), "y": found.target}, columns


def arff(path, names):
    import warnings

    from scipy.io.arff import loadarff

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, _ = loadarff(path)
    table = {}
    for name in names:
        column = found[name]
        if column.dtype.kind == "S":
            column = np.array([None if one == b"?" else one.decode() for one in column], object)
        table[name] = column
    return table


def whas500(site):
    words = ("gender", "cvd", "afb", "sho", "chf", "av3", "miord", "mitype")
    columns = [
        Number("age", 30, 100), Number("hr", 40, 150), Number("sysbp", 70, 220),
        Number("diasbp", 30, 140), Number("bmi", 15, 45), Number("los", 0, 20),
        *(Category(name, ["0", "1"]) for name in words),
    ]  # fmt: skip
    path = site / "sksurv/datasets/data/whas500.arff"
    table = arff(path, [one.column for one in columns] + ["fstat"])
    table["y"] = np.array([int(one) for one in table.pop("fstat")])
    return table, columns


def flchain(site):
    columns = [
        Number("age", 50, 100), Category("sex", ["F", "M"]), Number("sample.yr", 1995, 2003),
        Number("kappa", 0, 5), Number("lambda", 0, 5), Number("flc.grp", 1, 10),
        Number("creatinine", 0.4, 2.4, missing=True), Category("mgus", ["no", "yes"]),
    ]  # fmt: skip
    path = site / "sksurv/datasets/data/flchain.arff"
    table = arff(path, [one.column for one in columns] + ["death"])
    for name in ("sample.yr", "flc.grp"):
        table[name] = np.array([float(one) for one in table[name]])
    table["y"] = np.array([int(one == "dead") for one in table.pop("death")])
    return table, columns


def actg175(site):
    import pandas

    found = pandas.read_csv(site / "lifelines/datasets/ACTG175.csv")
    twos = ("hemo", "homo", "drugs", "oprior", "z30", "race", "gender", "str2", "symptom",
            "treat", "offtrt")  # fmt: skip
    columns = [
        Number("age", 15, 65), Number("wtkg", 40, 110), Number("preanti", 0, 2000),
        Number("cd40", 0, 700), Number("cd80", 100, 2500), Number("karnof", 70, 100),
        Category("strat", [1, 2, 3]), Category("arms", [0, 1, 2, 3]),
        *(Category(name, [0, 1]) for name in twos),
    ]  # fmt: skip
    table = {one.column: found[one.column].to_numpy() for one in columns}
    return {**table, "y": found["cens"].to_numpy()}, columns


def fair(site):
    import pandas

    found = pandas.read_csv(site / "statsmodels/datasets/fair/fair.csv")
    columns = [
        Category("rate_marriage", [5, 4, 3, 2, 1]), Number("age", 17, 42),
        Number("yrs_married", 0, 23), Number("children", 0, 6), Category("religious", [1, 2, 3, 4]),
        Number("educ", 9, 20), Category("occupation", [1, 2, 3, 4, 5, 6]),
        Category("occupation_husb", [1, 2, 3, 4, 5, 6]),
    ]  # fmt: skip
    table = {one.column: found[one.column].to_numpy() for one in columns}
    return {**table, "y": (found["affairs"].to_numpy() > 0).astype(int)}, columns


TABLES = (cancer, whas500, actg175, fair, flchain)


def area(scores, outcomes):
    from sklearn.metrics import roc_auc_score

    return roc_auc_score(outcomes, scores)


def take(table, places):
    return {name: one[places] for name, one in table.items()}


def ebm_area(columns, train, test, epsilon, delta, seed):
    """AUC of interpret's DP-EBM with the same bounds, in one trusted place."""
    from interpret.privacy import DPExplainableBoostingClassifier

    def rows(table):
        found = []
        for one in columns:
            if isinstance(one, Number):
                value = np.asarray(table[one.column], dtype=float)
                middle = (one.lower + one.upper) / 2
                found.append(np.where(np.isnan(value), middle, value).astype(object))
            else:
                found.append(np.array([str(word) for word in table[one.column]], dtype=object))
        return np.column_stack(found)

    bounds = {i: (one.lower, one.upper) for i, one in enumerate(columns) if isinstance(one, Number)}
    kinds = ["continuous" if isinstance(one, Number) else "nominal" for one in columns]
    made = DPExplainableBoostingClassifier(
        random_state=None,
        epsilon=epsilon,
        delta=delta,
        feature_types=kinds,
        privacy_bounds=bounds,
    )
    made.fit(rows(train), train["y"])
    return area(made.predict_proba(rows(test))[:, 1], test["y"])


def encoded(model, table):
    """Rows and outcomes as the model takes them."""
    pieces = list(model.read(table).pieces())
    rows = np.concatenate([piece.rows for piece in pieces])
    return rows, np.concatenate([piece.targets[:, 0] for piece in pieces])


def run_tables(options):
    for load in TABLES:
        table, columns = load(options.site)
        count = len(table["y"])
        delta = 1e-4 if count < 3000 else 1e-5
        found = {"shares": [], "additive": [], "ebm": [], "textbook": [], "same_rows": []}
        for seed in range(options.seed, options.seed + options.splits):
            rng = np.random.default_rng(seed)
            order = rng.permutation(count)
            train, test = take(table, order[: 3 * count // 4]), take(table, order[3 * count // 4 :])
            terms = {**TERMS, "delta": delta, "records": 3 * count // 4, "goal": "prediction"}
            if options.converged:
                for goal, name in (("inference", "textbook"), ("prediction", "same_rows")):
                    reader = Logistic("y", columns, **{**terms, "goal": goal})
                    rows, outcomes = encoded(reader, train)
                    weights, _ = fit_without_privacy(rows, outcomes, likelihood_of, 10, seed)
                    rows, outcomes = encoded(reader, test)
                    found[name].append(area(rows @ weights @ [-1, 1], outcomes))
                continue
            for name in ("shares", "additive"):
                model = Logistic("y", columns, additive=name == "additive", **terms)
                fit = model.fit(hospitals_of(train, rng))
                found[name].append(area(fit.predict_proba(test)[:, 1], test["y"]))
            if options.ebm:
                found["ebm"].append(ebm_area(columns, train, test, 1.0, delta, seed))
        means = {name: round(float(np.mean(one)), 4) for name, one in found.items() if one}
        about = {"table": load.__name__, "patients": 3 * count // 4, "splits": options.splits}
        if options.converged:
            report(bench="converged", **about, **means)
        else:
            report(bench="tables", **about, delta=delta, messages=model.method.messages, **means)


# Tables that had no part in any choice: they judge the length of levels


def read_csv(site, path, **given):
    import pandas

    return pandas.read_csv(site / path, **given)


def with_outcome(found, columns, outcomes):
    """The table of a frame's ``columns``, with ``outcomes`` as y; and the columns."""
    table = {one.column: found[one.column].to_numpy() for one in columns}
    return {**table, "y": np.asarray(outcomes).astype(int)}, columns


def rossi(site):
    found = read_csv(site, "lifelines/datasets/rossi.csv")
    twos = (Category(name, [0, 1]) for name in ("fin", "race", "wexp", "mar", "paro"))
    columns = [Number("age", 16, 45), Number("prio", 0, 20), *twos]
    return with_outcome(found, columns, found["arrest"])


def gbsg2(site):
    found = read_csv(site, "lifelines/datasets/gbsg2.csv")
    columns = [
        Category("horTh", ["no", "yes"]), Number("age", 20, 80),
        Category("menostat", ["Pre", "Post"]), Number("tsize", 0, 100),
        Category("tgrade", ["I", "II", "III"]), Number("pnodes", 0, 30),
        Number("progrec", 0, 500), Number("estrec", 0, 500),
    ]  # fmt: skip
    return with_outcome(found, columns, found["cens"])


def transplants(site):
    found = read_csv(site, "lifelines/datasets/kidney_transplant.csv")
    twos = (Category(name, [0, 1]) for name in ("black_male", "white_male", "black_female"))
    return with_outcome(found, [Number("age", 0, 80), *twos], found["death"])


def actg320(site):
    names = ("tx", "strat2", "sex", "raceth", "ivdrug", "karnof", "cd4", "priorzdv", "age")
    table = arff(site / "sksurv/datasets/data/actg320.arff", [*names, "censor"])
    table["y"] = np.array([int(one) for one in table.pop("censor")])
    columns = [
        Category("tx", ["0", "1"]), Category("strat2", ["0", "1"]), Category("sex", ["1", "2"]),
        Category("raceth", ["1", "2", "3", "4", "5"]), Category("ivdrug", ["1", "2", "3"]),
        Category("karnof", ["70", "80", "90", "100"]), Number("cd4", 0, 400),
        Number("priorzdv", 0, 120), Number("age", 15, 75),
    ]  # fmt: skip
    return table, columns


def anes96(site):
    found = read_csv(site, "statsmodels/datasets/anes96/anes96.csv", sep="\t", quotechar="'")
    columns = [
        Number("popul", 0, 1000), Number("TVnews", 0, 7), Category("selfLR", range(1, 8)),
        Category("PID", range(7)), Number("age", 18, 90), Category("educ", range(1, 8)),
        Number("income", 1, 24),
    ]  # fmt: skip
    return with_outcome(found, columns, found["vote"])


def governments(site):
    found = read_csv(site, "lifelines/datasets/dd.csv")
    parts = ["Africa", "Americas", "Asia", "Europe", "Oceania"]
    kinds = ["Monarchy", "Civilian Dict", "Military Dict", "Parliamentary Dem",
             "Presidential Dem", "Mixed Dem"]  # fmt: skip
    columns = [
        Category("un_continent_name", parts), Category("regime", kinds),
        Number("start_year", 1946, 2008),
    ]  # fmt: skip
    return with_outcome(found, columns, found["duration"] > 4)


def visits(site):
    found = read_csv(site, "statsmodels/datasets/randhie/randhie.csv")
    twos = ("idp", "physlm", "hlthg", "hlthf", "hlthp")
    found["physlm"] = found["physlm"].round()
    columns = [
        Number("lncoins", 0, 4.62), Number("lpi", 0, 8), Number("fmde", 0, 9),
        Number("disea", 0, 40), *(Category(name, [0, 1]) for name in twos),
    ]  # fmt: skip
    return with_outcome(found, columns, found["mdvis"] > 0)


JUDGES = (rossi, gbsg2, transplants, actg320, anes96, governments, visits)


def run_levels(options):
    """Both lengths on the same splits and with the same noise; ± is of the mean over splits."""
    from unittest.mock import patch

    for load in JUDGES:
        table, columns = load(options.site)
        count = len(table["y"])
        delta, areas = 1e-4 if count < 3000 else 1e-5, {0.5: [], 1.0: []}
        terms = {**TERMS, "delta": delta, "records": 3 * count // 4, "goal": "prediction"}
        for seed in range(options.seed, options.seed + options.splits):
            order = np.random.default_rng(seed).permutation(count)
            train, test = take(table, order[: 3 * count // 4]), take(table, order[3 * count // 4 :])
            for length, found in areas.items():
                with patch("jopeq.models.design._LEVEL", length):
                    model = Logistic("y", columns, **terms)
                    fit = fit_centrally(model, train, np.random.default_rng(seed))
                    found.append(area(fit.predict_proba(test)[:, 1], test["y"]))
        apart = np.subtract(areas[0.5], areas[1.0])
        report(
            bench="levels",
            table=load.__name__,
            patients=3 * count // 4,
            splits=options.splits,
            half=round(float(np.mean(areas[0.5])), 4),
            one=round(float(np.mean(areas[1.0])), 4),
            gain=round(float(np.mean(apart)), 4),
            error=round(float(np.std(apart) / np.sqrt(options.splits)), 4),
        )


def run_sizes(options):
    rng = np.random.default_rng(options.seed)
    areas = {"unequal": [], "equal": []}
    draws, _, logit = make_table(rng, 12_540, 8, "plain", None)
    draws["y"] = rng.random(len(logit)) < sigmoid(logit)
    test = take(draws, slice(2540, None))
    cuts = {"unequal": [0, 1500, 2200, 2500, 2540], "equal": [0, 635, 1270, 1905, 2540]}
    model = Logistic(
        "y",
        columns_of(8),
        **{**TERMS, "clients": 4, "threshold": 4},
        records=2540,
        goal="prediction",
    )
    for seed in range(options.seed, options.seed + 10):
        order = np.random.default_rng(seed).permutation(2540)
        for name, ends in cuts.items():
            parts = [take(draws, order[a:b]) for a, b in pairwise(ends)]
            fit = model.fit(parts)
            areas[name].append(area(fit.predict_proba(test)[:, 1], test["y"]))
    report(bench="sizes", **{name: round(float(np.mean(one)), 4) for name, one in areas.items()})


def run_seconds(options):
    rng = np.random.default_rng(options.seed)
    rows = rng.normal(size=(60_000, 521)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    table = {"x": rows, "y": rng.integers(0, 10, 60_000)}
    model = Softmax(
        "y", [Features("x", 521)], classes=range(10), records=60_000, most_records=6000, **TERMS
    )
    hospitals = hospitals_of(table, rng)
    model.plan()
    marks = [(time.perf_counter(), time.process_time())]

    def mark():
        marks.append((time.perf_counter(), time.process_time()))
        return [round(one - two, 2) for one, two in zip(marks[-1], marks[-2], strict=True)]

    model.fit(hospitals)
    found = {"fit": mark()}
    for step in (0, 1, 2):
        records = model.read(hospitals[0], pad=True)
        sent = {name: np.zeros(shape) for name, shape in model.method.shapes(step).items()}
        total = model.total(records, step, sent)
        model.sum_of(step).encode(total, seed=bytes(32))
        found[f"hospital, message {step}"] = mark()
    report(bench="seconds", clocks=["wall", "CPU of all threads"], **found)


# The page


def rows_of(heading, rows):
    """A table of the columns in which something stands."""
    columns = [one for one in zip(heading, *rows, strict=True) if any(one[1:])]
    heading, *rows = zip(*columns, strict=True)
    lines = [f"| {' | '.join(heading)} |", "|" + "---|" * len(heading)]
    return "\n".join([*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows)])


def tables_of(lines):
    """The tables of docs/models.md; of runs that were repeated the last counts."""
    last = {}
    for line in lines:
        found = json.loads(line)
        name = found.get("setting") or found.get("table") or found.get("messages")
        last.setdefault(found["bench"], {})[name] = found
    parts = []
    if "coverage" in last:
        heading = ("95% intervals of", "fits", "cover", "coefficients told",
                   "standard error over that without privacy")  # fmt: skip
        rows = [
            (
                name,
                f"{one['fits']:,}",
                f"{100 * one['coverage']:.1f}%" if one["told"] > 0.01 else "nothing is told",
                f"{100 * one['told']:.0f}%",
                one["of_without_privacy"] or "",
            )
            for name, one in last["coverage"].items()
        ]
        parts.append(rows_of(heading, rows))
    converged = last.get("converged", {})
    rows = [
        (
            f"{name}: {one['messages']}",
            f"{one['accuracy']:.2f}%",
            ", ".join(f"{each:.2f}" for each in one["each"]),
            f"{converged[bench]['accuracy']:.2f}%" if bench in converged else "",
        )
        for bench, name in IMAGES.items()
        for one in last.get(bench, {}).values()
    ]
    if rows:
        heading = ("images: messages", "mean accuracy", "each of 3 fits", "without privacy")
        parts.append(rows_of(heading, rows))
    if "tables" in last:
        heading = ("AUC in 5 messages", "patients", "`Logistic`", "`additive=True`",
                   "DP-EBM in one trusted place", "without privacy",
                   "without privacy, rows of length 1")  # fmt: skip
        names = ("shares", "additive", "ebm", "textbook", "same_rows")
        rows = []
        for name, one in last["tables"].items():
            found = {**one, **converged.get(name, {})}
            areas = (f"{found[key]:.4f}" if key in found else "" for key in names)
            rows.append((name, f"{one['patients']:,}", *areas))
        parts.append(rows_of(heading, rows))
    if "levels" in last:
        heading = ("AUC with levels of length", "patients", "½", "1", "difference")
        rows = [
            (name, f"{one['patients']:,}", f"{one['half']:.4f}", f"{one['one']:.4f}",
             f"{one['gain']:+.4f} ± {one['error']:.4f}")
            for name, one in last["levels"].items()
        ]  # fmt: skip
        parts.insert(0, rows_of(heading, rows))
    parts.reverse()  # what predicts first
    return "\n\n".join(parts) + "\n"


def run_page(options):
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    _, _, after = rest.partition(END)
    tables = tables_of(RESULTS.read_text("utf-8").splitlines())
    PAGE.write_text(f"{before}{START}{tables}{END}{after}", "utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[name[4:] for name in globals() if name.startswith("run_")])
    parser.add_argument("--fits", type=int, default=1000)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--data", type=Path, help="folder or file of images")
    parser.add_argument("--site", type=Path, help="folder of unpacked packages with tables")
    parser.add_argument("--ebm", action="store_true", help="compare with interpret's DP-EBM")
    parser.add_argument("--converged", action="store_true", help="fit without privacy instead")
    options = parser.parse_args()
    globals()[f"run_{options.what}"](options)


if __name__ == "__main__":
    main()
