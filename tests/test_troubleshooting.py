"""docs/troubleshooting.md knows every code that a program or a server can meet."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _codes():
    """Codes of classes, of errors that are raised, and of refusals, as the sources have them."""
    for path in (ROOT / "src/jopeq").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            values = []
            if isinstance(node, ast.Call):
                values = [one.value for one in node.keywords if one.arg == "code"]
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                values = [node.value] if name == "code" else []
                if name == "SENTENCES" and isinstance(node.value, ast.Dict):
                    values = node.value.keys
            for one in values:
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield one.value


def test_every_code_has_its_row_and_no_row_is_out_of_date():
    page = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    cells = re.findall(r"^\| (`[^|]+`) \|", page, re.MULTILINE)
    told = {code for cell in cells for code in re.findall(r"`([a-z-]+)`", cell)}
    assert told == set(_codes())
