# `make` alone lists the targets. The work is done by scripts/, cargo and `cargo xtask`.

PREFIX ?= /usr/local
CARGO_BIN := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin

# rustup puts itself in front from the next login on; servers live in sbin, which an ordinary user's PATH lacks.
export PATH := $(if $(findstring :$(CARGO_BIN):,:$(PATH):),,$(CARGO_BIN):)$(PATH):/usr/local/sbin:/usr/sbin:/sbin

.PHONY: help demo test build fmt lint setup install clean
.DEFAULT_GOAL := help

help: ## List these targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: build ## Compare FTP over a satellite link with and without Skyhaul (DEMO_SIZE=512MiB: the paper's size)
	@mkdir -p target/demo
	scripts/as-root target/release/skyhaul demo

test: setup-lint ## Check format, lints and house rules, run every test; the last line counts them
	@cargo run --quiet --release --locked --package xtask -- ci

build: setup ## Build target/release/skyhaul
	cargo build --release --locked --features bpf

fmt: ## Format the sources
	cargo fmt

lint: setup-lint ## Format check, clippy and house rules, without the tests
	@cargo run --quiet --release --locked --package xtask -- lint

setup: ## Install missing system packages and check the Rust tool chain; instant when nothing is missing
	@scripts/setup

.PHONY: setup-lint
setup-lint:
	@scripts/setup --lint

install: build ## Install under PREFIX (/usr/local), through sudo where that takes root
	@mkdir -p "$(DESTDIR)$(PREFIX)/bin" 2>/dev/null || true
	@test -w "$(DESTDIR)$(PREFIX)/bin" || as_root=scripts/as-root; \
	set -x; $$as_root install -D -m 755 target/release/skyhaul "$(DESTDIR)$(PREFIX)/bin/skyhaul"

clean: ## Remove everything that was built
	cargo clean
