import json

from jopeq.experiments.attack_cells import Cell, fig4_cells, figure_cells
from jopeq.experiments.attack_figures import ATTACKS_FILE
from jopeq.experiments.attack_page import attack_section


def test_the_section_shows_all_figures(kept_attack, tmp_path):
    names = ("fig4", "fig5", "fig6")
    everything = {cell.key: cell for name in names for cell in figure_cells(name)}
    attacked = [kept_attack(cell) for cell in everything.values()]
    results = tmp_path / "results"
    results.mkdir()
    assert attack_section(results, tmp_path, "figures") == ""
    lines = [json.dumps(vars(one)) for one in attacked]
    (results / ATTACKS_FILE).write_text("\n".join(lines))
    section = attack_section(results, tmp_path, "figures")
    assert "every epoch from 0 to 30" in section
    assert "nan" not in section
    for words in ("Figure 4", "Figure 5", "Figure 6", "33% (6–79%)"):
        assert words in section
    text = " ".join(section.split())
    assert "The curve of raw gradients on the right is that of the left" in text
    assert text.count("band: the middle half of them, between the quartiles") == 2


def test_attacks_that_had_too_little_are_counted(kept_attack, tmp_path):
    cells = [cell for cell in figure_cells("fig6") if cell.method == "label"]
    final = [kept_attack(cell, iterations=300) for cell in cells]
    short = [
        kept_attack(Cell(cells[0].label, cells[0].spec, "adaptive"), status={"stalled": 3}),
        kept_attack(Cell("no longer shown", '["none",{}]', "adaptive", 99)),
    ]
    path = tmp_path / ATTACKS_FILE
    path.write_text("\n".join(json.dumps(vars(one)) for one in final))
    assert "so far" not in attack_section(tmp_path, tmp_path, "figures")
    path.write_text("\n".join(json.dumps(vars(one)) for one in [*final, *short]))
    words = f"**1 of {len(final) + 2} attacks (adaptive) have had only 150 so far"
    assert words in attack_section(tmp_path, tmp_path, "figures")


def test_the_most_that_was_recovered_is_of_all_epochs(kept_attack, tmp_path):
    cells = [cell for cell in fig4_cells() if cell.label == "raw" and cell.epoch < 11]
    attacked = [kept_attack(cell, middle=0.9 if cell.epoch == 7 else 0.1) for cell in cells]
    (tmp_path / ATTACKS_FILE).write_text("\n".join(json.dumps(vars(one)) for one in attacked))
    section = attack_section(tmp_path, tmp_path, "figures")
    row = next(line for line in section.splitlines() if line.startswith("| raw | label | 0.100"))
    assert row.endswith("| 0.100 | 0.100 | 0.100 | 67% (21–94%) |")


def test_words_and_table_are_of_the_same_attacks(kept_attack, tmp_path):
    """Those over most images, wherever they are in the file."""
    cells = [cell for cell in figure_cells("fig6") if cell.method == "label" and not cell.variant]
    few = {"images": 1, "ssim": [0.9], "mse": [0.01], "loss": [0.1]}
    attacked = [kept_attack(cell, middle=0.1) for cell in cells]
    attacked += [kept_attack(cell, **few) for cell in cells]
    (tmp_path / ATTACKS_FILE).write_text("\n".join(json.dumps(vars(one)) for one in attacked))
    section = attack_section(tmp_path, tmp_path, "figures")
    assert "| raw | none | label | 0.100 | 0% (0–56%) |" in section
    assert "From raw gradients 0% (0–56%) of the 3 images are recovered" in section
    assert "- The paper's attack recovers none from" in section


def test_a_part_of_the_results_makes_a_part_of_the_page(kept_attack, tmp_path):
    some = [cell for cell in fig4_cells() if cell.epoch in (0, 5)]
    (tmp_path / ATTACKS_FILE).write_text(
        "\n".join(json.dumps(vars(kept_attack(cell))) for cell in some)
    )
    section = attack_section(tmp_path, tmp_path, "figures")
    assert "attacked at epochs 0, 5." in section
    assert "### Figure 5" not in section
