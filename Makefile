# `make install` builds .venv once and again only when the pins change; every other target calls it.
SHELL := /bin/bash
PY := .venv/bin/python
ARGS ?=
SECONDS ?= 1800

.PHONY: help install demo test lint bench same-answers rank-agreement soak clean

help:
	@echo "make install | demo [ARGS=...] | test [ARGS=...] | lint | bench [ARGS=...] | same-answers | rank-agreement | soak [SECONDS=...] | clean"

install:
	@scripts/install

demo: install
	@.venv/bin/pbkv demo $(ARGS)

test: install
	$(PY) -m pytest -n 2 --dist loadgroup $(ARGS)

lint: install
	.venv/bin/ruff check .
	.venv/bin/lint-imports --no-cache --no-logo
	.venv/bin/pyright

bench: install
	$(PY) -m tests.benchmarks $(ARGS)

same-answers: install
	$(PY) -m tests.server.answers $(ARGS)

rank-agreement: install
	$(PY) -m tests.server.ranks $(ARGS)

soak: install
	$(PY) -m tests.server.soak --seconds $(SECONDS) $(ARGS)

clean:
	rm -rf .venv build dist *.egg-info .pbkv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
