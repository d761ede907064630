import json

from jopeq.experiments.attack_cells import fig4_cells, figure_cells
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


def test_a_part_of_the_results_makes_a_part_of_the_page(kept_attack, tmp_path):
    some = [cell for cell in fig4_cells() if cell.epoch in (0, 5)]
    (tmp_path / ATTACKS_FILE).write_text(
        "\n".join(json.dumps(vars(kept_attack(cell))) for cell in some)
    )
    section = attack_section(tmp_path, tmp_path, "figures")
    assert "attacked at epochs 0, 5." in section
    assert "### Figure 5" not in section
