# Everything is built by the Go toolchain; what a target needs beyond Go, git,
# make and a C compiler (for -race) it builds itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GOLANGCI := go tool -modfile=$(CURDIR)/tools/go.mod golangci-lint
TEST := cd test &&
# Extra arguments of the end-to-end suites, for example E2E='-run TestParityOurs'.
E2E ?=

.PHONY: help build image test unit vet fmt-check e2e lint demo bench sandbox tidy clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/liqo-broker-vk, and bin/sandbox for people
	CGO_ENABLED=0 go build -o bin/ ./cmd/liqo-broker-vk
	$(TEST) go build -o ../bin/ ./sandbox/cmd/sandbox

image: ## Build the container image (needs a container engine; IMAGE=name:tag)
	docker build -t $${IMAGE:-liqo-broker-vk:dev} .

test: fmt-check vet unit e2e ## Formatting, vet, unit tests with -race, end-to-end suites on real clusters

fmt-check: ## Fail when a file is not gofmt's
	@files=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$files" ]; then echo "not formatted by gofmt:"; echo "$$files"; exit 1; fi

vet: ## go vet of both modules
	go vet ./...
	$(TEST) go vet ./...

unit: ## Unit tests with -race
	go test -race ./...
	$(TEST) go test -race ./sandbox/...

e2e: ## The end-to-end suites alone (E2E='-run Name' to choose)
	@mkdir -p bin
	$(TEST) go test -v -count=1 -timeout 60m ./e2e/... $(E2E) 2>&1 | tee ../bin/e2e.log | grep -E '^\s*(---|FAIL|PASS|ok|panic)|took|: ready|up after' ; exit $${PIPESTATUS[0]}

lint: ## golangci-lint, at the version pinned in tools/go.mod
	$(GOLANGCI) run ./...
	$(TEST) $(GOLANGCI) run --config ../.golangci.yml ./...

demo: ## Show a federation at work; stays up until Ctrl-C (ONCE=1 ends by itself)
	$(TEST) go run ./demo --once=$(if $(ONCE),true,false)

bench: ## Compare our virtual kubelet with Liqo's, side by side
	$(TEST) go run ./bench

clean: ## Remove what was built here (not the cache of sandbox binaries)
	rm -rf bin
