# Everything here needs Go and a shell. Targets build what else they need.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.8.0
GOVULNDB ?= https://vuln.go.dev
BENCHSTAT := golang.org/x/perf/cmd/benchstat@latest
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.release=$(VERSION) -X main.gitCommit=$(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# The race detector needs a C compiler.
RACE := $(shell command -v gcc cc >/dev/null 2>&1 && echo -race)
PACKAGES := ./...
SOURCES := go.mod go.sum $(filter-out %_test.go,$(wildcard *.go)) $(wildcard proxy/diagnose/status_page/*) $(shell find proxy fanout framing -name '*.go' -not -name '*_test.go' 2>/dev/null)
DEVCLUSTER := $(shell find deploy/devcluster -name '*.go' -not -name '*_test.go' -not -path '*/cmd/conformance/*' 2>/dev/null) $(addprefix deploy/devcluster/,go.mod go.sum ldflags)

.PHONY: help build devcluster run demo test unit e2e chaos attack deploytest statustest conformance hollow race fuzz fuzz-short lint vulncheck microbench bench clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

build: bin/watchfan ## build bin/watchfan

run: ## run in front of a dev cluster, or of the kubeconfig's cluster if you agree (CLUSTER=1: yes; WATCHFAN_DEV=1: no)
	@deploy/run.sh

demo: bin/watchfan bin/devcluster bin/bench ## 1,000 watchers and a stream of updates, live in the terminal (DURATION=30s to limit it)
	@bin/bench demo --watchfan bin/watchfan --devcluster bin/devcluster $(if $(DURATION),--duration $(DURATION))

devcluster: bin/devcluster bin/kubectl ## build the dev cluster: a real etcd and kube-apiserver (4 minutes the first time)

# With one seed, each change meets the same faults and attacks. make chaos and make attack draw
# another seed each time.
test: CHAOS_SEED ?= 5
test: ATTACK_SEED ?= 5
test: lint vulncheck unit fuzz-short e2e chaos attack deploytest statustest ## everything: lint, vulncheck, unit, 500 runs of each fuzz target, e2e, five minutes of chaos, half a minute of attack, deploytest, statustest

unit: ## unit tests and fuzz seeds with the race detector, tests of allocations without
	$(GO) test $(RACE) -timeout 10m $$($(GO) list $(PACKAGES) | grep -v -e /proxy/e2e -e /proxy/chaos -e /proxy/attack)
	$(GO) test -run Allocs ./framing ./fanout $$($(GO) list ./proxy/... | grep -v -e /proxy/e2e -e /proxy/chaos -e /proxy/attack)

e2e: bin/watchfan-race bin/watchfan bin/devcluster bin/kubectl bin/controllers bin/node-clients bin/h2spec ## end-to-end suite: the built binary between a real kube-apiserver and real clients (E2EFLAGS=-http2: all of them over HTTP/2)
	@deploy/need.sh curl:curl python3:python3 node:nodejs java:default-jdk-headless h2load:nghttp2-client
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBECTL_BIN=$(CURDIR)/bin/kubectl INFORMERS_BIN=$(CURDIR)/bin \
		CONTROLLERS_BIN=$(CURDIR)/bin/controllers NODE_CLIENTS=$(CURDIR)/bin/node-clients H2SPEC_BIN=$(CURDIR)/bin/h2spec $(GO) test -timeout 20m -count=1 ./proxy/e2e $(E2EFLAGS)
	cd deploy/devcluster && DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster $(GO) test -timeout 10m -count=1 .

chaos: bin/watchfan-race bin/devcluster ## fault suite: what clients see under faults, compared with etcd's own history (CHAOS_DURATION=5m; CHAOS_SEED=N repeats a run's faults)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan-race DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster INFORMERS_BIN=$(CURDIR)/bin \
		$(GO) test -timeout 3h -count=1 -v ./proxy/chaos -duration=$(or $(CHAOS_DURATION),5m) $(if $(CHAOS_SEED),-seed=$(CHAOS_SEED))

attack: bin/watchfan bin/devcluster ## attack suite: 60 attackers of all kinds beside 200 honest clients, after a quiet phase (ATTACK_DURATION=30s; ATTACK_SEED=N repeats a run's attacks)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 3h -count=1 -v ./proxy/attack -duration=$(or $(ATTACK_DURATION),30s) $(if $(ATTACK_SEED),-seed=$(ATTACK_SEED))

deploytest: bin/watchfan bin/devcluster bin/kubectl bin/helm bin/bench bin/prometheus bin/grafana-schema ## chart, manifests, dashboards, alerts and each command of the READMEs, with a real Helm, kube-apiserver and Prometheus (UPDATE=1 rewrites dashboards and METRICS.md)
	@deploy/need.sh curl:curl
	cd deploy/deploytest && WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBECTL_BIN=$(CURDIR)/bin/kubectl \
		HELM_BIN=$(CURDIR)/bin/helm BENCH_BIN=$(CURDIR)/bin/bench PROMETHEUS_BIN=$(CURDIR)/bin/prometheus PROMTOOL_BIN=$(CURDIR)/bin/promtool \
		GRAFANA_SCHEMA=$(CURDIR)/bin/grafana-schema $(GO) test -timeout 10m -count=1 . $(if $(UPDATE),-update)

statustest: bin/watchfan bin/devcluster ## status page in a real Chromium, which apt-get installs if it is missing (SCREENSHOTS=DIR keeps pictures)
	@deploy/need.sh chromium:chromium
	cd proxy/statustest && WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster \
		$(GO) test -timeout 5m -count=1 $(if $(SCREENSHOTS),-artifacts -outputdir $(abspath $(SCREENSHOTS))) .

conformance: bin/watchfan bin/devcluster bin/kubectl bin/conformance ## 150 of Kubernetes' own end-to-end specs, against kube-apiserver and through watchfan (6 minutes)
	cd deploy/devcluster && WATCHFAN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBECTL_BIN=$(CURDIR)/bin/kubectl \
		CONFORMANCE_BIN=$(CURDIR)/bin/conformance $(GO) test -timeout 20m -count=1 -v ./cmd/conformance/e2e

hollow: bin/watchfan bin/devcluster bin/kubemark ## five kubelets without containers whose pods mount 50 and 120 objects each, at kube-apiserver and through watchfan: connections, watches, access reviews (3 minutes)
	WATCHFAN_BIN=$(CURDIR)/bin/watchfan WATCHFAN_PLAIN_BIN=$(CURDIR)/bin/watchfan DEVCLUSTER_BIN=$(CURDIR)/bin/devcluster KUBEMARK_BIN=$(CURDIR)/bin/kubemark \
		$(GO) test -timeout 20m -count=1 -v ./proxy/e2e -run '^TestHollowKubelets$$'

# A number of executions and not a time: go test may report the end of a time as a failure, "context
# deadline exceeded".
fuzz-short:
	@$(MAKE) --no-print-directory fuzz FUZZTIME=500x

fuzz: ## every fuzz target for FUZZTIME (default 20s)
	@for package in $$($(GO) list $(PACKAGES)); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-20s} $$package; \
		done; \
	done

lint: ## gofmt, go vet, staticcheck, imports within proxy, and the modules' checksums
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || { echo "not gofmt-clean: $$unformatted"; exit 1; }
	$(GO) vet $(PACKAGES)
	$(GO) vet -tags capture ./framing
	cd proxy/e2e/informers && $(GO) vet .
	cd proxy/e2e/controllers && $(GO) vet .
	cd deploy/deploytest && $(GO) vet .
	cd proxy/statustest && $(GO) vet .
	$(GO) run $(STATICCHECK) $(PACKAGES)
	proxy/rooms.sh
	$(GO) mod verify

# If the database cannot be reached, the change is not to blame: the target says so, and make test
# goes on.
vulncheck: ## known vulnerabilities in code that is called (GOVULNDB=file:///DIRECTORY: a copy of the database); goes on without a database
	@found=$$($(GO) run $(GOVULNCHECK) -db $(GOVULNDB) $(PACKAGES) 2>&1) && status=0 || status=$$?; echo "$$found"; \
	if grep -q "fetching vulnerabilities" <<<"$$found"; then \
		echo "Nothing was checked: the vulnerability database $(GOVULNDB) cannot be reached. Give a copy with GOVULNDB=file:///DIRECTORY."; status=0; fi; \
	exit $$status

microbench: ## go test -bench of framing and fanout
	$(GO) test -run '^$$' -bench . -benchmem ./framing ./fanout

bench: bin/watchfan bin/devcluster bin/bench ## watchfan beside kube-apiserver and a bare writev: CPU, latency, memory, slow clients, resyncs (14 minutes; BENCHFLAGS=--full: an hour)
	bin/bench run --watchfan bin/watchfan --devcluster bin/devcluster $(BENCHFLAGS)

clean: ## remove what was built
	rm -rf bin

bin/watchfan: $(SOURCES)
	@CGO_ENABLED=0 GO=$(GO) deploy/build.sh $@ -trimpath -ldflags '$(LDFLAGS)' .

bin/watchfan-race: $(SOURCES)
	$(GO) build $(RACE) -o $@ .

bin/bench: $(SOURCES) $(shell find bench -name '*.go' 2>/dev/null)
	$(GO) build -o $@ ./bench

bin/devcluster: $(DEVCLUSTER)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" .

# The package is unpacked and not installed, because installing it starts a server.
bin/prometheus:
	@mkdir -p bin; dir=$$(mktemp -d); trap "rm -rf $$dir" EXIT; chmod 755 $$dir; \
	apt-cache show prometheus >/dev/null 2>&1 || apt-get update -qq; \
	( cd $$dir && apt-get -qq -o APT::Sandbox::User=root download prometheus && dpkg -x prometheus_*.deb . ); \
	mv $$dir/usr/bin/promtool bin/promtool; mv $$dir/usr/bin/prometheus $@; touch $@

bin/grafana-schema: $(addprefix deploy/deploytest/grafana/,package.json package-lock.json)
	@deploy/need.sh npm:npm
	@mkdir -p $@; cp $^ $@; cd $@ && npm ci --silent --no-audit --no-fund && touch .

bin/node-clients: $(addprefix proxy/e2e/node/,package.json package-lock.json watch.mjs)
	@deploy/need.sh npm:npm
	@mkdir -p $@; cp $^ $@; cd $@ && npm ci --silent --no-audit --no-fund && touch .

bin/conformance: $(wildcard deploy/devcluster/cmd/conformance/*) $(addprefix deploy/devcluster/,go.mod go.sum ldflags)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" ./cmd/conformance

bin/kubemark: $(addprefix deploy/devcluster/,go.mod go.sum ldflags)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" k8s.io/kubernetes/cmd/kubemark

bin/controllers: $(addprefix proxy/e2e/controllers/,go.mod go.sum main.go)
	cd proxy/e2e/controllers && $(GO) build -ldflags '-s -w' -o $(CURDIR)/$@ .

bin/h2spec: $(addprefix proxy/e2e/h2spec/,go.mod go.sum)
	cd proxy/e2e/h2spec && $(GO) build -o $(CURDIR)/$@ github.com/summerwind/h2spec/cmd/h2spec

bin/helm: $(addprefix deploy/deploytest/,go.mod go.sum)
	cd deploy/deploytest && $(GO) build -o $(CURDIR)/$@ helm.sh/helm/v4/cmd/helm

bin/kubectl: $(DEVCLUSTER)
	@cd deploy/devcluster && GO=$(GO) ../build.sh $(CURDIR)/$@ -ldflags "$$(cat ldflags)" ./cmd/kubectl
