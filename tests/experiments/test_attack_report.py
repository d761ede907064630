import jopeq
from jopeq.experiments.attack_cells import Cell, fig5_schemes, figure_cells
from jopeq.experiments.attack_report import (
    attacks_markdown,
    found_for,
    recovered,
    save_fig4,
    save_fig5,
    server_epsilon,
)

RAW = jopeq.scheme("none").spec


def test_the_saturated_scheme_has_no_epsilon():
    schemes = fig5_schemes()
    assert server_epsilon(schemes["jopeq, R=4", 10.0]) == float("inf")  # no noise is added
    assert server_epsilon(schemes["laplace", 10.0]) == 10.0
    assert 10.0 < server_epsilon(schemes["jopeq, R=8", 10.0]) < 10.2


def test_recovered_counts_and_the_most_images_win(kept_attack):
    cell = Cell("raw", RAW)
    assert recovered(kept_attack(cell, 0.6)).hits == 2
    assert recovered(kept_attack(cell, 0.9)).hits == 2  # the third has no loss: it was never found
    few, many = kept_attack(cell, images=3), kept_attack(cell, images=70)
    assert found_for([cell], [few, many])[cell.key] is many
    assert found_for([cell], [many, few])[cell.key] is many


def test_figures_and_their_table(kept_attack, tmp_path):
    names = ("fig4", "fig5", "fig6")
    everything = {cell.key: cell for name in names for cell in figure_cells(name)}
    attacked = [kept_attack(cell) for cell in everything.values()]
    save_fig4(attacked, tmp_path / "fig4.png")
    save_fig5(attacked, tmp_path / "fig5.png")
    assert all((tmp_path / name).stat().st_size > 20_000 for name in ("fig4.png", "fig5.png"))
    table = attacks_markdown(attacked)
    assert "| raw | none | label | 0.400 | 33% (6–79%) | 0.0200 | given |" in table
    assert "| raw | none | idlg | 0.400 | 33% (6–79%) | 0.0200 | 2/3 |" in table
    assert "label, published" in table


def test_cells_over_other_numbers_of_images_are_drawn_too(kept_attack, tmp_path):
    more = {"images": 4, "ssim": [0.1, 0.2, 0.3, 0.4], "mse": [0.1, 0.2, 0.3, 0.4]}
    for name, save in (("fig4", save_fig4), ("fig5", save_fig5)):
        first, *others = figure_cells(name)
        save([kept_attack(first, **more), *map(kept_attack, others)], tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 20_000
