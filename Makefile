# boxstrap's own commands, for people who work in this checkout. `make` lists them.
# Works with GNU make 3.81 and BSD tools, as macOS has them.

VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest
SHELL_FILES = .ci/run .ci/environment $$(find templates tests/boxes tests/faults -name '*.sh')

# uv makes the environment where it is on the PATH; `make UV= install` takes pip anyway.
UV := $(shell command -v uv 2>/dev/null)
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Many tests wait for a box, a link or a clock, and leave the cores to others: four a core.
WORKERS := $(shell expr 4 \* $(CORES))
# Of what these try, `make test` takes a part, another one with each seed; `make chaos` takes all.
SAMPLED = $$(grep -rlE 'mark\.sampled|getoption\("(tries|every)"\)|^ *@given' tests --include='test_*.py')
# docs/adr/0135: up to three tests with boxes that went red beside others, alone.
SECOND_TRY = $(PYTEST) --last-failed --last-failed-no-failures none --second-try
# Which cases of these run is no matter of chance where coverage is measured: they destroy and pay.
PAYS = tests/unit/renting tests/main_job/test_resumption.py tests/main_job/test_up.py
COVERED = $(BIN)/coverage run --data-file=$(CURDIR)/.coverage/data -m pytest -q -n $(WORKERS) -o faulthandler_timeout=1200
LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes \
  --no-header --no-annotate --no-emit-index-url
# uv and pip both take the certificates of the system.
export UV_SYSTEM_CERTS := 1

.DEFAULT_GOAL := help
.PHONY: help install demo demo-rent quick test coverage test-boxes chaos mutants editor-proof browser-proof lint typecheck bench picture door-proof docs site lock prices uv-release clean

help:  ## list what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

install: $(VENV)/installed  ## put `boxstrap` and `inv` into .venv/bin
	@echo "ready: $(BIN)/boxstrap --list"

demo: $(VENV)/installed  ## see a training begin on this machine: no account, no GPU, nothing rented
	@$(BIN)/boxstrap demo

demo-rent: $(VENV)/dev  ## see a box rented, a training run there, and the box given back: a simulated account, a box of the tests; needs root and a minute, the first time a few
	@[ "$$(id -u)" = 0 ] || { echo "Boxes need root: sudo make demo-rent" >&2; exit 1; }
	@$(BIN)/python -m tests.providers.demo

quick: $(VENV)/dev  ## the tests to run while you work: no box, forty seconds
	@$(PYTEST) -q -n $$(expr $(CORES) + 1) -o faulthandler_timeout=60 --dist worksteal -m "not boxes and not slow" tests/unit

test: $(VENV)/dev  ## every test that this machine can run; what is left out is said at the end
	@seed=$$$$; $(PYTEST) --ignore tests/docs/test_docs.py -n $(WORKERS) --seed $$seed || { [ $$? = 1 ] && $(SECOND_TRY) --seed $$seed; }

coverage: $(VENV)/dev  ## which lines and branches the tests run, by package, and whether enough of what destroys, sends or pays; needs root and half an hour
	@rm -rf .coverage && mkdir .coverage
	@$(COVERED) $(TESTS); first=$$?; $(COVERED) --every $(PAYS); second=$$?; \
	  $(BIN)/python -m tests.coverage && exit $$((first + second))

test-boxes: $(VENV)/dev  ## the tests on disposable boxes, and the table of faults; what needs root is left out without
	@$(PYTEST) -m "boxes or faults" -n $(WORKERS)

chaos: $(VENV)/dev  ## fifty kills each at random moments, every pair of doors, every damage and lie, every state of a repository, properties; needs root and half an hour
	@[ "$$(id -u)" = 0 ] || { echo "Boxes need root: sudo make chaos" >&2; exit 1; }
	@$(PYTEST) $(SAMPLED) --tries 50 --every -n $(WORKERS) --tb=short

mutants: $(VENV)/dev  ## put a hundred faults in, drawn by a seed, and see whether the nearest tests go red; half an hour
	@$(BIN)/python -m tools.mutants $(MUTANTS)

editor-proof: $(VENV)/dev  ## open a box in a real VS Code server; needs root, npm and Chromium
	@$(BIN)/python -m tools.editor docs/editor.png

browser-proof: $(VENV)/dev  ## see pages in a real Chromium; needs root, npm and Chromium, and takes minutes
	@$(BIN)/python -m tools.browser

lint: $(VENV)/dev  ## ruff and the layers over the Python, names, shellcheck over the shell, and whether the pages are true
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo --cache-dir .ruff_cache/imports >$(VENV)/layers 2>&1 || { cat $(VENV)/layers; exit 1; }
	@command -v shellcheck >/dev/null || { echo "shellcheck is not installed: install it with your package manager." >&2; exit 1; }
	@shellcheck $(SHELL_FILES)
	@$(BIN)/python -m tools.names
	@$(PYTEST) -q tests/docs/test_docs.py

typecheck: $(VENV)/dev  ## mypy, strict
	@$(BIN)/mypy

bench: $(VENV)/dev  ## time boxstrap against the other ways, on one box; needs root and ten minutes
	@$(BIN)/python -m tools.bench

picture: $(VENV)/dev  ## record a real setup on a vast box of the rig and draw docs/run.svg from it; needs root
	@[ "$$(id -u)" = 0 ] || { echo "Boxes need root: sudo make picture" >&2; exit 1; }
	@$(BIN)/python -m tools.docs.picture

door-proof: $(VENV)/dev  ## show what doors get to SkyPilot, dstack, hadolint, cloud-init, a notebook; minutes
	@$(BIN)/python -m tools.doors

docs: $(VENV)/dev  ## write the generated parts of docs/
	@$(BIN)/python -m tools.docs.generate
	@$(BIN)/python -m tools.docs.picture --redraw
	@$(BIN)/python -m tools.docs.verdict_example docs/verdict-example.html

site: $(VENV)/site/installed  ## build the documentation as pages into site/: no dead link, nothing from outside
	@NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build --strict
	@echo "site/index.html"

lock: $(VENV)/dev  ## renew the lock files in .ci: the newest versions that pyproject.toml allows, and hashes
	@$(LOCK) --output-file .ci/requirements.txt pyproject.toml
	@$(LOCK) --group dev --constraint .ci/requirements.txt --output-file .ci/requirements-dev.txt pyproject.toml
	@$(LOCK) --group site --constraint .ci/requirements-dev.txt --output-file .ci/requirements-site.txt

prices: $(VENV)/dev  ## renew the table of `boxstrap estimate`, from gpuhunt and the accounts' offers
	@$(BIN)/python -m tools.prices

uv-release: $(VENV)/dev  ## pin the newest uv: its version and SHA-256, from the index that pip is set to
	@$(BIN)/python -m tools.uv_release

clean:  ## remove the environment and what tools left behind
	rm -rf $(VENV) dist build site .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is kept until what it is made from changes.

$(VENV)/installed: pyproject.toml bootstrap/__init__.py .ci/environment .ci/requirements.txt
	@.ci/environment $(VENV) "$(UV)"
	@touch $@

$(VENV)/dev: $(VENV)/installed .ci/requirements-dev.txt
	@.ci/environment $(VENV) "$(UV)" dev
	@touch $@

# One of its own, which needs nothing of boxstrap: docstrings are read from the source.
$(VENV)/site/installed: .ci/environment .ci/requirements-site.txt
	@.ci/environment $(VENV)/site "$(UV)" site
	@touch $@
