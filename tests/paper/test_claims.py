"""Every sentence holds of the committed results, and each can fail."""

from dataclasses import replace

import pytest

from paper import cells, cifar, claims, mnist, snr


def where(frame, column, value, **equals):
    """The frame with another value where the columns are these."""
    changed = frame.copy()
    rows = changed.index == changed.index
    for name, wanted in equals.items():
        rows &= changed[name] == wanted
    assert rows.any()
    changed[column] = changed[column].where(~rows, value)
    return changed


# By claim: a section and what becomes of its frame
CHANGES = {
    "mlp_is_better": ("table1", {"column": "test_accuracy", "value": 0.9, "model": "mlp"}),
    "laplace_snr_is_the_laws": ("table1", {"column": "snr", "value": 0.3, "label": "laplace"}),
    "sdq_snr_is_lower": ("table1", {"column": "snr", "value": 9.0, "label": "sdq"}),
    "cnn_differs_by_noise": (
        "table1",
        {"column": "test_accuracy", "value": 0.998, "model": "cnn", "label": "sdq"},
    ),
    "as_the_code_is_the_code": (
        "table1_code",
        {"column": "test_accuracy", "value": 0.93, "model": "linear", "label": "jopeq"},
    ),
    "norms_travel_in_the_clear": (
        "table1",
        {"column": "scheme", "value": '["response",{"clip":0.1}]', "label": "response"},
    ),
    "epsilons_hold_but_for_jopeq": (
        "table1",
        {"column": "epsilon", "value": 4.1, "label": "response", "seed": 0},
    ),
    "jopeq_hardly_loses": ("fig2", {"column": "snr", "value": 0.01, "label": "jopeq ε=4 R=2"}),
    "clamps_lift_one_bit": (
        "fig2",
        {"column": "overload_rate", "value": 0.0, "label": "jopeq ε=3 R=1"},
    ),
    "noise_needs_no_room_in_sdq": (
        "fig2",
        {"column": "snr", "value": 0.01, "label": "unit ball and a cell R=4"},
    ),
    "response_is_best": ("fig2", {"column": "snr", "value": 0.01, "label": "response ε=3 R=4"}),
    "curves_meet": ("fig3", {"column": "validation", "value": [0.8], "label": "mvu"}),
    "products_in_tf32": ("table2", {"column": "tf32", "value": False, "lr": 0.03}),
    "calibration_costs_accuracy": (
        "table2",
        {"column": "test_accuracy", "value": 0.9, "label": "jopeq"},
    ),
    "published_noise_is_too_small": (
        "table2",
        {"column": "epsilon", "value": 2.0, "label": "t, published"},
    ),
    "calibrated_rows_hold": ("table2", {"column": "epsilon", "value": 1.0, "label": "jopeq"}),
    "more_rounds_make_rates_even": (
        "longer",
        {"column": "test_accuracy", "value": 0.5, "lr": 0.03},
    ),
    "code_gives_the_papers_snr": ("snr", {"column": "code", "value": 9.0, "scheme": "sdq"}),
    "points_take_their_bits": ("snr", {"column": "rate", "value": 3.0, "scheme": "t"}),
    "attacks_are_final": ("fig4", {"column": "final", "value": False, "epoch": 7}),
    "supports_hold_the_entries": ("fig6", {"column": "peak", "value": 9.1}),
    "papers_attack_needs_a_wide_support": (
        "fig6",
        {"column": "hits", "value": 1, "method": "label", "variant": "", "label": "sdq, R=4"},
    ),
    "early_stop_recovers_some": (
        "fig6",
        {"column": "hits", "value": 0, "variant": "stopped early"},
    ),
    "dlg_recovers_none": ("fig6", {"column": "hits", "value": 1, "method": "idlg"}),
    "inverting_recovers_compressed": (
        "fig6",
        {"column": "hits", "value": 1, "method": "inverting", "label": "jopeq, ε=3, R=8"},
    ),
    "adaptive_recovers_most": (
        "fig6",
        {"column": "hits", "value": 0, "method": "adaptive", "label": "laplace, ε=10"},
    ),
    "every_epoch_is_attacked": ("fig4", {"column": "epoch", "value": 9, "epoch": 8}),
    "private_gradients_leak_most_early": (
        "fig4",
        {"column": "mean_ssim", "value": 0.9, "method": "adaptive", "epoch": 0},
    ),
    "no_noise_is_flat": (
        "fig5",
        {"column": "mean_mse", "value": 1.0, "label": "jopeq, R=8, ε=1000"},
    ),
    "without_clipping_all_is_recovered": (
        "fig5",
        {"column": "hits", "value": 9, "label": "laplace, no clipping, ε=100000"},
    ),
    "repository_is_met_before_training": (
        "repository",
        {"column": "mean_ssim", "value": 0.6, "label": "raw", "epoch": 5},
    ),
    "clipping_stops_the_papers_attack": (
        "fig5",
        {"column": "mean_mse", "value": 0.1, "method": "adaptive", "label": "laplace, ε=100000"},
    ),
}


def test_every_claim_holds(results):
    assert claims.failed(results) == []


@pytest.mark.parametrize("name", [*CHANGES])
def test_a_claim_fails_when_its_numbers_change(results, name, monkeypatch):
    section, change = CHANGES[name]
    change = dict(change)
    if change["column"] == "epoch":  # the column that is changed is also the one looked at
        frame = getattr(results, section).query("epoch != 8")
    elif isinstance(change["value"], list):
        frame = getattr(results, section).copy()
        frame["validation"] = [
            change["value"] if label == change["label"] else values
            for label, values in zip(frame.label, frame.validation, strict=True)
        ]
    else:
        frame = where(getattr(results, section), **change)
    one = next(one for one in claims.CLAIMS if one.name == name)
    monkeypatch.setattr(claims, "CLAIMS", [one])
    with pytest.raises(claims.ClaimError, match=r"rewrite each sentence and its claim") as error:
        claims.check(replace(results, **{section: frame}))
    assert f"- {one.statement}\n" in str(error.value)


def test_claims_about_whole_curves_fail_too(results):
    runs = results.table2

    def flat(at):
        curves = zip(runs.validation, runs.lr, strict=True)
        made = [[1.0] * len(values) if lr == at else values for values, lr in curves]
        return runs.assign(validation=made)

    tested = runs.assign(test=[[0.0] * len(values) for values in runs.validation])
    for name, frame in (
        ("lower_rate_is_better", flat(0.2)),
        ("lowest_rate_still_rises", flat(0.01)),
        ("only_separate_is_below_the_code", tested),
    ):
        failed = claims.failed(replace(results, table2=frame))
        assert name in [one.name for one in failed]


def test_claims_about_constants_fail_too(results, monkeypatch):
    monkeypatch.setitem(mnist.PAPER, "sdq", (99, 99, 99))
    monkeypatch.setattr(snr, "tensor_sizes", lambda: [64, 9])
    failed = [one.name for one in claims.failed(results)]
    assert failed == ["paper_below_its_code", "half_of_the_tensors_are_small"]


def test_each_claim_is_seen_to_fail():
    elsewhere = {
        *("lower_rate_is_better", "lowest_rate_still_rises", "only_separate_is_below_the_code"),
        *("paper_below_its_code", "half_of_the_tensors_are_small"),
    }
    assert {one.name for one in claims.CLAIMS} == set(CHANGES) | elsewhere


def test_claims_about_sections_that_are_not_there_are_not_asked(results):
    empty = results.table1.iloc[:0]
    assert claims.failed(replace(results, table1=empty, fig5=empty)) == []


def test_the_template_names_the_grid():
    """Numbers that are written in the template's prose."""
    assert (cifar.LEARNING_RATE, cifar.GRID, cifar.TOO_HIGH) == (0.1, (0.01, 0.03, 0.2), 0.2)
    assert cifar.PUBLISHED == {2.0: (0.5, 4.0), 3.0: (0.2, 4.0)}
    assert cells.FIG6_EPSILON == 10.0
