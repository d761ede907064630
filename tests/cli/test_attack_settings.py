import pytest

import jopeq
from jopeq.cli.attack import attack_config, check_demo, check_methods


def test_the_first_method_is_set_and_the_line_search_is_wolfe():
    config = attack_config(["idlg", "label"], line_search=None, iterations=3)
    assert (config.method, config.iterations, config.line_search) == ("idlg", 3, "wolfe")
    assert attack_config(["idlg"], line_search="none").line_search == "none"


@pytest.mark.parametrize(
    ("methods", "settings", "words"),
    [
        (["label", "foo"], {}, "^--attack must be one of .* got 'foo'"),
        (["label"], {"line_search": "foo"}, "^--line-search must be one of"),
        (["label"], {"start": "foo"}, "^--start must be one of"),
        (["label"], {"restarts": -1}, "^--restarts must be"),
        (["inverting"], {"line_search": "none"}, "--line-search none belongs to L-BFGS"),
        (["label"], {"line_search": "wolfe", "optimizer": "adam"}, "--line-search wolfe belongs"),
    ],
)
def test_what_is_wrong_is_named_as_the_option(methods, settings, words):
    with pytest.raises(ValueError, match=words):
        attack_config(methods, **{"line_search": None, **settings})


def test_a_line_search_is_fine_where_one_of_the_attacks_has_it():
    assert attack_config(["inverting", "label"], line_search="none").line_search == "none"


def test_the_adaptive_attack_does_not_know_centering():
    schemes = {"mine": jopeq.scheme("sdq", rate=4.0, center=True)}
    check_methods(["label"], schemes)
    with pytest.raises(ValueError, match="center=true, which scheme 'mine' has"):
        check_methods(["label", "adaptive"], schemes)


def test_the_demo_has_its_own_images_and_schemes():
    check_demo(image=None, data_dir=None)
    with pytest.raises(ValueError, match="drop --demo, or --image and --data-dir"):
        check_demo(image=["a.png"], data_dir="folder")
