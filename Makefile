# `make run` and `make test` need Python 3.10+ and make, nothing else.
PYTHON ?= python3
VENV ?= .venv
MATRIX ?= 3.10 3.13
BIN := $(VENV)/bin

# The CuPy that matches the driver; without a driver CuPy for CUDA 12, which also imports there.
CUDA_EXTRA := $(shell nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 13' && echo cuda13 || echo cuda12)

# Neighbours stay together, as they share fixtures; who has none left takes from the other. Tests wait for processes
# of theirs: three for two cores keep both busy.
SIDE_BY_SIDE := --numprocesses $(shell expr '(' $$(getconf _NPROCESSORS_ONLN) '*' 3 + 1 ')' / 2) --dist worksteal
# Suites of tests/suites.py that `make test` runs: auto (where what they are about differs from main), all, none, or
# names with commas.
SUITES ?= auto
# Which examples of properties the profile of CI draws; without a number others each time.
SEED ?=

SPHINX := --fail-on-warning --keep-going --quiet --doctree-dir build/docs/trees

.PHONY: run test types bench test-kernels test-triton test-all test-systemd test-browser test-install test-image wheel assets test-matrix \
  coverage docs man clean

run: $(VENV)/.run-ready
	$(BIN)/tuner run --objective energy

test: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pytest $(SIDE_BY_SIDE) --suites $(SUITES) $(SEED:%=--hypothesis-seed=%)

# mypy cannot follow the mapping of power/ and policies/ into tuner: it reads the tree through links.
types: $(VENV)/.test-ready
	@rm -rf build/types && mkdir -p build/types/tuner
	@cd build/types/tuner && ln -s ../../../tuner/* ../../../power ../../../policies .
	$(BIN)/mypy $$(find -L build/types/tuner -name '*.py') tests/*.py tests/kernels/*.py

# One script of benchmarks/, with its options: make bench NAME=kernels/peers ARGS=--help
bench: $(VENV)/.test-ready
	$(BIN)/python benchmarks/$(NAME).py $(ARGS)

# Pairs of values of all kernels, sanitizers and barriers.
test-kernels: $(VENV)/.test-ready
	$(BIN)/pytest $(SIDE_BY_SIDE) --suites kernels,pairs -m pairwise

# Triton without a GPU, in an environment of its own: its version is one of those that are tested, 3.4 to 3.9.
TRITON ?= 3.9
test-triton:
	$(MAKE) --no-print-directory VENV=.venv-triton .venv-triton/.test-ready
	if .venv-triton/bin/python -m pip install --quiet --disable-pip-version-check "triton==$(TRITON).*"; then \
	  .venv-triton/bin/pytest -m "triton and not gpu" tests/test_triton.py tests/test_triton_in_place.py tests/test_inductor.py; \
	else echo "test-triton: skipped, the package index has no Triton $(TRITON)"; fi

# Also every configuration of every kernel at every listed size, on the host and for four architectures, and ten
# times as many examples of each law: hours.
test-all: $(VENV)/.test-ready
	$(BIN)/pytest $(SIDE_BY_SIDE) --suites all --hypothesis-profile thorough -m "not gpu and not browser and not network"

# The same tests on other versions of Python, each in an environment of its own; one that is not here is left out.
test-matrix:
	@for version in $(MATRIX); do \
	  python=$$(for found in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
	    $$found -c 'import venv' 2>/dev/null && command -v $$found && break; done); \
	  if [ -z "$$python" ]; then echo "Python $$version is not here: left out"; continue; fi; \
	  $(MAKE) --no-print-directory test PYTHON=$$python VENV=.venv-$$version || exit 1; \
	done

# Lines that the tests run, in processes that they start too; the figure is in CONTRIBUTING.md. What is left out
# counts imports or memory, which coverage adds to.
coverage: $(VENV)/.test-ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(SIDE_BY_SIDE) --suites all -k "not light and not heavy and not idle_daemon_is_small"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort cover

# The documentation as a site, in build/docs/html: links and examples in it are tried, and a warning is an error.
docs: $(VENV)/.docs-ready
	$(BIN)/sphinx-build $(SPHINX) -b html docs build/docs/html
	$(BIN)/sphinx-build $(SPHINX) -b doctest docs build/docs/doctest
	$(BIN)/sphinx-build $(SPHINX) -b linkcheck docs build/docs/linkcheck
	@echo "open build/docs/html/index.html"

# Manual pages of all commands; `man -l build/man/tuner.1` shows one.
man: $(VENV)/.run-ready
	$(BIN)/python -m tuner.cli.manual build/man

# Pages in a real browser: Debian's chromium, driven by Playwright; skipped, with the reason, without them.
test-browser: $(VENV)/.test-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[browser]" || true
	$(BIN)/pytest -m browser -rs

# The wheel of the last commit, alone in dist/. Without a tag its version names the commit: setup.py.
wheel: | $(BIN)/python
	@rm -rf build/wheel dist/gpu_tuner-* && git clone --quiet . build/wheel
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist build/wheel
	@ls dist/gpu_tuner-*

# The wheel of the last commit in empty environments of all Pythons that are here, and whether all that it needs is to be
# had for the others and for aarch64: needs the package index. ONLY=3.10 is one of them.
test-install: $(VENV)/.test-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv || true
	$(BIN)/pytest -m network -rs tests/test_install.py $(ONLY:%=-k %)

# The image of the Containerfile, on that of TUNER_TEST_BASE or this machine's Debian: needs the package index, root,
# buildah, and debootstrap where no base is named; skipped, with the reason, elsewhere.
test-image: $(VENV)/.test-ready
	$(BIN)/pytest -m network -rs tests/test_image.py

# The JavaScript library of reports, anew from the registry: needs npm. What it makes is committed.
assets:
	tuner/report/html/echarts/build.sh build/echarts

# The units, installed into a throw-away systemd: needs root and systemd-nspawn; skipped, with the reason, elsewhere.
test-systemd: $(VENV)/.test-ready
	$(BIN)/pytest -m systemd -rs

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(CUDA_EXTRA)]"
	touch $@

$(VENV)/.test-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(CUDA_EXTRA),test]"
	touch $@ $(VENV)/.run-ready

$(VENV)/.docs-ready: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(CUDA_EXTRA),docs]"
	touch $@ $(VENV)/.run-ready

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
