# Every target works on a fresh machine with Go, make and a C compiler (for the race detector); `make` lists them.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
PEERS   := $(or $(LASTCALL_PEERS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lastcall/peers)
# The modules of go.work that users have something of, and the one of what tests and packs them.
MODULES := . grpcdrain gateway rehearsal kube lab
ALL     := $(MODULES:%=./%/...)
# What must build for macOS and Windows as well.
PORTABLE := ./drain ./httpdrain ./internal/cli/... ./rehearsal/command ./kube/cmd/lastcallctl
# The race detector needs a C compiler; tests without it are better than none.
RACE    := $(if $(shell command -v cc || command -v gcc),-race)
FLAGS   := -trimpath -ldflags "-s -w -funcalign=16 -X main.version=$(VERSION)"
BUILD   := CGO_ENABLED=0 go build $(FLAGS)
# The programs that run in a cluster, next to the sidecar; each has an image of its own.
SERVERS := ./kube/cmd/lastcall-controller ./gateway/cmd/lastcall-gateway
comma   := ,
# What only the sidecar is built with: it does not use net/http's HTTP/2, and takes 0.4 MB less without.
SIDECAR := -tags nethttpomithttp2

# Peers go before what the machine has: tests, rehearsals and benchmarks then run the versions that are pinned.
WITH_PEERS = set -a; [ ! -e "$(PEERS)/peers.env" ] || . "$(PEERS)/peers.env"; PATH="$(PEERS)/bin:$$PATH";

# Where images are pushed to and pulled from, such as registry.example.com/team. Without one they are named localhost/…, as
# podman names local images: no registry can serve that name, and nodes find only what was loaded into them.
REGISTRY ?=
IMAGES    = $(or $(REGISTRY),localhost)

.PHONY: golangci cross cluster-up cluster-down conformance e2e help build image push registry chart manifests test flaky rehearse bench lint fuzz cover peers clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="…" is handed on by rehearse and bench, PKG=./internal/pipe narrows test, flaky, fuzz and cover.'
	@echo '  REGISTRY=registry.example.com/team is where push uploads the images, and where nodes pull them.'

build: ## bin/lastcall, lastcallctl, lastcall-controller and lastcall-gateway, static
	$(BUILD) $(SIDECAR) -o bin/ ./cmd/lastcall
	$(BUILD) -o bin/ ./kube/cmd/lastcallctl $(SERVERS)

image: ## dist/lastcall-VERSION.oci.tar, those of lastcall-controller and lastcall-gateway, and dist/install to apply; for amd64 and arm64; needs no engine
	@go build -o bin/image ./lab/image
	@for arch in amd64 arm64; do export GOOS=linux GOARCH=$$arch; \
		$(BUILD) $(SIDECAR) -o dist/linux-$$arch/ ./cmd/lastcall && $(BUILD) -o dist/linux-$$arch/ $(SERVERS) || exit 1; done
	@$(call PACK,lastcall,1337,The sidecar: lets a pod finish its conversations before it stops)
	@$(call PACK,lastcall-controller,65532,The admission webhook of lastcall$(comma) and the Events of how pods ended)
	@$(call PACK,lastcall-gateway,65532,The reference gateway of lastcall)
	@go build -o bin/chart ./lab/chart
	@$(INSTALL)

push: registry image ## the images to REGISTRY, with the credentials of docker login; dist/install then names their digests
	@sidecar=$$(bin/image push dist/lastcall-$(VERSION).oci.tar) && controller=$$(bin/image push dist/lastcall-controller-$(VERSION).oci.tar) && \
		gateway=$$(bin/image push dist/lastcall-gateway-$(VERSION).oci.tar) && \
		$(INSTALL) --set "sidecar.image.digest=$${sidecar#*@},webhook.image.digest=$${controller#*@},gateway.image.digest=$${gateway#*@}" && \
		printf '%s\n' "$$sidecar" "$$controller" "$$gateway" 'kubectl apply -k dist/install'

registry:
	@[ -n "$(REGISTRY)" ] || { echo 'make push: REGISTRY is not set: name a registry that you may push to and your nodes may pull from, for example make push REGISTRY=registry.example.com/team' >&2; exit 2; }

# INSTALL writes the manifests that install these images.
INSTALL = bin/chart kustomize deploy/chart --version $(VERSION) --set registry=$(IMAGES) --to dist/install

chart: ## dist/lastcall.tgz, the Helm chart, linted, and the same with its version in the name; needs no helm
	@go build -o bin/chart ./lab/chart
	bin/chart lint deploy/chart --set registry=$(IMAGES),image.tag=lint,sidecar.image.tag=lint
	@packed=$$(bin/chart package deploy/chart --version $(VERSION) --to dist) && cp "$$packed" dist/lastcall.tgz && echo "$$packed"

manifests: ## the chart's table of values in its README, made from values.yaml
	@go build -o bin/chart ./lab/chart
	bin/chart document deploy/chart

# PACK makes an image of one program: its name, its user and group, what it is.
# No CA certificates: all that is spoken to by TLS is the API server, by the service account's own.
PACK = bin/image --name $(IMAGES)/$(1):$(VERSION) --platform linux/amd64,linux/arm64 \
	--file 'dist/{os}-{arch}/$(1)=/$(1):0755' --entrypoint /$(1) --user $(2):$(2) \
	--label org.opencontainers.image.title=$(1) --label 'org.opencontainers.image.description=$(3)' \
	--label org.opencontainers.image.version=$(VERSION) --label org.opencontainers.image.revision=$(REVISION) \
	--label org.opencontainers.image.source=https://github.com/lastcall-dev/lastcall --label org.opencontainers.image.licenses=Apache-2.0 \
	--sbom 'dist/$(1)-$(VERSION).{os}-{arch}.spdx.json' --output dist/$(1)-$(VERSION).oci.tar

test: ## all tests with the race detector; fetches what they need beside Go, lists what was skipped
	@lab/peers/install -q
	@$(if $(RACE),,echo 'WITHOUT the race detector: there is no C compiler here' >&2)
	@$(WITH_PEERS) go run ./lab/testrun $(RACE) $(or $(PKG),$(ALL))
	@$(if $(PKG),,go test -count=1 ./lab/chart/...)

flaky: build ## every package TIMES (20) times with the race detector, on the machine as it is and beside LOAD (20) busy loops; PKG="./a ./b" narrows
	@lab/peers/install -q
	@$(WITH_PEERS) go run ./lab/testrun flaky $(RACE) -times $(or $(TIMES),20) -load $(or $(LOAD),20) $(or $(PKG),$(ALL))
	@$(if $(PKG),,$(WITH_PEERS) go test -count=1 -tags busy -run TestRehearseOnABusyMachine ./rehearsal/cmd/rehearse)

rehearse: ## the experiment: what each way of stopping does to a request in flight
	@# Without SIDECAR's tag: both programs then share what is compiled, also with an empty cache.
	@CGO_ENABLED=0 lab/gobuild bin/ $(FLAGS) ./cmd/lastcall ./rehearsal/cmd/rehearse
	@$(WITH_PEERS) bin/rehearse $(ARGS)

bench: build ## lastcall beside Envoy, HAProxy, nginx and Caddy: requests/s, latency, bodies, memory, drain, start
	@lab/peers/install -q
	@# Caddy is no test's peer: it is built, once, for the benchmarks alone, and left out where that is not possible.
	@[ -x "$(PEERS)/bin/caddy" ] || CGO_ENABLED=0 GOWORK=off go build -C lab/peers/caddy -trimpath -ldflags "-s -w" -o "$(PEERS)/bin/caddy" github.com/caddyserver/caddy/v2/cmd/caddy || :
	@$(WITH_PEERS) go run ./lab/bench $(ARGS)

lint: ## gofmt, go vet, staticcheck, lastcallctl and the library for macOS and Windows, the wording of all texts, govulncheck
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || { echo "gofmt -w" $$unformatted; exit 1; }
	go vet $(ALL) ./lab/chart/... ./lab/conformance/...
	go tool staticcheck $(ALL) ./lab/chart/... ./lab/conformance/...
	@for module in $(MODULES); do GOWORK=off go build -C $$module ./... || exit 1; done
	@# lastcallctl and the library run where people work, too.
	@for platform in darwin/arm64 windows/amd64; do export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0; \
		echo "GOOS=$$GOOS GOARCH=$$GOARCH go vet $(PORTABLE)"; \
		go vet $(PORTABLE) || exit 1; done
	go run ./lab/prose
	lab/vulncheck

cross: ## lastcallctl for macOS and Windows, into dist
	@for platform in darwin/amd64 darwin/arm64 windows/amd64; do \
		echo "$$platform"; GOOS=$${platform%/*} GOARCH=$${platform#*/} $(BUILD) -o dist/$${platform%/*}-$${platform#*/}/ ./kube/cmd/lastcallctl || exit 1; done

golangci: ## golangci-lint with .golangci.yml; compiles it first, which takes a minute
	@GOWORK=off go build -C lab/golangci -o ../../bin/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@for module in $(MODULES); do (cd $$module && $(CURDIR)/bin/golangci-lint run -c $(CURDIR)/.golangci.yml ./...) || exit 1; done

fuzz: ## each fuzz target for TIME (10s)
	@grep -rlE '^func Fuzz' --include='*_test.go' $(or $(PKG),.) | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(TIME),10s) -fuzzminimizetime 100x "./$$(dirname "$$file")" || exit 1; \
		done || exit 1; \
	done

conformance: ## h2spec, gRPC's interop suite, client libraries through the pipe: a module of its own in lab/conformance
	@lab/peers/install -q
	@$(WITH_PEERS) go test -count=1 ./lab/conformance/...

cover: ## cover.html: which lines the tests reach
	@lab/peers/install -q
	@$(WITH_PEERS) go test -coverpkg=./... -coverprofile=cover.out $(or $(PKG),$(ALL))
	go tool cover -html=cover.out -o cover.html
	@go tool cover -func=cover.out | tail -1

peers: ## fetch the real proxies and clients of the tests into a cache folder; install nothing
	@lab/peers/install

cluster-up: override REGISTRY = # the tests name images that are only loaded
cluster-up: image ## a real Kubernetes node on this machine, with the images of this checkout (root, Linux)
	@lab/peers/install -q
	@go build -o bin/cluster ./lab/e2e/cluster
	@bin/cluster up
	@GOOS=linux GOARCH=amd64 $(BUILD) -o dist/linux-amd64/ ./rehearsal/cmd/rehearse ./lab/e2e/libraryserver
	@$(WITH_PEERS) go run ./lab/e2e/images -tag $(VERSION) -lastcall dist/linux-amd64/lastcall -rehearse dist/linux-amd64/rehearse -libraryserver dist/linux-amd64/libraryserver -output dist/e2e
	@bin/cluster import dist/lastcall-$(VERSION).oci.tar dist/lastcall-controller-$(VERSION).oci.tar dist/lastcall-gateway-$(VERSION).oci.tar dist/e2e/httpbin.tar dist/e2e/rehearse.tar dist/e2e/libraryserver.tar dist/e2e/lastcall-envoy.tar

cluster-down: ## end that node; leaves the machine as it was
	@go run ./lab/e2e/cluster down

e2e: build ## the tests on a real Kubernetes node, which is started and ended unless it is up already
	@lab/peers/install -q
	@go build -o bin/chart ./lab/chart
	@go build -o bin/registry ./lab/registry
	@go build -o bin/helm helm.sh/helm/v4/cmd/helm
	@lab/e2e/run $(VERSION) $(ARGS)

clean: ## remove what was built here (peers stay: they lie in the cache folder)
	rm -rf bin dist cover.out cover.html
