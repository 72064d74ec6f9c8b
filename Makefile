# Every target sets up what it needs; nothing but Python 3.11, with its module venv, has to be there.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: help demo serve test fuzz lint openapi clients docs site bench image-check load lock audit sbom clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "It takes Python 3.11 with its module venv (Debian and Ubuntu: python3.11 and python3.11-venv)."; exit 1; }

# What the service itself needs, the command `rowveil`, and its kernels compiled once into the user's cache.
$(VENV)/.service: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing Rowveil into $(VENV) ..."
	$(PIP) install --require-hashes -r requirements.lock
	touch $@

# Until `pip install --editable` puts its own there, which needs what testing needs.
$(BIN)/rowveil: | $(VENV)/.service
	@printf '%s\n' '#!/bin/sh' 'export PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}"' \
		'exec "$(CURDIR)/$(BIN)/python" -P -m app "$$@"' > $@
	@chmod +x $@

$(VENV)/.kernels: $(VENV)/.service $(wildcard providers/*.py providers/*/*.py) | $(BIN)/rowveil
	@echo "compiling the kernels, which takes minutes, and is done once ..."
	$(BIN)/python -m providers.warm
	touch $@

# What testing, checking and measuring need besides.
$(VENV)/.development: requirements-dev.lock $(VENV)/.kernels
	$(PIP) install --require-hashes -r requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

demo: $(VENV)/.kernels ## run the main job on a sample table: three swaps, a rerun, the figures
	$(BIN)/python -m demo

serve: $(VENV)/.kernels ## start the service, with its console at / and Swagger UI at /docs
	$(BIN)/python -m app keys own
	$(BIN)/python -m app serve

test: lint ## check everything and run all tests
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadscope --no-loadscope-reorder

fuzz: $(VENV)/.development ## by night: 20,000 calls over the whole document, every parser and reader at length
	HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest tests/fuzz --timeout=0 --deselect tests/fuzz/test_document.py
	$(BIN)/python -m tests.fuzz --calls 20000

lint: $(VENV)/.development ## style, types, layers, and whether openapi.json is current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m app openapi --check
	$(BIN)/hadolint --config .hadolint.yaml Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml
	$(BIN)/compose-lint check --fail-on low --strict-config compose.yaml
	$(BIN)/kubernetes-validate --strict --quiet --kubernetes-version 1.31.0 $(wildcard deploy/kubernetes/[!k]*.yaml)

openapi docs: $(VENV)/.service ## write openapi/openapi.json and the services' pages from the code
	$(BIN)/python -m app openapi

clients: $(VENV)/.development ## generate the Python and TypeScript clients below clients/ (needs Node 20)
	PATH="$(abspath $(BIN)):$$PATH" clients/generate

site: $(VENV)/.development docs ## build the documentation into var/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean
	@echo "Open var/site/index.html; its search needs a server: python3 -m http.server --directory var/site"

bench: $(VENV)/.development ## our kernels beside their peers, and HTTP beside the kernel, as ratios
	$(BIN)/python -m benchmarks

image-check: $(VENV)/.development ## carry the Dockerfile out from the lock on, without an engine; needs root, takes minutes
	IMAGE_CHECK=full $(BIN)/python -m pytest tests/deploy/test_image.py

load: $(VENV)/.development ## 64 callers at once for ten minutes: p50, p99, memory
	$(BIN)/python -m benchmarks.load --minutes 10 --clients 64

lock: $(VENV)/.development ## resolve the dependencies anew
	$(PIP) install uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url -c requirements-dev.lock pyproject.toml -o requirements.lock

audit: $(VENV)/.development ## look the locked dependencies up among known vulnerabilities
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.lock || { \
		echo "Not clean: a known vulnerability is named above, or the database of them cannot be reached,"; \
		echo "in which case nothing was checked."; exit 1; }

sbom: $(VENV)/.development ## write dist/rowveil.cdx.json: what is in the service, as CycloneDX
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --output-reproducible --of JSON -o dist/rowveil.cdx.json requirements.lock

clean: ## remove the virtual environment and the embedded default's state
	rm -rf $(VENV) var
