# `make install` builds .venv once and again only when the pins change; every other target calls it.
SHELL := /bin/bash
PY := .venv/bin/python
ARGS ?=

.PHONY: help install demo test lint bench clean

help:
	@echo "make install | demo [ARGS=...] | test [ARGS=...] | lint | bench [ARGS=...] | clean"

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

clean:
	rm -rf .venv build dist *.egg-info .pbkv
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
