# Every target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
MATRIX ?= quick
STAMP := .venv/.stamp
DEV := .venv/.stamp-dev
# Python compiles what it imports, a third of what pip would compile first.
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt
# Two test processes, one torch thread each: two by two threads are slower than one.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
# pip does not compile (above), so where Python is told not to either, every process would, for eight seconds each.
unexport PYTHONDONTWRITEBYTECODE
TESTS ?= tests
PROCESSES ?= 2
N ?= 1000

.PHONY: help install leaderboard test test-slow lint docs performance fuzz kill clean

help:
	@echo "make leaderboard   set up, run the default matrix, show the leaderboard (MATRIX=core for the long one)"
	@echo "make test          the tests, under ten minutes on two cores"
	@echo "make test-slow     kills, faults, Ray, DDP, browser, trained scores"
	@echo "make lint          ruff and pyright"
	@echo "make docs          the site, in site/"
	@echo "make performance   timed bounds, paired in one run"
	@echo "make fuzz N=20000  hostile files and values, N of each surface: a night's work"
	@echo "make kill N=1000   kills at random moments, compared with an undisturbed run"
	@echo "make clean         remove .venv, results and caches"

install: $(DEV)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed (make PYTHON=python3.11)")'
	$(PYTHON) -m venv --clear .venv
	$(PIP) -e .
	touch $(STAMP)
	@echo "Installed, $$(du -sh .venv | cut -f1) in .venv: \`. $(BIN)/activate\` makes \`polymodal\` a command of this shell; without it, write $(BIN)/polymodal."

# What running does without: Ray, text encoders, tests, linters, the site.
$(DEV): $(STAMP)
	$(PIP) -e '.[dev]'
	touch $(DEV)

leaderboard: $(STAMP)
	$(BIN)/polymodal run $(MATRIX)
	$(BIN)/polymodal leaderboard
	@echo "Next: \`. $(BIN)/activate\` makes \`polymodal\` a command of this shell; \`polymodal --help\` says what it does."

test: $(DEV)
	$(BIN)/python -m pytest $(TESTS) -m "not slow" -n $(PROCESSES) --dist worksteal -q

test-slow: $(DEV)
	$(BIN)/python -m pytest $(TESTS) -m slow -n $(PROCESSES) --dist worksteal -q --timeout 1800

docs: $(DEV)
	PYTHONPATH=. $(BIN)/python docs/make.py
	@# Not --quiet, which hides from --strict what it would refuse.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

performance: $(DEV)
	@status=0; for script in tests/performance/*.py; do echo "== $$script"; PYTHONPATH=. $(BIN)/python $$script || status=1; done; exit $$status

fuzz: $(DEV)
	POLYMODAL_FUZZ=$(N) $(BIN)/python -m pytest tests/fuzz -n $(PROCESSES) --dist worksteal -q --timeout 0

kill: $(DEV)
	PYTHONPATH=. $(BIN)/python tests/kill/campaigns.py $(N)

clean:
	rm -rf .venv results site docs/methods docs/datasets docs/claims.md .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
