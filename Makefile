# Everything a contributor or CI runs. Needs Python 3.11 or later, and nothing else.
# Asked to run, for a version manager may leave a python3.11 on the path that does not.
PYTHON := $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
COMPILE := uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-annotate --no-header --no-emit-package shoal-holder --quiet $(UPGRADE)
WHEELS := pyproject.toml analysis/pyproject.toml

.PHONY: demo test test-all test-rest exhaustive check docs lock bench bench-check bench-holders bench-statistics bench-table1 audit figures figures-draw-and-discard images clean

demo: .venv/demo
	.venv/bin/python -m demo

# The processes that tests start, some hundred, would else compile all of the code at every start,
# and each worker's linear algebra would take threads on all processors.
unexport PYTHONDONTWRITEBYTECODE
PYTEST = OPENBLAS_NUM_THREADS=1 .venv/bin/python -m pytest --numprocesses auto

# The tiers of tests; T=tests/protocol runs a part of one. This one takes ten minutes on two cores.
test: .venv/ready
	$(PYTEST) -m "not rest and not exhaustive" $(T)

# All but the enumerations that are sampled; 25 minutes on two cores.
test-all: .venv/ready
	$(PYTEST) $(T)

# What `make test-all` adds to `make test`.
test-rest: .venv/ready
	$(PYTEST) -m "rest and not exhaustive" $(T)

# Every case of enumerations that the tests take samples of; some minutes.
exhaustive: .venv/ready
	$(PYTEST) -m exhaustive $(T)

check: .venv/ready
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/python -m tests.budgets
	$(MKDOCS)

# The documents as a site in build/site; open build/site/index.html. Needs no network.
MKDOCS = .venv/bin/mkdocs build --strict
docs: .venv/ready
	$(MKDOCS)

bench-holders: .venv/ready
	.venv/bin/python -m bench.holders --json build/bench/holders.json

# How much estimators err, how often their intervals hold and whether verdicts are true, simulated, and
# errors of rivals; DATA=directory with uci and rivals adds their sets, QUICK=1 takes some minutes.
bench-statistics: .venv/ready
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.statistics $(if $(QUICK),--repeats 10)
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.regressions $(if $(QUICK),--quick,--repeats 6) \
		$(if $(DATA),--data $(DATA)) --json build/bench/regressions.json --warn

# Table 1 of Heikkilä et al. 2017 with all the cryptography; QUICK=1 in part, CELLS="1000x100 ..."
# some, ROWS="server ..." of it. Hours for the whole.
bench-table1: .venv/ready
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.table1 $(if $(QUICK),--quick) \
		$(if $(CELLS),--cells $(CELLS)) $(if $(ROWS),--rows $(ROWS))

bench: .venv/ready
	.venv/bin/python -m bench

# What got a quarter dearer than is stored, in multiples of bare primitives, answers that take longer
# than they are allowed, and regressions whose intervals or verdicts fail; WARN=--warn only says so.
bench-check: .venv/ready
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.unit_costs $(WARN)
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.allowances --quick $(WARN)
	OPENBLAS_NUM_THREADS=1 .venv/bin/python -m bench.regressions --quick $(WARN)

# Attacks the code with the distinguishing game: what privacy costs at least, some minutes.
audit: .venv/ready
	.venv/bin/python -m audit

# The paper's two figures and ours in them, in build/figures; DATA=directory of the data files, which
# are fetched where it is not given. Some minutes on two cores.
figures: .venv/ready
	.venv/bin/python -m figures $(if $(DATA),--data $(DATA)) $(PARTS)

# What Draw and Discard does, by simulation, in build/figures. Two minutes on two cores; needs no data.
figures-draw-and-discard: .venv/ready
	.venv/bin/python -m figures.draw_and_discard

images:
	docker compose build

# For maintainers; needs uv. `make lock UPGRADE=--upgrade` moves every pin to the newest release.
# The smaller locks take their versions from the first, so all of them always agree.
lock:
	$(COMPILE) $(WHEELS) --all-extras --group dev -o requirements/dev.lock
	$(COMPILE) -c requirements/dev.lock $(WHEELS) --group demo -o requirements/demo.lock
	$(COMPILE) -c requirements/dev.lock --group services -o requirements/services.lock
	$(COMPILE) -c requirements/dev.lock --group trainer -o requirements/trainer.lock
	$(COMPILE) -c requirements/dev.lock --group services --group dask -o requirements/dask.lock
	$(COMPILE) -c requirements/dev.lock pyproject.toml --extra agent -o requirements/client.lock
	$(COMPILE) -c requirements/dev.lock $(WHEELS) -o requirements/analyst.lock
	$(COMPILE) -c requirements/dev.lock pyproject.toml --group trainer --extra numpyro -o requirements/numpyro.lock
	$(COMPILE) -c requirements/dev.lock --group build -o requirements/build.lock

# One environment. The demo's part of it comes first where only the demo is asked for, and whatever
# else is run completes it. Only what a lock names by hash is fetched; hatchling and editables, which
# build the editable install, are in the locks too.
INSTALL = $(PYTHON) -m venv .venv \
	&& .venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $< \
	&& .venv/bin/pip install --quiet --no-deps --no-build-isolation --editable analysis \
	&& .venv/bin/pip install --quiet --no-deps --no-build-isolation --editable .

.venv/demo: requirements/demo.lock $(WHEELS)
	@echo "Installing what the demo needs into .venv: about a minute."
	$(INSTALL)
	touch $@

.venv/ready: requirements/dev.lock $(WHEELS)
	@echo "Installing all that tests and checks need into .venv: two or three minutes."
	$(INSTALL)
	touch .venv/demo $@

clean:
	rm -rf .venv build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
