# TopicBinding. Two commands do all set-up: `make demo` and `make test`. `make help` lists the rest.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules --no-print-directory

PYTHON := .venv/bin/python
LOCAL := python3 deploy/local
SOURCES := operator sparkjob tests deploy/local

.PHONY: help demo test up down clean-cache status \
        test-unit test-integration test-e2e test-browser bench lint format generate lock

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 18

demo: ## From nothing to the page with live tables and a swap to watch
	@$(LOCAL) demo

test: ## Every test, in layers, with one summary
	@python3 -m tests.run lint unit integration e2e browser

up: ## The local kind cluster with Kafka, our images and the operator
	@$(LOCAL) up

down: ## Remove everything that `make up`, `make demo` and `make test` made, except the caches
	@$(LOCAL) down

clean-cache: ## Remove the caches as well
	@$(LOCAL) clean-cache

status: ## What is there, and what `make up` would do
	@$(LOCAL) status

test-unit: ## Unit tests (seconds, no network)
	@python3 -m tests.run unit

test-integration: ## Against a real Kafka, a real API server and real Spark
	@python3 -m tests.run integration

test-e2e: ## On the kind cluster with the built images
	@python3 -m tests.run e2e

test-browser: ## A real Chromium against the cluster
	@python3 -m tests.run browser

bench: ## Benchmarks: tables of figures, no verdicts
	@python3 -m tests.run bench

lint: ## ruff, mypy strict, import-linter, drift of generated files, helm lint
	@python3 -m tests.run lint

format: .venv/.ready ## Format the sources
	@.venv/bin/ruff format -q $(SOURCES) && .venv/bin/ruff check -q --fix $(SOURCES)

generate: .venv/.ready ## Write the generated files: CRDs, their copies, install.yaml, the API reference
	@$(PYTHON) -m tests.generate write

lock: .venv/.ready ## Resolve the locked requirements anew from pyproject.toml
	@deploy/local/lock-requirements

.venv/.ready: requirements/dev.txt
	@deploy/local/python-environment
