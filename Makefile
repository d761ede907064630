# Two commands do everything: `make demo` and `make test`.
PYTHON ?= python3
PROCESSES ?= 3
VENV := .venv
BIN := $(VENV)/bin
DEMO := $(VENV)/.demo
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start many processes: let Python keep what it compiles, even where an image forbids it
export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test quick test-flower test-go-live lint bench docs figures pages dist clean

$(DEMO): pyproject.toml lab/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "jopeq needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[fast]' -e lab
	touch $@

$(READY): $(DEMO)
	$(INSTALL) -e '.[dev]' -e 'lab[paper]'
	touch $@

$(BROWSER): $(READY)
	$(INSTALL) -e '.[browser]'
	touch $@

demo: $(DEMO)
	$(BIN)/jopeq-lab demo

# Files side by side, the longest first (tests/conftest.py says which). Three processes on two cores:
# federations mostly wait. PROCESSES=0: one process.
# The kernels are compiled once, next to the linters, not by every process of tests for itself.
test: $(READY)
	$(BIN)/jopeq doctor --warmup > /dev/null & make --no-print-directory lint && wait && \
	$(BIN)/python -m pytest -q -n $(PROCESSES) --dist loadfile --no-loadscope-reorder

# For people at work: the linter and the core (tests/conftest.py says which), under a minute
quick: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q --quick -n $(PROCESSES) --dist loadfile tests

# tests/flower with other versions of Flower, each in an environment of its own, without torch. The
# federations of processes are not among them: they use options of the newest commands.
FLOWER ?= 1.29.0 1.32.1 1.35.0 1.38.0 1.41.0
test-flower:
	mkdir -p build
	grep -E '^(click|hypothesis|numpy|pytest|pytest-xdist|scikit-learn|scipy|typer)==' \
		constraints.txt > build/flower.txt
	for version in $(FLOWER); do \
		$(PYTHON) -m venv build/flower-$$version && \
		build/flower-$$version/bin/python -m pip install --quiet --disable-pip-version-check \
			-c build/flower.txt -e . flwr==$$version hypothesis pytest pytest-xdist scikit-learn && \
		build/flower-$$version/bin/python -m pytest -q -n $(PROCESSES) --dist loadfile \
			-m 'not flower' tests/flower || exit 1; \
	done

# The commands of docs/go-live.md, typed: three SuperNodes with TLS and authentication, minutes
test-go-live: $(READY)
	$(BIN)/python -m pytest -q --go-live tests/flower/test_go_live.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Tables on the screen, a plot and the numbers in build/; the GPU too where there is one
bench: $(READY)
	$(BIN)/python benchmarks/speed.py --json build/bench.json --plot build/speed.svg
	if $(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; \
		then $(BIN)/python benchmarks/gpu.py; fi
	$(BIN)/python benchmarks/federated.py

# The site, in build/site: every example is run, every page opened in a headless Chromium
docs: $(BROWSER)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	JOPEQ_BROWSER=required $(BIN)/python -m pytest -q README.md docs tests/browser
	@echo 'built and checked: $(BIN)/python -m http.server --directory build/site'

# The pictures of docs/entries.md and docs/guarantees.md, drawn by the library
figures: $(READY)
	$(BIN)/python tools/concept_figures.py docs/figures

# docs/quickstart.md and docs/commands.md: what the program of examples/quickstart and commands print and draw
pages: $(READY)
	$(BIN)/python tools/quickstart.py
	$(BIN)/python tools/cli_page.py

# Wheels and sdists of jopeq and jopeq-lab in dist/; the library's wheel is tried in an empty environment
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist lab
	$(BIN)/python tools/try_wheel.py dist

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache
