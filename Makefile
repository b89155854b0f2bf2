# All targets work on a fresh machine with Go, make and a C compiler (for the race detector); `make` lists them.

VERSION := $(shell git describe --tags --match 'v[0-9]*' --always --dirty 2>/dev/null || echo devel)
REVISION = $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
PEERS   := $(or $(LASTCALL_PEERS),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/lastcall/peers)
# The modules of go.work: those with programs for users, and lab with tests and tools.
MODULES := . cmd internal/sidecar grpcdrain rehearsal kube lab
# Those that build without go.work; the others are published, and require tags of this repository (lab/release/proxy).
ALONE   := . lab
ALL     := $(MODULES:%=./%/...)
# Packages that must also build for macOS and Windows.
PORTABLE := . ./drain ./httpdrain ./internal/sidecar/cli/... ./rehearsal/command ./kube/cmd/lastcallctl
# The race detector needs a C compiler; tests without it are better than none.
RACE    := $(if $(shell command -v cc || command -v gcc),-race)
FLAGS   := -trimpath -ldflags "-s -w -funcalign=16 -X main.version=$(VERSION)"
BUILD   := CGO_ENABLED=0 go build $(FLAGS)
# The programs that run in a cluster, next to the sidecar; each has an image of its own.
SERVERS := ./kube/cmd/lastcall-controller ./kube/cmd/lastcall-observer
comma   := ,
# The sidecar's build tag: it does not use net/http's HTTP/2, and is 0.4 MB smaller without it.
SIDECAR := -tags nethttpomithttp2

# Under nohup and in background jobs SIGHUP and SIGINT are ignored, and tests of signals would inherit that.
SIGNALS = $(shell env --default-signal=HUP,INT true 2>/dev/null && echo env --default-signal=HUP,INT)

# Peers take precedence over the machine's programs: tests, rehearsals and benchmarks then use the pinned versions.
WITH_PEERS = set -a; [ ! -e "$(PEERS)/peers.env" ] || . "$(PEERS)/peers.env"; PATH="$(PEERS)/bin:$$PATH";

# Where images are pushed to and pulled from, such as registry.example.com/team. Without one they are named localhost/…, as
# podman names local images: no registry can serve that name, and nodes find only what was loaded into them.
REGISTRY ?=
IMAGES    = $(or $(REGISTRY),localhost)

.PHONY: man tidy release-dry-run release golangci cross cluster-up cluster-down mesh-up conformance e2e e2e-gateways e2e-mesh help build image push registry chart manifests test flaky rehearse bench lint fuzz cover peers site clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  ARGS="…" is handed on by rehearse and bench, PKG=./internal/sidecar/pipe narrows test, flaky, fuzz and cover.'
	@echo '  REGISTRY=registry.example.com/team is where push uploads the images, and where nodes pull them.'

build: ## bin/lastcall, lastcallctl, lastcall-controller and lastcall-observer, static
	$(BUILD) $(SIDECAR) -o bin/ ./cmd/lastcall
	$(BUILD) -o bin/ ./kube/cmd/lastcallctl $(SERVERS)

image: ## all images for amd64 and arm64 as dist/*.oci.tar, and dist/install; needs no container engine
	@go build -o bin/image ./lab/image
	@for arch in amd64 arm64; do export GOOS=linux GOARCH=$$arch; \
		$(BUILD) $(SIDECAR) -o dist/linux-$$arch/ ./cmd/lastcall && $(BUILD) -o dist/linux-$$arch/ $(SERVERS) || exit 1; done
	@$(call PACK,lastcall,1337,The sidecar: lets a pod finish its conversations before it stops,-capabilities)
	@$(call PACK,lastcall-controller,65532,The admission webhook of lastcall$(comma) and the Events of how pods ended)
	@$(call PACK,lastcall-observer,0,Reports what the terminations of the pods of a node lose)
	@go build -o bin/chart ./lab/chart
	@$(INSTALL)

push: registry image ## upload the images to REGISTRY with the credentials of docker login; dist/install gets their digests
	@go build -o bin/crane github.com/google/go-containerregistry/cmd/crane
	@sidecar=$$($(call UPLOAD,lastcall)) && controller=$$($(call UPLOAD,lastcall-controller)) && \
		observer=$$($(call UPLOAD,lastcall-observer)) && \
		$(INSTALL) --set "sidecar.image.digest=$${sidecar#*@},webhook.image.digest=$${controller#*@},observer.image.digest=$${observer#*@}" && \
		printf '%s\n' "$$sidecar" "$$controller" "$$observer" 'kubectl apply -k dist/install'

# UPLOAD uploads the image of one program, and prints its name with the digest.
UPLOAD = rm -rf dist/layout && mkdir dist/layout && tar -xf dist/$(1)-$(VERSION).oci.tar -C dist/layout && \
	bin/crane push dist/layout $(REGISTRY)/$(1):$(VERSION) && rm -r dist/layout

registry:
	@[ -n "$(REGISTRY)" ] || { echo 'make push: REGISTRY is not set: name a registry that you may push to and your nodes may pull from, for example make push REGISTRY=registry.example.com/team' >&2; exit 2; }

# INSTALL writes the manifests that install these images. SET has further values of the chart: SET=observer.enabled=true.
SET    ?=
INSTALL = bin/chart kustomize deploy/chart --version $(VERSION) --set registry=$(IMAGES)$(if $(SET),$(comma)$(SET)) --to dist/install

chart: ## dist/lastcall.tgz, the Helm chart, after checking it; needs no helm
	@go build -o bin/chart ./lab/chart
	bin/chart lint deploy/chart --set registry=$(IMAGES),webhook.image.tag=lint,observer.image.tag=lint,sidecar.image.tag=lint
	@packed=$$(bin/chart package deploy/chart --version $(VERSION) --to dist) && cp "$$packed" dist/lastcall.tgz && echo "$$packed"

manifests: ## write the chart's table of values in its README from values.yaml
	@go build -o bin/chart ./lab/chart
	bin/chart document deploy/chart

# PACK makes an image of one program: its name, its user and group, what it is, a further flag.
# No CA certificates: the only TLS connections go to the API server, whose authority comes with the service account.
PACK = bin/image -name $(IMAGES)/$(1):$(VERSION) -user $(2):$(2) $(4) -label title=$(1) -label 'description=$(3)' \
	-label version=$(VERSION) -label revision=$(REVISION) -label licenses=Apache-2.0 \
	-label source=https://github.com/lastcall-dev/lastcall \
	-output dist/$(1)-$(VERSION).oci.tar 'dist/linux-{arch}/$(1)' /$(1)

test: ## all tests with the race detector; downloads their peers, lists skipped tests
	@lab/peers/install -q
	@$(if $(RACE),,echo 'WITHOUT the race detector: there is no C compiler here' >&2)
	@# The race detector would hold the process of each package for a second at its end; make flaky leaves it that second.
	@$(WITH_PEERS) export GORACE="$${GORACE:-atexit_sleep_ms=0}"; $(SIGNALS) go tool gotestsum --format standard-quiet --post-run-command lab/noskips -- $(RACE) $(or $(PKG),$(ALL))
	@$(if $(PKG),,go test -count=1 ./lab/chart/...)

flaky: build ## every package TIMES (20) times with the race detector, alone and next to LOAD (20) busy loops
	@lab/peers/install -q
	@$(WITH_PEERS) $(SIGNALS) lab/flaky $(or $(TIMES),20) $(or $(LOAD),20) $(RACE) $(or $(PKG),$(ALL))
	@$(if $(PKG),,$(WITH_PEERS) go test -count=1 -tags busy -run TestRehearseOnABusyMachine ./rehearsal/cmd/rehearse)

rehearse: ## the experiment: the effect of each way of stopping on a request in flight
	@# Without SIDECAR's tag, so that both programs share compiled packages.
	@CGO_ENABLED=0 lab/gobuild bin/ $(FLAGS) ./cmd/lastcall ./rehearsal/cmd/rehearse
	@$(WITH_PEERS) bin/rehearse $(ARGS)

bench: build ## comparison with Envoy, HAProxy, nginx and others, into BENCHMARKS.md; ARGS=quick prints in 3 minutes
	@lab/peers/install -q
	@$(WITH_PEERS) go run ./lab/bench $(ARGS)

lint: ## gofmt, vet, staticcheck, builds for macOS and Windows, wording of all texts, known vulnerabilities
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); [ -z "$$unformatted" ] || { echo "gofmt -w" $$unformatted; exit 1; }
	go vet $(ALL) ./lab/chart/... ./lab/conformance/...
	go vet -tags e2e,busy ./lab/... ./rehearsal/...
	go tool staticcheck $(ALL) ./lab/chart/... ./lab/conformance/...
	@for module in $(ALONE); do GOWORK=off go build -C $$module ./... || exit 1; done
	@# lastcallctl and the library also run on people's machines.
	@for platform in darwin/arm64 windows/amd64; do export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0; \
		echo "GOOS=$$GOOS GOARCH=$$GOARCH go vet $(PORTABLE)"; \
		go vet $(PORTABLE) || exit 1; done
	go run ./lab/prose
	lab/vulncheck

tidy: ## go mod tidy in all modules, as if this checkout had been released
	@lab/release/tidy $(MODULES) lab/chart lab/conformance

release-dry-run: ## all of a release but its publication: builds, signs, verifies, installs, in dist
	@lab/release/dry-run

release: ## make release VERSION=v0.1.0: one commit on main with the tags of all modules, pushed; the workflow does the rest
	@lab/release/tag $(VERSION)

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

conformance: ## h2spec, gRPC's interop suite and client libraries through the pipe, and what clients observe behind it
	@lab/peers/install -q
	@$(WITH_PEERS) $(SIGNALS) go test -count=1 -timeout 30m ./lab/conformance/...

cover: ## cover.html: which lines the tests reach
	@lab/peers/install -q
	@$(WITH_PEERS) $(SIGNALS) go test -coverpkg=./... -coverprofile=cover.out $(or $(PKG),$(ALL))
	go tool cover -html=cover.out -o cover.html
	@go tool cover -func=cover.out | tail -1

peers: ## download the real proxies and clients of the tests into a cache folder; ISTIO=1 builds Istio's agent, too
	@lab/peers/install
	@$(if $(ISTIO),lab/peers/istio/build pilot-agent >/dev/null)

cluster-up: override REGISTRY = # the tests name images that are only loaded
cluster-up: image ## start a real Kubernetes node on this machine, with the images of this checkout (root, Linux)
	@lab/peers/install -q
	@go build -o bin/cluster ./lab/e2e/cluster
	@bin/cluster up
	@GOOS=linux GOARCH=amd64 $(BUILD) -o dist/linux-amd64/ ./rehearsal/cmd/rehearse ./lab/e2e/talk
	@$(WITH_PEERS) go run ./lab/e2e/images -tag $(VERSION) -lastcall dist/linux-amd64/lastcall -rehearse dist/linux-amd64/rehearse -talk dist/linux-amd64/talk -output dist/e2e
	@bin/cluster import dist/lastcall-$(VERSION).oci.tar dist/lastcall-controller-$(VERSION).oci.tar dist/lastcall-observer-$(VERSION).oci.tar dist/e2e/httpbin.tar dist/e2e/rehearse.tar dist/e2e/talk.tar dist/e2e/lastcall-envoy.tar

mesh-up: cluster-up ## the same with Istio on it, which is built once (some minutes)
	@lab/e2e/mesh/up

cluster-down: ## end that node; leaves the machine as before
	@go run ./lab/e2e/cluster down

e2e: build ## the tests on a real Kubernetes node, which is started and ended unless it is up already
	@lab/peers/install -q
	@go build -o bin/chart ./lab/chart
	@go build -o bin/crane github.com/google/go-containerregistry/cmd/crane
	@go build -o bin/helm helm.sh/helm/v4/cmd/helm
	@lab/e2e/run $(VERSION) $(ARGS)

e2e-mesh: build ## the tests with a real Istio on such a node
	@lab/peers/install -q
	@go build -o bin/chart ./lab/chart
	@lab/e2e/mesh/run $(VERSION) $(ARGS)

e2e-gateways: build ## Contour, Envoy Gateway and Envoy alone on that node, ended by their own means and by lastcall; builds them once
	@lab/peers/install -q
	@lab/peers/gateways
	@go build -o bin/helm helm.sh/helm/v4/cmd/helm
	@$(WITH_PEERS) lab/e2e/gateways/run $(VERSION) $(ARGS)

man: build ## dist/share, manual pages and shell completions of lastcall and lastcallctl
	@rm -rf dist/share && mkdir -p dist/share/completions
	@go run ./lab/reference man dist/share/man bin/lastcall bin/lastcallctl && gzip -9n dist/share/man/*
	@for program in lastcall lastcallctl; do \
		bin/$$program completion bash >dist/share/completions/$$program.bash && \
		bin/$$program completion zsh >dist/share/completions/_$$program && \
		bin/$$program completion fish >dist/share/completions/$$program.fish || exit 1; done

site: ## dist/site, the documentation as a website; links to nothing fail (Python)
	@lab/site/build

clean: ## remove everything that was built here; peers stay in the cache folder
	rm -rf bin dist cover.out cover.html
