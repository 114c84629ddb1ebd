# rnicd: build, run, test. See README.md.
#
#   make build                 bin/rnicd and, where their headers are, DPDK's driver and verbs/'s
#                              libraries for C programs; installs what it needs
#   make run [FILE=path] [PMD=tap|dpdk] [ARGS=...]
#                              a real transfer; PMD is our driver of a TAP or DPDK's; FILE is sent
#                              (default: 64 MiB made for it), ARGS flags of rnicd serve
#   make test                  every package in minutes, with a random sample of long lists of cases
#   make test-all              every package and every case
#   make verbs [ARGS=-run=Rping]
#                              C programs over verbs/ (minutes): what make test leaves out, too, and
#                              of long lists a random sample
#   make verbs-long [ARGS=-run=UCX]
#                              all of them
#   make kubernetes [ARGS=-run=Manifests]
#                              deploy/kubernetes, the device plugin, a module apart; root
#   make test-arm64            everything built for arm64; its CRC kernels under QEMU
#   make lint                  gofmt, vet, staticcheck, import layers
#   make race                  nearly every package under the race detector
#   make bench [ARGS=-yard.only=write,veth]
#                              the yardsticks: ratios of one run with their goals; root, 15 minutes
#   make bench-quick           the same in five minutes
#   make bench-go              every Go benchmark
#   make bench-peers [ARGS=...]  goodput next to gVisor's netstack, over a TAP; root
#   make profile               where the time of a bulk Write goes: build/profile, budget.tsv
#   make pgo                   bench/packetpath.pgo, the profile that guides inlining (a minute)
#   make sim [SEEDS=1000] [FIRST=4711]
#                              whole hosts in virtual time, seeds from the clock or from FIRST on
#   make fuzz [FUZZTIME=30s]   every fuzz target for that long
#   make interop [ARGS=-run=Rping]
#                              conversations with Linux siw in a virtual machine; root
#   make interop-tcp           our TCP against Linux's, every cell, as a table; root
#   make godpdk GODPDK=/path/to/go-dpdk
#                              pmd/godpdk, a module apart, against a checkout of go-dpdk; root
#   make soak [MINUTES=30]     every service of a daemon under load; root
#   make install [DESTDIR=] [PREFIX=/usr/local]
#                              program, libraries, manual pages, completion, systemd unit, examples;
#                              make uninstall removes them
#   make deb                   Debian packages: build/rnicd_VERSION_ARCH.deb, and rnicd-verbs, only
#                              what rnicd run needs
#   make container [BASE=debian:12] [ARGS=--network=host]
#                              an image, by podman or buildah (packaging/Containerfile)
#   make reference             generates the references of configuration and metrics, the packet's
#                              picture and the manual pages; reference-check compares them
#   make trace [ARGS=5044-4.3-1]
#                              requirements without a test; or where one is tested
#   make mutants [ARGS="-package tcp,rnic/... -n 1-50"]
#                              changes a line at a time: is there a test that fails? (hours for all)
#   make links [ARGS=-links.update]
#                              goodput over simulated links, the whole table (minutes)
#   make analysis              the drafts' analysis of buffers and segments (a minute)
#   make release-check [SEEDS=100000] [FIRST=...] [FUZZTIME=2m]
#                              everything at length; root, some hours
#   make help / clean          this text; delete what was built

SHELL   := /bin/bash
# What scripts/deps.sh fetched goes first: it is there only because the system's Go is too old.
export PATH := $(CURDIR)/build/go/bin:$(PATH):/usr/local/go/bin
GO      ?= go
PMD     ?= tap
FILE    ?=
export FILE
ARGS    ?=
SEEDS   ?= 1000
FIRST   ?=
FUZZTIME ?= 30s
MINUTES ?= 30
PREFIX  ?= /usr/local
SYSCONFDIR ?= /etc
DESTDIR ?=
BASE    ?= debian:12

# With DPDK's headers at hand everything is built and tested with the driver in it.
DPDK    := $(shell pkg-config --exists libdpdk 2>/dev/null && \
    command -v $${CC:-gcc} >/dev/null && echo yes)
TAGS    := $(if $(filter yes,$(DPDK)),-tags dpdk)

# By this profile the compiler inlines the packet path (docs/adr/0025-profile.md). Tests are
# compiled without.
PGO     := -pgo=bench/packetpath.pgo

# What rnicd --version says, and rnicd status --program.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BUILD   := $(PGO) -buildvcs=false -ldflags "-X main.version=$(VERSION)"

.PHONY: all help pgo soak install uninstall deb container build run test test-all test-arm64 lint \
    race bench bench-quick bench-go profile bench-peers interop interop-tcp godpdk kubernetes sim \
    trace mutants links analysis fuzz release-check deps deps-run clean

all: build

# The lines at the top of this file.
help:
	@sed -n '3,/^$$/s/^# \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

build: deps-run
	@$(MAKE) --no-print-directory bin/rnicd libraries

.PHONY: bin/rnicd
bin/rnicd:
	$(GO) build $(TAGS) $(BUILD) -o bin/rnicd ./cmd/rnicd

# libibverbs and librdmacm over rnic: a C library, and the engine that it loads.
.PHONY: verbs verbs-long bin/librnicd_verbs.so bin/librnicd_engine.so
verbs: deps bin/rnicd bin/librnicd_verbs.so bin/librnicd_engine.so
	RNICD_BUILT=$(CURDIR)/bin $(GO) test $(TAGS) -short -vet=off $(ARGS) ./verbs -programs

verbs-long: deps bin/rnicd bin/librnicd_verbs.so bin/librnicd_engine.so
	RNICD_BUILT=$(CURDIR)/bin $(GO) test $(TAGS) -vet=off -timeout 60m $(ARGS) ./verbs/...

bin/librnicd_verbs.so:
	@mkdir -p bin
	verbs/shim/build.sh $@

bin/librnicd_engine.so:
	GO="$(GO)" VERSION="$(VERSION)" verbs/cshared/build.sh $@ $(PGO) -trimpath

# The folder of the libraries that are installed and packaged: none where they cannot be built.
VERBS_HEADERS = -include infiniband/verbs.h -include rdma/rdma_cma.h
LIBRARIES = $(if $(shell $${CC:-gcc} -E $(VERBS_HEADERS) -x c /dev/null >/dev/null 2>&1 && \
    echo yes),bin)
.PHONY: libraries
libraries:
	@$(if $(LIBRARIES),$(MAKE) --no-print-directory bin/librnicd_verbs.so bin/librnicd_engine.so, \
	    echo "not built: the libraries of verbs, for C programs: infiniband/verbs.h or" \
	    "rdma/rdma_cma.h is missing; install libibverbs-dev and librdmacm-dev")

# rnicd for containers and rnicd-verbs: linked with nothing.
.PHONY: portable
portable:
	CGO_ENABLED=0 $(GO) build $(BUILD) -o build/portable/rnicd ./cmd/rnicd

# Where everything goes that make install installs; make uninstall reads the same. PREFIX=/usr is
# where systemd looks, and /usr/local too, for units, users and completion.
install: build portable
	@LIBRARIES="$(LIBRARIES)" PORTABLE=build/portable/rnicd DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" \
	    packaging/install.sh install

uninstall:
	@DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" SYSCONFDIR="$(SYSCONFDIR)" packaging/install.sh uninstall

deb: build portable
	@LIBRARIES="$(LIBRARIES)" PORTABLE=build/portable/rnicd GO="$(GO)" packaging/deb.sh

container:
	@BASE="$(BASE)" CAPABILITIES="$(CAPABILITIES)" ARGS="$(ARGS)" packaging/container.sh

# The test ends within five minutes of the time that it has.
soak: build
	$(GO) test $(TAGS) ./cmd/rnicd -count=1 -timeout $$(($(MINUTES) + 5))m -v \
	    -run '^TestSoak$$' -soak $(MINUTES)m $(ARGS)

run: build
	@scripts/run.sh "$(PMD)" "$$FILE" $(ARGS)

# The packages that a build (deps-run) or the tests (deps) want; a no-op when they are there.
deps-run:
	@scripts/deps.sh run
deps:
	@scripts/deps.sh test

test test-all: deps
	@$(MAKE) --no-print-directory $@-now

# Two packages more at a time than there are processors: tests wait for timers and for other
# processes as long as they compute. Position-independent, as the engine's library has to be, one
# compile serves all: also the programs that tests build, which inherit GOFLAGS, and make lint,
# whose tools have every package compiled, tests included. The longest come first. make lint vets,
# and make test-all does. Two daemons with a region of 256 MiB each, beside DPDK's own memory, are
# up at once: with fewer than 512 pages the last to come finds none.
LONGEST = ./verbs ./cmd/rnicd ./stack ./rnic ./pmd/memif ./stream
TESTFLAGS = GOFLAGS="$$($(GO) env GOFLAGS) -buildmode=pie -ldflags=-w"
GOTEST = $(TESTFLAGS) RNICD_BUILT=$(BUILT) $(GO) test $(TAGS)
.PHONY: test-now test-all-now built-now
test-now: built-now
	$(GOTEST) -short -vet=off -p $$(($$(nproc) + 2)) -timeout 10m $(LONGEST) ./...

test-all-now: built-now
	$(GOTEST) -timeout 15m ./...

built-now:
	@scripts/hugepages.sh 512
	@$(TESTFLAGS) $(MAKE) --no-print-directory -j2 built

# rnicd and the libraries of verbs for the tests, built once: each package that tests them would,
# and the compiler would run for the same source several times at once.
BUILT = $(CURDIR)/build/test
.PHONY: built built-go
built: built-go $(if $(LIBRARIES),$(BUILT)/librnicd_verbs.so)
built-go:
	@mkdir -p $(BUILT)
	$(GO) build $(TAGS) -buildvcs=false -o $(BUILT)/ ./cmd/rnicd
	$(if $(LIBRARIES),GO="$(GO)" verbs/cshared/build.sh $(BUILT)/librnicd_engine.so)
$(BUILT)/librnicd_verbs.so: $(wildcard verbs/shim/* verbs/internal/ring/*)
	@mkdir -p $(BUILT)
	verbs/shim/build.sh $@

# QEMU's user-mode emulation runs what was built for arm64. cgo, and with it DPDK's driver, would
# want a compiler for it.
test-arm64: deps
	GOARCH=arm64 CGO_ENABLED=0 $(GO) vet ./...
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -short -vet=off -timeout 5m \
	    -exec qemu-aarch64-static ./internal/crc32c

lint:
	@out=$$(gofmt -l .); test -z "$$out" || { echo "not gofmt-ed:"; echo "$$out"; exit 1; }
	@$(TESTFLAGS) $(MAKE) --no-print-directory lint-now

.PHONY: lint-now
lint-now:
	$(GO) vet $(TAGS) ./...
	$(GO) tool staticcheck $(TAGS) ./...
	@check=$$($(GO) tool -n staticcheck) && cd deploy/kubernetes && set -x && \
	    $(GO) vet ./... && $$check ./...
	$(GO) test -count=1 ./internal/layers ./internal/register

# Left out: minutes of arithmetic in goroutines that share nothing, ten times as long under the race
# detector. What could be shared by connections, the tests of stack, stream and sim would show.
race:
	$(GO) test -race -timeout 60m \
	    $$($(GO) list ./... | grep -vE '/(sim/(ccmodel|linksim)|internal/analysis)$$')

bench:
	@GO="$(GO)" scripts/bench.sh full $(ARGS)

bench-quick:
	@GO="$(GO)" scripts/bench.sh quick $(ARGS)

bench-go:
	$(GO) test $(TAGS) -run '^$$' -bench . -benchmem ./...

profile:
	@GO="$(GO)" scripts/profile.sh $(ARGS)

pgo:
	@GO="$(GO)" scripts/pgo.sh

bench-peers:
	@GO="$(GO)" scripts/bench-peers.sh $(ARGS)

# What passes the guest's device is kept in build/interop.pcap.
interop:
	@scripts/deps.sh interop
	@mkdir -p build
	$(GO) test -count=1 -timeout 60m -v ./test/interop -live \
	    -capture "$(CURDIR)/build/interop.pcap" $(ARGS)

godpdk: deps
	@GODPDK="$(GODPDK)" pmd/godpdk/check.sh $(ARGS)

# Its tests run what make build builds, which they do themselves.
kubernetes: deps
	cd deploy/kubernetes && \
	    CGO_ENABLED=0 $(GO) build -buildvcs=false -o ../../bin/rnicd-device-plugin . && \
	    $(GO) test -vet=off -count=1 -timeout 10m $(ARGS) ./...

interop-tcp: deps
	@scripts/hugepages.sh 256
	@mkdir -p build
	@$(GO) test $(TAGS) -count=1 -timeout 60m ./cmd/rnicd -run '^TestInterop' \
	    -interop "$(CURDIR)/build/interop-tcp.md"; \
	    s=$$?; cat build/interop-tcp.md; exit $$s

# A seed takes some milliseconds; what it may take before the whole run counts as hanging is 250 of
# them.
sim:
	@case '$(SEEDS)' in '' | *[!0-9]* | 0*) \
	    echo "sim: SEEDS=$(SEEDS): want a number of seeds, 1 or more" >&2; exit 2;; esac
	@case '$(FIRST)' in *[!0-9]*) \
	    echo "sim: FIRST=$(FIRST): want the number of a seed, 0 or more" >&2; exit 2;; esac
	@s=0; for p in ./internal/sim ./verbs/internal/engine; do \
	    $(GO) test $$p -count=1 -timeout $$((1800 + $(SEEDS) / 4))s -v \
	    -run '^TestSeeds$$' -seeds $(SEEDS) $(addprefix -first ,$(FIRST)) $(ARGS) || s=1; \
	    done; exit $$s

trace:
	@$(GO) run ./internal/register/trace $(ARGS)

mutants:
	@$(GO) run ./internal/mutants $(ARGS)

# Manual pages are made when they are installed: there is nothing of them to be written again.
REFERENCE = -count=1 -run '^Test(Reference|SwitchReference|Picture)$$'
.PHONY: reference reference-check
reference:
	$(GO) test ./internal/daemon/config ./internal/daemon/metrics ./internal/docs $(REFERENCE) -update
reference-check:
	$(GO) test ./internal/daemon/config ./internal/daemon/metrics ./internal/docs $(REFERENCE)
	$(GO) test ./internal/daemon/command -count=1 -run '^TestPages$$'

links:
	$(GO) test ./internal/sim/linksim -count=1 -timeout 60m -v -links.all $(ARGS)

analysis:
	$(GO) test ./internal/analysis -count=1 -timeout 30m -v -run TestGolden -analysis.update

fuzz:
	@scripts/fuzz.sh $(FUZZTIME)

# Without SEEDS, FIRST and FUZZTIME the script has its own: fresh seeds, and more of them.
release-check:
	@scripts/release-check.sh "$(if $(filter-out file,$(origin SEEDS)),$(SEEDS))" \
	    "$(if $(filter-out file,$(origin FIRST)),$(FIRST))" \
	    "$(if $(filter-out file,$(origin FUZZTIME)),$(FUZZTIME))"

clean:
	rm -rf bin build
