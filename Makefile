# Every target installs its own dependencies. Requirement: Python 3.11 with its module venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Installs with uv (installed by pip), or with pip if uv fails; both verify hashes.
INSTALL := $(BIN)/python tools/install.py

# Processes read modules compiled by earlier ones, which saves a fifth of the time to import the service.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo serve test test-quick long-tests tests simulate fuzz lint openapi clients docs pictures site bench papers image-check processor-check load lock audit sbom anonymeter contract clean

help: ## list the targets
	@grep -hE '^[a-z -]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Python 3.11 with its module venv is required (Debian and Ubuntu: python3.11 and python3.11-venv)."; exit 1; }

# Dependencies of the service. The command `rowveil` and the compiled kernels are targets of their own: the service
# compiles missing kernels in the background, while tests have them compiled before.
$(VENV)/.service: requirements.lock requirements-uv.lock pyproject.toml | $(BIN)/python
	@echo "installing Rowveil into $(VENV) ..."
	$(INSTALL) requirements.lock
	touch $@

# Wrapper script for a service-only environment; the editable install replaces it.
$(BIN)/rowveil: | $(VENV)/.service
	@printf '%s\n' '#!/bin/sh' 'export PYTHONPATH="$(CURDIR)$${PYTHONPATH:+:$$PYTHONPATH}"' \
		'exec "$(CURDIR)/$(BIN)/python" -P -m app "$$@"' > $@
	@chmod +x $@

$(VENV)/.kernels: $(VENV)/.service $(wildcard providers/*.py providers/*/*.py providers/*/*/*.py) | $(BIN)/rowveil
	@echo "compiling the kernels once ..."
	$(BIN)/python -m providers.warm
	touch $@

# Development dependencies: tests, linters, benchmarks.
$(VENV)/.development: requirements-dev.lock $(VENV)/.kernels
	$(INSTALL) requirements-dev.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	touch $@

demo: $(BIN)/rowveil ## run every service on a sample table over HTTP, report, compare and rerun
	$(BIN)/python -m demo

serve: $(BIN)/rowveil ## start the service, with its console at / and Swagger UI at /docs
	$(BIN)/python -m app keys own
	$(BIN)/python -m app serve

test: $(VENV)/.development ## run all checks and tests
	@$(MAKE) --no-print-directory --jobs=2 lint tests

# Compiled test modules: on a fresh clone each of the test processes would compile all of them at the same time.
$(VENV)/.tests: | $(VENV)/.development
	@$(BIN)/python -m pytest --collect-only --quiet >/dev/null 2>&1 || true
	@touch $@

tests: $(VENV)/.development $(VENV)/.tests # what `make test` runs next to the checks
	$(BIN)/python -m pytest --numprocesses=auto --dist=loadscope --no-loadscope-reorder

# Tests that start no process, in one test process a core.
WITHOUT_SERVICES = HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest --numprocesses=logical --dist=worksteal \
	tests/unit tests/property tests/golden

test-quick: $(VENV)/.development ## run short tests that need no service (90 seconds)
	$(WITHOUT_SERVICES) -m "not slow and not faults and not long"

long-tests: $(VENV)/.development ## record the tests that are too long for `make test-quick` (minutes)
	$(WITHOUT_SERVICES) -m "not slow and not faults" -p tests.long_tests

simulate: $(VENV)/.development ## run 100,000 simulated schedules of a job's life; `make test` runs 4,000 (minutes)
	SIMULATED_SCHEDULES=100000 $(BIN)/python -m pytest --numprocesses=logical --dist=worksteal \
		tests/simulation/test_simulation.py -k no_schedule_breaks

fuzz: $(VENV)/.development ## nightly fuzzing: 20,000 API calls generated from the schema, and all parsers
	HYPOTHESIS_PROFILE=night $(BIN)/python -m pytest tests/fuzz --timeout=0 --deselect tests/fuzz/test_document.py
	$(BIN)/python -m tests.fuzz --calls 20000

lint: $(VENV)/.development ## check style, types, layers, and that openapi.json and derived pages are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m website --check
	$(BIN)/hadolint --config .hadolint.yaml Dockerfile
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.compose-spec compose.yaml compose.s3.yaml
	$(BIN)/compose-lint check --fail-on low --strict-config compose.yaml compose.s3.yaml
	$(BIN)/kubernetes-validate --strict --quiet --kubernetes-version 1.31.0 $(wildcard deploy/kubernetes*/[!k]*.yaml)

openapi docs: $(VENV)/.service ## write openapi/openapi.json and all pages derived from the code
	$(BIN)/python -m website

clients: $(VENV)/.development ## generate the Python and TypeScript clients below clients/ (needs Node 20)
	PATH="$(abspath $(BIN)):$$PATH" clients/generate

pictures: $(VENV)/.development ## take the pictures of the documentation again (needs Chromium)
	$(BIN)/python -m website.pictures

site: $(VENV)/.development docs ## build the documentation into var/site; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean
	@echo "Open var/site/index.html; its search needs a server: python3 -m http.server --directory var/site"

bench: $(VENV)/.development ## benchmark kernels against other libraries, and HTTP against the kernel
	$(BIN)/python -m benchmarks

papers: $(VENV)/.development ## run the papers' experiments and the attacks of the services' pages again; ONLY=002, CHECK=1 compares (30 minutes)
	$(if $(ONLY)$(CHECK),,$(BIN)/python -m website.papers)
	$(BIN)/python -m benchmarks.papers $(ONLY) $(if $(CHECK),--check)
	$(BIN)/python -m website

image-check: $(VENV)/.development ## run the Dockerfile's steps without a container engine (root, minutes)
	IMAGE_CHECK=full $(BIN)/python -m pytest tests/deploy/test_image.py

processor-check: $(VENV)/.development ## run kernels of the image's baseline on an emulated processor (needs qemu-user)
	$(BIN)/python -m tests.deploy.other_processor

load: $(VENV)/.development ## load-test with 64 concurrent clients for ten minutes: p50, p99, memory
	$(BIN)/python -m benchmarks.http.load --minutes 10 --clients 64

lock: $(VENV)/.development ## resolve the dependencies again and write the lock files
	$(PIP) install --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --group install -o requirements-uv.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --extra dev pyproject.toml -o requirements-dev.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url -c requirements-dev.lock pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --group anonymeter -o requirements-anonymeter.lock
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --group contract -o requirements-contract.lock

audit: $(VENV)/.development ## check the locked dependencies for known vulnerabilities
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r requirements.lock -r requirements-uv.lock || { \
		echo "Failed: a known vulnerability is listed above, or the vulnerability database is unreachable"; \
		echo "and nothing was checked."; exit 1; }

sbom: $(VENV)/.development ## write the software bill of materials, dist/rowveil.cdx.json (CycloneDX)
	mkdir -p dist
	$(BIN)/cyclonedx-py requirements --output-reproducible --of JSON -o dist/rowveil.cdx.json requirements.lock

.venv-anonymeter/.installed: requirements-anonymeter.lock
	$(PYTHON) -m venv .venv-anonymeter
	.venv-anonymeter/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	touch $@

anonymeter: $(VENV)/.development .venv-anonymeter/.installed ## compare the attacks with anonymeter, in an environment of its own
	$(BIN)/python -m pytest tests/peers

.venv-contract/.installed: requirements-contract.lock tools/contract/package-lock.json
	$(PYTHON) -m venv .venv-contract
	.venv-contract/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r $<
	cd tools/contract && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	touch $@

contract: $(VENV)/.development .venv-contract/.installed ## lint openapi.json with Spectral and Redocly, and try three more client generators (needs Node 20)
	$(BIN)/python -m pytest tests/clients/test_contract.py

clean: ## remove the virtual environment and the local state in var/
	rm -rf $(VENV) var
