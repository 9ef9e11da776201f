# Everything here needs Go and a shell. Targets build what else they need.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOVULNDB ?= https://vuln.go.dev
BENCHSTAT := golang.org/x/perf/cmd/benchstat@latest
VERSION := $(patsubst v%,%,$(shell git describe --tags --always --dirty 2>/dev/null || echo unknown))
LDFLAGS := -s -w -X main.release=$(VERSION) -X main.gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Kubernetes versions besides the newest: the oldest that is supported, one between, and the last.
OLDER := v1.30 v1.33 v1.36
OLDEST := $(firstword $(OLDER))
# Arguments of the newest kube-apiserver that turn its feature gates the other way, for make versions.
GATES := "--apiserver-arg=feature-gates=WatchList=false,ListFromCacheSnapshot=false" \
	"--apiserver-arg=feature-gates=ShardedListAndWatch=true,CBORServingAndStorage=true"
# ConsistentListFromCache can be turned off only in a kube-apiserver that emulates 1.33, as 1.36 still can.
EMULATED := --apiserver-arg=emulated-version=1.33 --apiserver-arg=feature-gates=ConsistentListFromCache=false
VERSION_TESTS := ^Test(Oracle|Reads|Informers|InformersOfManyVersions|StreamingLists|Linearizable|WatchBookmarks)$$|^TestScenarios$$/^(one|pages|resume|transitions)$$
# A program with the informers of each of ClientGoReleases in package proxytest.
INFORMERS := $(addprefix bin/informers-,v0.37 v0.34 v0.31)
# The race detector needs a C compiler.
RACE := $(shell command -v gcc cc >/dev/null 2>&1 && echo -race)
PACKAGES := ./...
# Of a release.
PLATFORMS ?= linux/amd64 linux/arm64 darwin/amd64 darwin/arm64
SOURCES := go.mod go.sum $(filter-out %_test.go,$(wildcard *.go)) $(wildcard proxy/operate/diagnose/status_page/*) $(shell find proxy fanout framing -name '*.go' -not -name '*_test.go' 2>/dev/null)
DEVCLUSTER := $(shell find deploy/devcluster -name '*.go' -not -name '*_test.go' -not -path '*/cmd/conformance/*' -not -path '*/cmd/consistency/*' -not -path '*/cmd/kubeproxy/*' -not -path '*/cmd/pod/*' 2>/dev/null) $(addprefix deploy/devcluster/,go.mod go.sum ldflags)

.PHONY: help build devcluster run try demo test verify nightly format unit unit-again stress e2e e2e-nightly observe fallback cachesuite throughput oldest versions chaos judge soak attack deploytest statustest conformance hollow release rebuild race fuzz lint vulncheck microbench bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: bin/watchfan ## build bin/watchfan

run: ## run in front of a dev cluster, or of the kubeconfig's cluster if you agree (CLUSTER=1: yes; WATCHFAN_DEV=1: no)
	@deploy/run.sh

try: ## enrol a workload, observe it, serve it, lose watchfan, take it back: deploy/TRY.md
	@TRY=1 deploy/run.sh

demo: bin/watchfan bin/devcluster bin/bench ## 1,000 watchers and a stream of updates, live in the terminal (DURATION=30s)
	@bin/bench demo --watchfan bin/watchfan --devcluster bin/devcluster $(if $(DURATION),--duration $(DURATION))

devcluster: bin/devcluster bin/kubectl ## build the dev cluster: a real etcd and kube-apiserver (4 min the first time)

# The three tiers. CONTRIBUTING.md has their times by stage.
QUICK_E2E := ^Test(Oracle|Reads|Informers|Linearizable|Scenarios|Identity|Revocation|UpstreamRestarts|Shutdown)$$
NOT_SUITES := grep -v -e /suites/e2e -e /suites/chaos -e /suites/attack
# One set of build flags, that of bin/watchfan: nothing is compiled twice.
QUICK := CGO_ENABLED=0 GOFLAGS=-trimpath
QUICK_BINARIES := bin/watchfan bin/devcluster bin/kubectl
QUICK_ENV := WATCHFAN_BIN=$(CURDIR)/bin/watchfan WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBECTL_BIN=$(CURDIR)/bin/kubectl
# The packages with tests, of all modules.
TESTED := ./... deploy/devcluster deploy/conformance deploy/deploytest deploy/release proxy/suites/statustest proxy/suites/chaos/judge proxy/suites/e2e/cachesuite

test: $(QUICK_BINARIES) ## begin here: formatting, vet, unit tests, a dozen end-to-end tests (4 min; 12 the first time)
	@$(MAKE) --no-print-directory format
	$(QUICK) $(GO) vet $(PACKAGES)
	$(QUICK) $(GO) run ./proxy/suites/proxytest/testlint ./...
	proxy/rooms.sh
	@$(QUICK) deploy/progress.sh unit "2 minutes" $(GO) test -short -timeout 20m $$($(GO) list $(PACKAGES) | $(NOT_SUITES))
	@$(QUICK) $(QUICK_ENV) deploy/progress.sh e2e "1 minute" $(GO) test -short -timeout 20m -count=1 ./proxy/suites/e2e -run '$(QUICK_E2E)'
	@echo
	@echo "All rooms' unit tests pass. In front of a real etcd and kube-apiserver, watchers see every event once and in order,"
	@echo "reads are as new as they promise, kubectl works, rights are each client's own, and kube-apiserver's restarts stay upstream."
	@echo "Before a change lands: make verify (20 min). Before a release: make nightly. While you work: go test ./fanout."

# With one seed, each change meets the same faults. make chaos draws another seed each time.
verify: CHAOS_SEED ?= 5
verify: CHAOS_DURATION ?= 1m
verify: lint unit e2e cachesuite chaos deploytest statustest ## before a change lands, after make test: race detector, all of e2e, Kubernetes' suites, chaos (20 min)

nightly: CHAOS_DURATION ?= 1h
nightly: ATTACK_DURATION ?= 10m
nightly: N ?= 5,5,2
nightly: vulncheck rebuild unit-again e2e-nightly observe fallback versions chaos soak attack conformance hollow fuzz throughput bench stress ## before a release, on an idle machine: everything else (8 hours)

unit: ## unit tests and fuzz seeds with the race detector, tests of allocations without (4 min)
	@deploy/progress.sh unit "4 minutes" $(GO) test $(RACE) -timeout 20m $$($(GO) list $(PACKAGES) | $(NOT_SUITES))
	cd deploy/release && $(GO) test .
	$(GO) test -run Allocs ./framing ./fanout $$($(GO) list ./proxy/... | $(NOT_SUITES))

unit-again:
	for round in 1 2 3 4 5; do \
		TEST_SEED=$$RANDOM $(GO) test -count=1 -shuffle=on -timeout 1h $$($(GO) list $(PACKAGES) | $(NOT_SUITES)); \
	done

# With FLAGS, not the short tests of make test but all of make unit. RUN=. is all of e2e.
stress: $(if $(findstring e2e,$(or $(PKG),e2e)),$(QUICK_BINARIES)) ## flake rates of what make test runs: quiet, beside busy loops, with one processor (PKG=./fanout; RUN=^TestX; N=15,15,5; FLAGS=-race)
	@$(if $(FLAGS),,$(QUICK)) $(QUICK_ENV) $(GO) run ./proxy/suites/proxytest/stress -n $(or $(N),10) -run '$(RUN)' -e2e '$(QUICK_E2E)' \
		$(if $(FLAGS),-build '$(FLAGS)',-short) $(or $(PKG),$$($(GO) list $(PACKAGES) | $(NOT_SUITES)) ./proxy/suites/e2e)

e2e: bin/watchfan-race bin/watchfan bin/devcluster bin/kubectl $(INFORMERS) bin/consistency bin/controllers bin/node-clients bin/h2spec bin/kube-state-metrics bin/coredns bin/discovery bin/kubeproxy ## the built binary between a real kube-apiserver and real clients (6 min; E2EFLAGS=-http2)
	@deploy/need.sh curl:curl python3:python3 node:nodejs java:default-jdk-headless ip:iproute2 nft:nftables \
		/usr/lib/python3/dist-packages/kubernetes:python3-kubernetes
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBECTL_BIN=$(CURDIR)/bin/kubectl INFORMERS_BIN=$(CURDIR)/bin \
		CONSISTENCY_BIN=$(CURDIR)/bin/consistency CONTROLLERS_BIN=$(CURDIR)/bin/controllers NODE_CLIENTS=$(CURDIR)/bin/node-clients H2SPEC_BIN=$(CURDIR)/bin/h2spec \
		KUBE_STATE_METRICS_BIN=$(CURDIR)/bin/kube-state-metrics COREDNS_BIN=$(CURDIR)/bin/coredns DISCOVERY_BIN=$(CURDIR)/bin/discovery \
		KUBEPROXY_BIN=$(CURDIR)/bin/kubeproxy \
		deploy/progress.sh e2e "6 minutes" $(GO) test -timeout 40m -count=1 ./proxy/suites/e2e $(E2EFLAGS)
	cd deploy/devcluster && DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster $(GO) test -timeout 10m -count=1 .

# The tests of make e2e with a drawn seed and larger, those that run only at night, and all of them over HTTP/2.
# make observe, make fallback and make oldest have the others.
e2e-nightly:
	@seed=$$RANDOM; for flags in "" -http2; do TEST_SEED=$$seed $(MAKE) --no-print-directory e2e E2EFLAGS="-tags nightly -kills=1 -skip '^Test(Upgrade|ObserveFaults|ObserveCost|Flip)' $$flags"; done

observe: bin/watchfan bin/devcluster ## observed events beside faults, of which none may differ; what observing costs; flips (20 min; OBSERVED=10000000)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -tags nightly -timeout 6h -count=1 -v ./proxy/suites/e2e -run '^Test(ObserveFaults|ObserveCost|Flip)$$' -observed=$(or $(OBSERVED),10000000)

fallback: bin/watchfan bin/devcluster ## the tier is killed under 1,000 clients, and they resume at its fall-back and back (30 min; KILLS=10)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -tags nightly -timeout 3h -count=1 -v ./proxy/suites/e2e -run '^TestFallback$$' -kills=$(or $(KILLS),10)

cachesuite: bin/watchfan-race bin/devcluster ## Kubernetes' own suite for watch caches, at kube-apiserver and through watchfan (3 min)
	cd proxy/suites/e2e/cachesuite && WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 40m -count=1 -v .

throughput: bin/watchfan bin/devcluster ## that suite's benchmark of writes beside watches and lists (4 min)
	cd proxy/suites/e2e/cachesuite && WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 30m -run '^$$' -bench WriteThroughput -benchtime 1s .

oldest: bin/watchfan-race bin/devcluster bin/devcluster-$(OLDEST) ## some of e2e with the oldest kube-apiserver that is supported (3 min)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster-$(OLDEST) \
		deploy/progress.sh oldest "1 minute" $(GO) test -tags nightly -timeout 20m -count=1 ./proxy/suites/e2e -run '^Test(Oracle|Reads|Linearizable)$$'
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster OLD_DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster-$(OLDEST) \
		$(GO) test -tags nightly -timeout 20m -count=1 ./proxy/suites/e2e -run '^TestUpgrade$$'

versions: bin/watchfan-race bin/watchfan bin/devcluster bin/kubectl bin/node-clients bin/pod $(INFORMERS) $(OLDER:%=bin/devcluster-%) ## every version of kube-apiserver, and its gates the other way (25 min; CHAOS_SEED=N)
	@export WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan INFORMERS_BIN=$(CURDIR)/bin; \
	against() { \
		echo "=== $$1 $$DEVCLUSTER_ARGS"; export DEVCLUSTER_BIN=$(CURDIR)/bin/$$1; \
		deploy/progress.sh "$$1" "3 minutes" $(GO) test -tags nightly -timeout 30m -count=1 ./proxy/suites/e2e -run '$(VERSION_TESTS)'; \
		$(GO) test -timeout 20m -count=1 -v ./proxy/suites/chaos -duration=1m $(if $(CHAOS_SEED),-seed=$(CHAOS_SEED)); \
	}; \
	for version in $(OLDER); do \
		DEVCLUSTER_ARGS= against devcluster-$$version; \
		OLD_DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster-$$version DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
			$(GO) test -tags nightly -timeout 20m -count=1 ./proxy/suites/e2e -run '^TestUpgrade$$'; \
	done; \
	for gates in $(GATES); do DEVCLUSTER_ARGS=$$gates against devcluster; done; \
	DEVCLUSTER_ARGS="$(EMULATED)" against devcluster-v1.36; \
	cd deploy/deploytest && DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster-v1.36 $(GO) test -timeout 10m -count=1 . -run '^TestEnrol$$'; \
	DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster-$(OLDEST) $(GO) test -timeout 10m -count=1 . -run '^TestTokenOfOldRules$$'

chaos: bin/watchfan-race bin/devcluster $(INFORMERS) bin/judge ## faults, every event compared with etcd's history; then make judge (CHAOS_DURATION=5m; CHAOS_SEED=N)
	@rm -f bin/chaos.jsonl.gz
	status=0; \
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster INFORMERS_BIN=$(CURDIR)/bin \
		$(GO) test -timeout 3h -count=1 -v ./proxy/suites/chaos -duration=$(or $(CHAOS_DURATION),5m) $(if $(CHAOS_SEED),-seed=$(CHAOS_SEED)) \
		-record=$(CURDIR)/bin/chaos.jsonl.gz || status=1; \
	$(MAKE) --no-print-directory judge || status=1; exit $$status

judge: RECORD ?= bin/chaos.jsonl.gz
judge: bin/judge ## etcd's robustness validators judge the last make chaos (RECORD=FILE: another)
	cd proxy/suites/chaos/judge && $(GO) test -count=1 .
	@[ -e $(RECORD) ] || { echo "There is no $(RECORD): make chaos records what clients are told."; exit 1; }
	bin/judge -reports bin/judgements $(RECORD)

soak: bin/watchfan bin/devcluster ## 10,000 watches for an hour: nothing may grow (SOAK_DURATION=1h; SOAK_WATCHES=10000; SOAK_SEED=N)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 6h -count=1 -v ./proxy/suites/chaos -run '^TestSoak$$' -duration=$(or $(SOAK_DURATION),1h) \
		-watches=$(or $(SOAK_WATCHES),10000) $(if $(SOAK_SEED),-seed=$(SOAK_SEED))

attack: bin/watchfan bin/devcluster ## attackers of all kinds beside honest clients (4 min; ATTACK_DURATION=30s; ATTACK_SEED=N)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 3h -count=1 -v ./proxy/suites/attack -duration=$(or $(ATTACK_DURATION),30s) $(if $(ATTACK_SEED),-seed=$(ATTACK_SEED))

deploytest: bin/watchfan bin/devcluster bin/kubectl bin/helm bin/bench bin/prometheus bin/grafana-schema bin/node-clients bin/pod ## chart, dashboards, alerts, each command of the READMEs (3 min; UPDATE=1 rewrites METRICS.md)
	@deploy/need.sh curl:curl script:bsdutils node:nodejs /usr/lib/python3/dist-packages/kubernetes:python3-kubernetes
	cd deploy/deploytest && ../progress.sh deploytest "3 minutes" $(GO) test -timeout 10m -count=1 . $(if $(UPDATE),-update)

statustest: bin/watchfan bin/devcluster ## the status page in a real Chromium (1 min; SCREENSHOTS=DIR; UPDATE=1)
	@deploy/need.sh chromium:chromium
	cd proxy/suites/statustest && WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 5m -count=1 $(if $(SCREENSHOTS),-artifacts -outputdir $(abspath $(SCREENSHOTS))) . $(if $(UPDATE),-update)

conformance: bin/watchfan bin/devcluster bin/kubectl bin/conformance ## 149 of Kubernetes' own end-to-end specs, through watchfan (6 min)
	cd deploy && $(GO) test -timeout 20m -count=1 -v ./conformance

hollow: bin/watchfan bin/devcluster bin/kubemark ## five kubelets without containers, at kube-apiserver and through watchfan (3 min)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBEMARK_BIN=$(CURDIR)/bin/kubemark \
		$(GO) test -tags hollow -timeout 20m -count=1 -v ./proxy/suites/e2e -run '^TestHollowKubelets$$'

# Counts have no deadline. At the end of a time, Go may take its own deadline for a failure (golang/go#75804).
# An input that reaches new code is made smaller for a minute by default, and other inputs wait.
fuzz: ## every fuzz target with 50,000 inputs (10 min; FUZZTIME=1000000x)
	@failed=; for package in $$($(GO) list $(PACKAGES)); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-50000x} -fuzzminimizetime 100x $$package || failed="$$failed $$target"; \
		done; \
	done; [ -z "$$failed" ] || { echo "These targets failed:$$failed"; exit 1; }

format:
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || { echo "not gofmt-clean: $$unformatted"; exit 1; }

lint: format ## gofmt, go vet and staticcheck of all modules, imports within proxy, testlint, checksums (1 min; UPDATE=1 lowers its baseline)
	$(GO) vet $(PACKAGES)
	$(GO) vet -tags capture ./framing
	$(GO) vet -tags nightly,hollow ./proxy/suites/e2e
	cd proxy/suites/e2e/informers && $(GO) vet .
	cd proxy/suites/e2e/clients && $(GO) vet ./...
	cd proxy/suites/e2e/cachesuite && $(GO) vet .
	cd proxy/suites/chaos/judge && $(GO) vet .
	cd deploy && $(GO) vet ./...
	cd proxy/suites/statustest && $(GO) vet .
	$(GO) run ./proxy/suites/proxytest/testlint $(if $(UPDATE),-update) $(TESTED)
	$(GO) run $(STATICCHECK) $(PACKAGES)
	$(GO) run $(STATICCHECK) -tags nightly,hollow ./proxy/suites/e2e
	proxy/rooms.sh
	$(GO) mod verify

# If the database cannot be reached, the change is not to blame: the target says so, and make test
# goes on.
vulncheck: ## known vulnerabilities in code that is called (GOVULNDB=file:///DIRECTORY: a copy)
	@found=$$($(GO) run $(GOVULNCHECK) -db $(GOVULNDB) $(PACKAGES) 2>&1) && status=0 || status=$$?; echo "$$found"; \
	if grep -q "fetching vulnerabilities" <<<"$$found"; then \
		echo "Nothing was checked: the vulnerability database $(GOVULNDB) cannot be reached. Give a copy with GOVULNDB=file:///DIRECTORY."; status=0; fi; \
	exit $$status

microbench: ## go test -bench of framing and fanout
	$(GO) test -run '^$$' -bench . -benchmem ./framing ./fanout

bench: bin/watchfan bin/devcluster bin/bench ## watchfan beside kube-apiserver and a bare writev (20 min; BENCHFLAGS=--full: an hour)
	bin/bench run --watchfan bin/watchfan --devcluster bin/devcluster $(BENCHFLAGS)

release: bin/helm ## the files of a release, in bin/release (VERSION=0.1.0)
	@GO=$(GO) HELM=$(CURDIR)/bin/helm deploy/release/release.sh "$(VERSION)" bin/release $(PLATFORMS)

rebuild: bin/helm bin/watchfan bin/devcluster bin/kubectl bin/bench ## a release twice, the second compiled anew in another folder: the same bytes (10 min)
	cd deploy/deploytest && $(GO) test -timeout 40m -count=1 -v -run '^TestRelease$$' . -rebuild

clean: ## remove what was built
	rm -rf bin

bin/watchfan: $(SOURCES)
	@CGO_ENABLED=0 GO=$(GO) deploy/build.sh $@ -trimpath -ldflags '$(LDFLAGS)' .

bin/watchfan-race: $(SOURCES)
	$(GO) build $(RACE) -o $@ .

bin/bench: $(SOURCES) $(shell find bench -name '*.go' 2>/dev/null)
	@GO=$(GO) deploy/build.sh $@ ./bench

bin/devcluster: $(DEVCLUSTER)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" .

# The same source with another version's modules, which also name the version.
bin/devcluster-%: deploy/devcluster/versions/%.mod deploy/devcluster/versions/%.sum $(DEVCLUSTER)
	@cd deploy/devcluster; version=$$(awk '$$1 == "k8s.io/kubernetes" { print $$2; exit }' versions/$*.mod); \
	flags=$$(sed -E "s/(gitVersion=)[^ ]*/\1$$version/; s/(gitMinor=)[^ ]*/\1$$(cut -d. -f2 <<<$$version)/" ldflags); \
	GO=$(GO) ../build.sh $(CURDIR)/$@ -modfile=versions/$*.mod -ldflags "$$flags" .

# The package is unpacked and not installed, because installing it starts a server.
bin/prometheus:
	@mkdir -p bin; dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; chmod 755 $$dir; \
	apt-cache show prometheus >/dev/null 2>&1 || apt-get update -qq; \
	( cd $$dir && apt-get -qq -o APT::Sandbox::User=root download prometheus && dpkg -x prometheus_*.deb . ); \
	mv $$dir/usr/bin/promtool bin/promtool; mv $$dir/usr/bin/prometheus $@; touch $@

bin/grafana-schema: $(addprefix deploy/deploytest/grafana/,package.json package-lock.json)
	@deploy/need.sh npm:npm
	@mkdir -p $@; cp $^ $@; cd $@ && npm ci --silent --no-audit --no-fund && touch .

bin/node-clients: $(addprefix proxy/suites/e2e/node/,package.json package-lock.json watch.mjs)
	@deploy/need.sh npm:npm
	@mkdir -p $@; cp $^ $@; cd $@ && npm ci --silent --no-audit --no-fund && touch .

bin/conformance: $(wildcard deploy/devcluster/cmd/conformance/*) $(addprefix deploy/devcluster/,go.mod go.sum ldflags)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" ./cmd/conformance

bin/kubemark: $(addprefix deploy/devcluster/,go.mod go.sum ldflags)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" k8s.io/kubernetes/cmd/kubemark

bin/consistency bin/kubeproxy: $(wildcard $(addprefix deploy/devcluster/cmd/,consistency/*.go kubeproxy/*.go)) $(addprefix deploy/devcluster/,go.mod go.sum ldflags)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" ./cmd/$(@F)

bin/pod: $(wildcard deploy/devcluster/cmd/pod/*.go) $(addprefix deploy/devcluster/,go.mod go.sum)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags '-s -w' ./cmd/pod

# The newest release has the module's own go.mod.
bin/informers-%: $(wildcard proxy/suites/e2e/informers/*)
	@cd proxy/suites/e2e/informers && modfile=$*.mod; [ -e $$modfile ] || modfile=go.mod; \
	GO=$(GO) ../../../../deploy/build.sh $(CURDIR)/$@ -modfile=$$modfile -ldflags '-s -w' .

bin/controllers bin/discovery: $(addprefix proxy/suites/e2e/clients/,go.mod go.sum controllers/main.go discovery/main.go)
	@cd proxy/suites/e2e/clients && GO=$(GO) ../../../../deploy/build.sh $(CURDIR)/$@ -ldflags '-s -w' ./$(@F)

bin/coredns: package := github.com/coredns/coredns
bin/h2spec: package := github.com/summerwind/h2spec/cmd/h2spec
bin/kube-state-metrics: package := k8s.io/kube-state-metrics/v2
bin/coredns bin/h2spec bin/kube-state-metrics: $(addprefix proxy/suites/e2e/programs/,go.mod go.sum)
	@cd proxy/suites/e2e/programs && GO=$(GO) ../../../../deploy/build.sh $(CURDIR)/$@ -ldflags '-s -w' $(package)

bin/judge: $(wildcard proxy/suites/chaos/judge/*.go) $(addprefix proxy/suites/chaos/judge/,go.mod go.sum)
	@cd proxy/suites/chaos/judge && GO=$(GO) ../../../../deploy/build.sh $(CURDIR)/$@ -ldflags '-s -w' .

bin/helm: $(addprefix deploy/,go.mod go.sum)
	cd deploy && $(GO) build -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

bin/kubectl: $(DEVCLUSTER)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" ./cmd/kubectl
