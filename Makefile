# Everything is built by the Go toolchain; what a target needs beyond Go, git,
# make and a C compiler (for -race) it builds itself.
SHELL := /bin/bash
.DEFAULT_GOAL := help
# Without cgo, but for -race, which needs it: what programs, tests and linters share is compiled once.
export CGO_ENABLED := 0
with-race := CGO_ENABLED=1
TOOL := go tool -modfile=$(CURDIR)/tools/go.mod
TEST := cd test &&
INTEROP := cd test/interop &&
OBSERVABILITY := cd test/observability &&
KUBELET_V0 := cd kubelet-v0 &&
# What the image is built for; its version is by default the tag of the commit, or made of its time and hash.
PLATFORMS ?= linux/amd64,linux/arm64
# Extra arguments of the end-to-end suites, for example E2E='-run TestParityOurs'.
E2E ?=
# Extra arguments of the suite whose packets are real.
PACKETS ?=
# Extra arguments of the suite whose containers are real.
CONTAINERS ?=
# Extra arguments of the suite that follows the documents.
INSTALLATION ?=
# How long make fuzz searches, for new paths and for the slowest filters each, and how many expressions it tries besides.
FUZZ_TIME ?= 1h
FUZZ_INPUTS ?= 100000000
# How many histories make histories lets happen, and the first seed.
N ?= 100000
SEED ?= 0
# Which histories make chaos lets happen, until how many minutes have passed (0 is no limit); or which faults by themselves, N (3)
# times each.
SEEDS ?= 0-4
MINUTES ?= 0
FAULT ?=
KUBELETS ?=
# Sides and packages of make liqo-e2e; default all.
SIDES ?=
PACKAGES ?=
# The version of the virtual kubelets of make older: the last tag before this commit, or else the commit before.
BEFORE ?= $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null || git rev-parse HEAD^)
# A hash of the files on which make stock depends, as they are in the working tree.
stock-files = git ls-files go.mod test/go.mod 'test/e2e/*.go' 'test/sandbox/*.go' 'test/kubeletapi/*.go' | git hash-object --stdin-paths | git hash-object --stdin
# The steps of make test. go vet is one of the linters.
STEPS := fmt-check unit dashboard image-test e2e small-suites
# What tests are built without: go vet, which is one of the linters, and the tables of debuggers, which take a third of linking.
lean := -vet=off -ldflags=-w
# gotestsum with the name of its results, which make test reports, and the arguments of go test.
gotestsum = gotestsum --jsonfile='$(CURDIR)/dist/durations/$(1).jsonl' $(2)

# The versions of make matrix, which the other tests do not have, and its scenarios.
MATRIX ?= LIQO=v1.1.2 KUBERNETES=v1.36.3 KUBERNETES=v1.37.2
matrix-tests := ^(TestLaterKubernetes|TestParityStock|TestParityOurs)$$|^TestStockConsumer$$/^the_guard_and_the_manifests$$|^TestFederation$$/^(chain|faults)$$/^(pods_show_the_addresses|a_Service_spans|the_broker_offers|pods_leave_an_unreachable)

# A line for a module that go list -u has found a newer version of, with all its versions. A replaced one is what its replacement is.
newer = {{if and .Update (not .Replace)}}{{.Path}} {{.Version}} {{.Update.Version}} {{if .Indirect}}(indirect){{else}}-{{end}} {{join .Versions " "}}{{end}}
# Of that line, the newest version, and the newest patch of the present one, if there is one. With PATCH=1 only modules with a newer patch.
define patches
{ split($$2, v, "."); series = v[1] "." v[2] "."; patch = ""; past = 0; \
  for (i = 5; i <= NF; i++) { if (past && index($$i, series) == 1 && $$i !~ /-/) patch = $$i; if ($$i == $$2) past = 1 } \
  if (patch || !"$(PATCH)") print "  " $$1, $$2, "→", $$3, (patch ? "(patch " patch ")" : ""), ($$4 == "-" ? "" : $$4) }
endef

.PHONY: help build generate image release check test durations unit random histories windtunnel chaos older mutants fuzz fmt-check image-test dashboard picture dashboard-vendor chromium e2e liqo-v0 small-suites stock stock-unless-passed matrix liqo-e2e packets containers installation containerd nftables hostile attack lint words outdated demo bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## Build bin/liqo-broker-vk, its names as a plugin of kubectl, and bin/sandbox for people
	go build -o bin/ ./cmd/liqo-broker-vk
	$(KUBELET_V0) go build -o ../bin/liqo-broker-vk-v0 .
	ln -sf liqo-broker-vk bin/kubectl-broker
	ln -sf liqo-broker-vk bin/kubectl_complete-broker
	$(TEST) go build -o ../bin/ ./sandbox/cmd/sandbox

generate: ## Write what is generated: from api/ deepcopy functions and CRDs, the protocol of the remote IPAM, the table of the scores, from deploy/observability what it asks for, from deploy/chart the files of deploy/kustomize
	go generate ./api/... ./pkg/ipam/wire/... ./pkg/scheduler/score/...
	$(OBSERVABILITY) go run . generate
	$(TEST) go run ./deploy/generate

image: ## Build the image, an OCI archive in dist/, without a container engine (IMAGE=name:tag, PUSH=1 pushes it)
	cd tools && go run ./release -source='$(CURDIR)' -platforms='$(PLATFORMS)' -version='$(VERSION)' \
		-image='$(IMAGE)' $(if $(PUSH),-push)

release: ## Make the files of release VERSION in dist/release, from a clean tree with that tag (IMAGE=name, PUSH=1 pushes image and chart, CHART=its name, KEY=file signs)
	cd tools && go run ./release -source='$(CURDIR)' -platforms='$(PLATFORMS)' -version='$(VERSION)' \
		-image='$(IMAGE)' -artifacts='$(CURDIR)/dist/release' $(if $(CHART),-chart='$(CHART)') $(if $(KEY),-key='$(KEY)') $(if $(PUSH),-push)

check: ## Before every commit: formatting, the linters for what changed since main, unit tests (SINCE=commit)
	@cd tools && go run ./check -directory='$(CURDIR)' $(if $(SINCE),-since='$(SINCE)')

test: ## Formatting, unit tests with -race, the dashboard, the image, end-to-end suites on real clusters, real packets; how long each took
	@cd tools && PACKETS='-short $(PACKETS)' go run ./durations run -directory='$(CURDIR)' $(STEPS)
	@echo "make test: everything passed"

durations: ## Keep the durations of the last make test in test/durations.json, with which the next ones are compared
	@cd tools && go run ./durations record -directory='$(CURDIR)'

fmt-check: ## Fail when a file is not gofmt's
	@files=$$(git ls-files '*.go' | xargs gofmt -l); if [ -n "$$files" ]; then echo "not formatted by gofmt:"; echo "$$files"; exit 1; fi

# Go does not see that files outside of a module have changed: what reads docs/, deploy/ or sources of another module, or builds
# from a clone, is not to be cached.
unit: ## Unit tests, those of the product with -race, the remote IPAM against Liqo v0.9.4, the rules with Prometheus
	$(with-race) $(TOOL) $(call gotestsum,unit,--format=pkgname --hide-summary=skipped) -- $(lean) -race ./...
	$(TOOL) $(call gotestsum,unit-slowest,--format=pkgname --hide-summary=skipped) -- $(lean) -run '^TestSlowestFilters$$' ./pkg/scheduler/
	GOGC=400 FUZZ_INPUTS=100000 $(TOOL) $(call gotestsum,unit-inputs,--format=pkgname --hide-summary=skipped) -- $(lean) -run '^TestMutatedExpressions$$' ./pkg/cel/
	$(TEST) HISTORIES=500 $(TOOL) $(call gotestsum,unit-histories,--format=pkgname --hide-summary=skipped) -- $(lean) -timeout=30m ./histories/...
	$(TEST) $(TOOL) $(call gotestsum,unit-test,--format=pkgname --hide-summary=skipped) -- $(lean) ./audit ./bench ./chaos ./collector ./reflection ./sandbox ./sandbox/internal/...
	$(TEST) $(TOOL) $(call gotestsum,unit-deploy,--format=pkgname --hide-summary=skipped) -- $(lean) -count=1 ./deploy/... ./exposition/... ./histories/mutants ./suites
	$(INTEROP) $(TOOL) $(call gotestsum,unit-interop,--format=pkgname --hide-summary=skipped) -- $(lean) -count=1 ./...
	$(KUBELET_V0) $(with-race) $(TOOL) $(call gotestsum,unit-kubelet-v0,--format=pkgname --hide-summary=skipped) -- $(lean) -race ./...
	$(OBSERVABILITY) $(TOOL) $(call gotestsum,unit-observability,--format=pkgname --hide-summary=skipped) -- $(lean) -count=1 ./...

random: ## What .ci/run does after make test: 3,000 more histories of the broker, and 600,000 expressions at random
	$(MAKE) histories N=3000 SEED=500
	GOGC=400 FUZZ_FROM=100000 FUZZ_INPUTS=600000 go test -count=1 -timeout=0 -run '^TestMutatedExpressions$$' ./pkg/cel/

histories: ## Let N (100000) histories of the broker happen in virtual time, from SEED (0) on, and judge them
	$(TEST) go test -v -count=1 -timeout=0 -run '^TestHistories$$' ./histories -histories=$(N) -seed=$(SEED)

windtunnel: ## Simulate a day of 100 providers and 100,000 pods on one core, and compare time and memory with their bounds
	WINDTUNNEL=1 go test -v -count=1 -timeout=30m -run '^TestWindTunnel$$' ./pkg/simulate

chaos: ## Let random histories happen to a federation of real clusters, and judge them (SEEDS=0-4 MINUTES=60, or FAULT='provider hangs' N=3, or FAULT=all; KUBELETS=commit has the virtual kubelets be of another version)
	$(if $(KUBELETS),rm -rf dist/other && mkdir -p dist/other && git archive '$(KUBELETS)' | tar -x -C dist/other && \
		cd dist/other && go build -o ../virtual-kubelet ./cmd/liqo-broker-vk && rm -r ../other)
	mkdir -p dist
	$(TEST) go run ./chaos/cmd -seeds='$(SEEDS)' -minutes='$(MINUTES)' -fault="$(FAULT)" $(if $(SHORT),-short) \
		-repeat=$(if $(filter command,$(origin N)),$(N),3) -output='$(CURDIR)/dist/chaos.json' \
		$(if $(KUBELETS),-kubelet='$(CURDIR)/dist/virtual-kubelet')

older: ## Let faults happen to a broker of this version with virtual kubelets of the version before (BEFORE=commit), as during an upgrade
	$(MAKE) chaos SHORT=1 KUBELETS='$(BEFORE)'

mutants: ## Bring known faults back into the broker, one after the other, and show which the histories find
	$(TEST) go run ./histories/mutants

fuzz: ## FUZZ_INPUTS expressions at random (10^8), then searches for new paths and for the slowest, FUZZ_TIME each (1h); what is found goes to testdata/
	GOGC=400 FUZZ_INPUTS=$(FUZZ_INPUTS) go test -v -count=1 -timeout=0 -run '^TestMutatedExpressions$$' ./pkg/cel/
	go test -run '^$$' -fuzz '^FuzzExpressions$$' -fuzztime=$(FUZZ_TIME) -fuzzminimizetime=100x ./pkg/cel/
	UPDATE=1 SLOWEST_TIME=$(FUZZ_TIME) go test -v -timeout=0 -run '^TestSlowestFilters$$' ./pkg/scheduler/

image-test: ## Build the image twice from clones, compare, unpack it and run what is in it (minutes; as root)
	cd tools && $(with-race) go tool $(call gotestsum,tools,--format=pkgname --hide-summary=skipped) -- $(lean) -race ./...
	$(TEST) $(TOOL) $(call gotestsum,image-test,--format=pkgname --hide-summary=skipped) -- $(lean) -count=1 -timeout=30m ./image/...

dashboard: chromium ## The dashboard in Chromium, against a stand-in for the catalog (SCREENSHOTS=directory)
	$(TEST) $(TOOL) $(call gotestsum,dashboard,--format=testname --hide-summary=skipped) -- $(lean) -count=1 ./dashboard/...

picture: chromium ## Write docs/dashboard.png, the dashboard in the README
	$(TEST) SCREENSHOTS='$(CURDIR)/docs' go test -count=1 -run '^TestPictureOfTheREADME$$' ./dashboard/

dashboard-vendor: ## Fetch the dashboard's libraries anew, at the versions that vendor.sh pins (needs npm)
	pkg/catalog/dashboard/vendor.sh

chromium: ## Install Debian's Chromium, if there is none
	@command -v chromium >/dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium fonts-inter; }

e2e: chromium ## The end-to-end suites alone, but that with Liqo v0.9.4 (E2E='-run Name' to choose)
	$(TEST) $(TOOL) $(call gotestsum,e2e,--format=testname) -- $(lean) -count=1 -parallel=12 -timeout=75m ./e2e $(E2E)

liqo-v0: ## The suite with Liqo v0.9.4
	$(TEST) $(TOOL) $(call gotestsum,liqo-v0,--format=testname) -- $(lean) -count=1 -timeout=30m ./e2e/liqov0

small-suites:
	@$(MAKE) --no-print-directory -j2 packets liqo-v0

# The result depends on versions, the scenarios and the sandbox, and not on the product.
stock: ## The parity suite against Liqo's own virtual kubelet, which shows that its scenarios ask for what Liqo does; test/stock.passed says for which files it has passed
	@mkdir -p dist/durations && $(stock-files) > dist/stock.files
	$(TEST) STOCK=1 $(TOOL) $(call gotestsum,stock,--format=testname) -- $(lean) -count=1 -timeout=40m ./e2e -run '^TestParityStock$$'
	@grep -q '"Action":"pass".*"Test":"TestParityStock"' dist/durations/stock.jsonl $(if $(LIQO),,&& mv dist/stock.files test/stock.passed)

stock-unless-passed: ## make stock, unless it has passed with these files
	@if [ "$$($(stock-files))" = "$$(cat test/stock.passed 2>/dev/null)" ]; then echo 'make stock has passed with these files'; \
		else $(MAKE) --no-print-directory stock; fi

matrix: ## Scenarios with each other version of Liqo and Kubernetes: parity of Liqo's virtual kubelet and ours, a chain, offers, a failover, the guard; writes docs/compatibility.md (MATRIX='LIQO=v1.1.2')
	rm -rf dist/matrix && mkdir -p dist/matrix
	$(TEST) for version in $(MATRIX); do env STOCK=1 $$version $(TOOL) gotestsum --format=testname \
		--jsonfile='$(CURDIR)'/dist/matrix/$$version.jsonl -- $(lean) -count=1 -timeout=90m ./e2e -run '$(matrix-tests)' \
		|| [ $$? -le 128 ] || exit 1; done
	cd tools && go run ./matrix -directory='$(CURDIR)'

liqo-e2e: ## The suites of Liqo and of virtual-kubelet, and specs of Kubernetes' conformance, against Liqo's virtual kubelet, ours in its place, and the broker (hours; SIDES=stock,drop-in,chain,broker PACKAGES=reflection TOGETHER=2)
	$(TEST) go run ./suites -sides='$(SIDES)' -packages='$(PACKAGES)' -together=$(or $(TOGETHER),1)

packets: nftables ## Requests through Liqo's own data plane in network namespaces; as root, else skipped (PACKETS='-run Name' to choose)
	$(TEST) $(TOOL) $(call gotestsum,packets,--format=testname) -- $(lean) -count=1 -timeout=30m -v ./packets/... $(PACKETS)

containers: containerd ## Pods in real containers, over two hops: a kubelet and containerd in each cluster; as root with cgroups v1, else skipped (CONTAINERS='-run Name' to choose)
	$(TEST) $(TOOL) $(call gotestsum,containers,--format=testname) -- $(lean) -count=1 -timeout=20m ./containers/... $(CONTAINERS)

installation: containerd ## README.md and docs/install.md as a reader follows them, with Helm, liqoctl and real containers (INSTALLATION='-run Name' to choose)
	$(TEST) $(TOOL) $(call gotestsum,installation,--format=testname) -- $(lean) -count=1 -timeout=40m ./install/... $(INSTALLATION)

# After nftables: two installations at once would wait for one lock, and fail.
containerd: nftables ## Install Debian's containerd, runc, CNI plugins and busybox, if there are none; without them the suite with real containers is skipped
	@{ command -v containerd && command -v runc && command -v busybox && test -x /usr/lib/cni/ptp; } >/dev/null || { apt-get update && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y --no-remove --no-install-recommends containerd runc containernetworking-plugins busybox-static; } \
		|| echo 'there is no containerd: pods in real containers are skipped'

nftables: ## Install Debian's nft, if there is none; without it the suite whose packets are real is skipped
	@command -v nft >/dev/null || { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends nftables; } \
		|| echo 'there is no nft: requests through Liqo'"'"'s own data plane are skipped'

hostile: chromium ## The end-to-end scenarios of attackers: a tenant, a consumer, a provider, a stranger
	$(TEST) go test -v -count=1 -parallel=12 -timeout=60m -run '^TestFederation$$/^(side_by_side|chain|placing|faults)$$/hostile' ./e2e/
	$(TEST) go test -v -count=1 -timeout=60m -run '^TestStockConsumer$$/^the_guard_and_the_manifests$$' ./e2e/

attack: ## A hostile consumer at full size, beside an honest one: 3,000 pods that fit nowhere, 504 costly filters, 200 followed logs, 500 silent connections; before, 30,000 random writes of each party
	$(TEST) WRITES=$(or $(WRITES),30000) SEED=$(SEED) go test -v -count=1 -timeout=60m -run '^TestRandomWritesStayWithinTheBounds$$' ./deploy
	$(TEST) ATTACK=full go test -v -count=1 -timeout=60m -run '^TestFederation$$/^placing$$/(hostile_filters|a_hostile_flood)' ./e2e/

words: ## Count wordings that are hard to read in comments and documents, against the ceilings in tools/words/words.txt
	@cd tools && go run ./words -directory='$(CURDIR)'

lint: words ## golangci-lint, at the version pinned in tools/go.mod, actionlint, and the wordings
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes=
	$(TOOL) golangci-lint run ./...
	$(TEST) $(TOOL) golangci-lint run --config ../.golangci.yml ./...
	$(INTEROP) $(TOOL) golangci-lint run --config ../../.golangci.yml ./...
	$(KUBELET_V0) $(TOOL) golangci-lint run --config ../.golangci.yml ./...
	$(OBSERVABILITY) $(TOOL) golangci-lint run --config ../../.golangci.yml ./...
	cd tools && go tool golangci-lint run --config ../.golangci.yml ./...

outdated: ## List the modules that have a newer version, and their newest patch (asks the module proxy about each; PATCH=1 for those behind a patch, MODULES=path)
	@for module in . kubelet-v0 test test/interop test/observability tools; do \
		(cd $$module && echo "$$module:" && go list -e -m -u -versions -f '$(newer)' $(or $(MODULES),all) | sort -u | awk '$(patches)') || exit 1; \
	done

demo: ## Show a federation at work; stays up until Ctrl-C (ONCE=1 ends by itself)
	$(TEST) go run ./demo --once=$(if $(ONCE),true,false)

bench: ## Measure virtual kubelet and broker beside Liqo's own, the scheduler and the catalog; B=pod,nodes for some parts (go run ./bench -list in test/), ARGS for flags
	$(TEST) go run ./bench -parts='$(B)' $(ARGS)

clean: ## Remove what was built here (not the cache of sandbox binaries)
	rm -rf bin dist
