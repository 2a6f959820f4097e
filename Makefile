# Everything a contributor or CI runs. Needs Python 3.11 or later, and nothing else.
# Asked to run, for a version manager may leave a python3.11 on the path that does not.
PYTHON := $(shell python3.11 -c '' 2>/dev/null && echo python3.11 || echo python3)
COMPILE := uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-annotate --no-header --quiet $(UPGRADE)

.PHONY: demo test exhaustive check lock bench audit figures figures-draw-and-discard images clean

demo: .venv/ready
	.venv/bin/python -m demo

# The processes that tests start, some hundred, would else compile all of the code at every start,
# and each worker's linear algebra would take threads on all processors.
unexport PYTHONDONTWRITEBYTECODE
test exhaustive: export OPENBLAS_NUM_THREADS := 1
test: .venv/ready
	.venv/bin/python -m pytest --numprocesses auto --dist loadgroup $(T)

# Every case of enumerations that the tests take samples of; some minutes.
exhaustive: .venv/ready
	.venv/bin/python -m pytest --numprocesses auto --dist loadgroup -m exhaustive $(T)

check: .venv/ready
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy

bench: .venv/ready
	.venv/bin/python -m bench

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
	$(COMPILE) pyproject.toml --all-extras --group dev -o requirements/dev.lock
	$(COMPILE) -c requirements/dev.lock --group services -o requirements/services.lock
	$(COMPILE) -c requirements/dev.lock --group services --group dask -o requirements/dask.lock
	$(COMPILE) -c requirements/dev.lock pyproject.toml --extra agent --extra parquet -o requirements/client.lock
	$(COMPILE) -c requirements/dev.lock pyproject.toml --group services --extra numpyro -o requirements/numpyro.lock

# Only what the lock names by hash is fetched; hatchling and editables, which build the editable
# install, are in the lock too.
.venv/ready: requirements/dev.lock pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/pip install --quiet --require-hashes -r requirements/dev.lock
	.venv/bin/pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
