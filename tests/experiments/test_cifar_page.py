import json

from jopeq.experiments.cifar_page import table2_section


def test_the_section_copes_with_what_is_not_there(cifar_run, tmp_path):
    assert table2_section(tmp_path, tmp_path, "figures") == ""
    path = tmp_path / "table2.jsonl"
    path.write_text(json.dumps(vars(cifar_run(lr=0.2))) + "\n")
    assert table2_section(tmp_path, tmp_path, "figures") == ""
    path.write_text(json.dumps(vars(cifar_run("sdq", test=None, snr=0.5))) + "\n")
    text = " ".join(table2_section(tmp_path, tmp_path, "figures").split())  # lines are filled
    assert "## Table II" in text
    assert "**0 of 192 runs of 160 rounds have been made so far.**" in text
    assert "Beside the published code" not in text
    assert "Why the SNRs" not in text
    assert "3.96 where 2 is asked for and 5.78 where 3 is asked for" in text
    assert "3.9 times (ε = 2) and 4.2 times (ε = 3)" in text
    assert (tmp_path / "table2.png").stat().st_size > 10_000


def test_the_page_says_which_products_were_rounded(cifar_run, tmp_path):
    paper, other = cifar_run("sdq"), cifar_run("sdq", lr=0.03)
    path = tmp_path / "table2.jsonl"

    def section():
        path.write_text("".join(json.dumps(vars(run)) + "\n" for run in (paper, other)))
        return " ".join(table2_section(tmp_path, tmp_path, "figures").split())

    assert "TF32" not in section()
    paper.settings["tf32"] = True
    assert ", products in TF32 (float32 at lr 0.03). **" in section()
    other.settings["tf32"] = True
    assert ", products in TF32. **" in section()
