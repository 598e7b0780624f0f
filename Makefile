# Everything is built by the Go toolchain; what a target needs beyond Go, git,
# make and a C compiler (for -race) it builds itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
TEST := cd test &&
INTEROP := cd test/interop &&
OBSERVABILITY := cd test/observability &&
# What the image is built for; its version is by default the tag of the commit, or made of its time and hash.
PLATFORMS ?= linux/amd64,linux/arm64
# Extra arguments of the end-to-end suites, for example E2E='-run TestParityOurs'.
E2E ?=

.PHONY: help build generate image test unit vet fmt-check image-test dashboard dashboard-vendor chromium e2e lint demo bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/liqo-broker-vk, its names as a plugin of kubectl, and bin/sandbox for people
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/liqo-broker-vk
	ln -sf liqo-broker-vk bin/kubectl-broker
	ln -sf liqo-broker-vk bin/kubectl_complete-broker
	$(TEST) go build -o ../bin/ ./sandbox/cmd/sandbox

generate: ## Write what is generated: from api/ deepcopy functions and CRDs, the protocol of the remote IPAM, from deploy/observability what it asks for, from deploy/chart the files of deploy/kustomize
	go generate ./api/... ./pkg/ipam/wire/...
	$(OBSERVABILITY) go run . generate
	$(TEST) go run ./deploy/generate

image: ## Build the image, an OCI archive in dist/, without a container engine (IMAGE=name:tag, PUSH=1 pushes it)
	cd tools && go run ./image -source='$(CURDIR)' -platforms='$(PLATFORMS)' -version='$(VERSION)' \
		-image='$(IMAGE)' $(if $(PUSH),-push)

test: ## Formatting, vet, unit tests with -race, the dashboard, the image, end-to-end suites on real clusters
	@$(MAKE) --no-print-directory fmt-check vet unit dashboard image-test e2e
	@echo "make test: everything passed"

fmt-check: ## Fail when a file is not gofmt's
	@files=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$files" ]; then echo "not formatted by gofmt:"; echo "$$files"; exit 1; fi

vet: ## go vet of all modules
	go vet ./...
	$(TEST) go vet ./...
	$(INTEROP) go vet ./...
	$(OBSERVABILITY) go vet ./...
	cd tools && go vet ./...

# Go does not see that files outside of a module have changed: what reads docs/ and deploy/ is not to be cached.
unit: ## Unit tests with -race, the remote IPAM against Liqo v0.9.4, the rules with Prometheus
	$(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- -race ./...
	$(TEST) $(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- -race ./audit/... ./collector/... ./sandbox/...
	$(TEST) $(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- -count=1 ./deploy/... ./exposition/...
	$(INTEROP) $(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- ./...
	$(OBSERVABILITY) $(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- -count=1 ./...

image-test: ## Build the image twice from clones, compare, unpack it and run what is in it (minutes; as root)
	cd tools && go tool gotestsum --format=pkgname --hide-summary=skipped -- -race ./...
	$(TEST) $(TOOL) gotestsum --format=pkgname --hide-summary=skipped -- -race -timeout=30m ./image/...

dashboard: chromium ## The dashboard in Chromium, against a stand-in for the catalog (SCREENSHOTS=directory)
	$(TEST) $(TOOL) gotestsum --format=testname --hide-summary=skipped -- -count=1 ./dashboard/...

dashboard-vendor: ## Fetch the dashboard's libraries anew, at the versions that vendor.sh pins (needs npm)
	pkg/catalog/dashboard/vendor.sh

chromium: ## Install Debian's Chromium, if there is none
	@command -v chromium >/dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-inter; }

e2e: chromium ## The end-to-end suites alone (E2E='-run Name' to choose)
	$(TEST) $(TOOL) gotestsum --format=testname -- -count=1 -timeout=60m ./e2e/... $(E2E)

lint: ## golangci-lint, at the version pinned in tools/go.mod
	$(TOOL) golangci-lint run ./...
	$(TEST) $(TOOL) golangci-lint run --config ../.golangci.yml ./...
	$(INTEROP) $(TOOL) golangci-lint run --config ../../.golangci.yml ./...
	$(OBSERVABILITY) $(TOOL) golangci-lint run --config ../../.golangci.yml ./...
	cd tools && go tool golangci-lint run --config ../.golangci.yml ./...

demo: ## Show a federation at work; stays up until Ctrl-C (ONCE=1 ends by itself)
	$(TEST) go run ./demo --once=$(if $(ONCE),true,false)

bench: ## Compare our virtual kubelet with Liqo's, side by side; load the catalog; time the scheduler
	$(TEST) go run ./bench
	go test -run '^$$' -bench . -benchtime=2s ./pkg/scheduler/
	go test -run '^$$' -bench Load -benchtime=6000x ./pkg/catalog/
	$(TEST) go run ./load

clean: ## Remove what was built here (not the cache of sandbox binaries)
	rm -rf bin dist
