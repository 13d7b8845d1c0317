# Every target makes .venv when it is missing or older than what it is made from.
PYTHON ?= python3
BIN := .venv/bin
MATRIX ?= quick
STAMP := .venv/.stamp
# Two test processes, one torch thread each: two by two threads are slower than one.
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1
TESTS ?= tests
PROCESSES ?= 2
N ?= 1000

.PHONY: help install leaderboard test test-slow lint performance fuzz kill clean

help:
	@echo "make leaderboard   set up, run the default matrix, show the leaderboard (MATRIX=core for the long one)"
	@echo "make test          the tests, under ten minutes on two cores"
	@echo "make test-slow     kills, faults, Ray, DDP, browser, trained scores"
	@echo "make lint          ruff and pyright"
	@echo "make performance   timed bounds, paired in one run"
	@echo "make fuzz N=20000  hostile files and values, N of each surface: a night's work"
	@echo "make kill N=1000   kills at random moments, compared with an undisturbed run"
	@echo "make clean         remove .venv, results and caches"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed (make PYTHON=python3.11)")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $(STAMP)

leaderboard: $(STAMP)
	$(BIN)/polymodal run $(MATRIX)
	$(BIN)/polymodal leaderboard

test: $(STAMP)
	$(BIN)/python -m pytest $(TESTS) -m "not slow" -n $(PROCESSES) --dist worksteal -q

test-slow: $(STAMP)
	$(BIN)/python -m pytest $(TESTS) -m slow -n $(PROCESSES) --dist worksteal -q --timeout 1800

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

performance: $(STAMP)
	@status=0; for script in tests/performance/*.py; do echo "== $$script"; PYTHONPATH=. $(BIN)/python $$script || status=1; done; exit $$status

fuzz: $(STAMP)
	POLYMODAL_FUZZ=$(N) $(BIN)/python -m pytest tests/fuzz -n $(PROCESSES) --dist worksteal -q --timeout 0

kill: $(STAMP)
	PYTHONPATH=. $(BIN)/python tests/kill/campaigns.py $(N)

clean:
	rm -rf .venv results .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
