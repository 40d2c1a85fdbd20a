# Needs GNU make and rustup; the toolchain is pinned in rust-toolchain.toml. `make` alone lists the targets.

# How long `make fuzz` runs, and how many random histories `make test-slow` tries.
SECONDS = 60
SEQUENCES = 1000000
# Which worlds `make sim` runs: SEEDS of them from START on, or the one with number SEED, told in detail.
SEEDS = 1000
START = 0
SEED =
# What `make chaos` does: for how long, with how many of each; SEED brings the same faults again.
MINUTES = 15
NODES = 5
GROUPS = 4
GATEWAYS = 2
# The commit whose binary `make test-upgrade` begins with.
FROM = HEAD~1

# Outside the workspace: its manifest says why.
COMPARE = --manifest-path crates/tollgate-bench-compare/Cargo.toml

# Tests with real nodes mostly wait: for elections, leases, deadlines. So more of them run at once than there are cores
# (RUST_TEST_THREADS has the last word), and those with real processes run beside all others, which have a lower priority.
# Both halves are the same `cargo test`, and a runner leaves out what the other half runs: a `cargo test` of fewer crates
# would choose other features and build half of everything anew. Tests send signals that a shell's background jobs would
# ignore.
WAITING_TESTS = $(shell echo $$((2 * $$(nproc))))
RUNNER = --config 'target."cfg(all())".runner = ["sh", "-c", "$(RUN_TEST)"]'
RUN_TEST = if [ $$CARGO_PKG_NAME = tollgate ]; then half=processes; else half=others; fi; \
	if [ $$half != $$HALF ]; then echo run with $$half; exit 0; fi; \
	case $$CARGO_PKG_NAME in tollgate|tollgate-server|tollgate-node) \
		export RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(WAITING_TESTS)};; esac; \
	exec env --default-signal=HUP,INT,QUIT \"$$0\" \"$$@\"
TEST_WORKSPACE = cargo $(RUNNER) test --workspace $(CORE_BUGS) $(FENCE_BUGS) --features tollgate-replica/planted-bugs

CORE_BUGS = --features tollgate-core/planted-bugs
SIM_BUGS = --features tollgate-sim/planted-bugs
FENCE_BUGS = --features tollgate-fence/planted-bugs
NODE_BUGS = --features tollgate/planted-bugs
SMALL_SIZES = --features tollgate-core/small-sizes

.DEFAULT_GOAL := help
.PHONY: help run dist strace valgrind hot-path test test-processes test-others test-slow test-upgrade test-variants python-client test-python-client lint \
	sim chaos mutants-core mutants-sim mutants-node fuzz bench bench-core bench-replica bench-storage bench-compare \
	bench-compare-build peers

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Start a three-node cluster on this machine, ready to lock (ARGS="--nodes 5" and so on)
	cargo run --profile quick -p tollgate -- dev $(ARGS)

# Some tests tamper with a node's system calls. Without strace they fail, and say so.
strace:
	@command -v strace > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes strace; \
	else echo "strace is missing: install it, or the tests of failing disks fail"; fi

# A debugger and `perf` find tollgate.debug beside the binary by the name written into it.
dist: ## Build the binary to ship in target/dist/: stripped, with its debug information in a file of its own
	cargo build --profile dist --locked --package tollgate --bin tollgate
	cd target/dist && objcopy --only-keep-debug tollgate tollgate.debug && \
		objcopy --strip-all --add-gnu-debuglink=tollgate.debug tollgate tollgate-stripped && \
		mv tollgate-stripped tollgate && ls -l tollgate tollgate.debug

test: strace ## Run every test
	$(TEST_WORKSPACE) --no-run
	$(MAKE) --no-print-directory -j 2 --output-sync=line test-processes test-others

test-processes:
	HALF=processes $(TEST_WORKSPACE) --lib --bins --tests --examples

test-others:
	HALF=others nice -n 10 $(TEST_WORKSPACE)

# Core and replica are compiled anew for these, which takes as long as a third of all other tests.
test-variants: ## Run the core's tests with small sizes, and the replica's upgrades to a version that does not exist yet
	SEQUENCES=5000 cargo test -p tollgate-core $(CORE_BUGS) $(SMALL_SIZES) --test it -- properties promises snapshots
	cargo test -p tollgate-replica --features planted-bugs,next-version --test it -- upgrades

test-slow: strace ## Compare the core with its oracle on SEQUENCES=1000000 histories; real processes under long faults
	SEQUENCES=$(SEQUENCES) cargo test --release -p tollgate-core $(CORE_BUGS) --test it -- --nocapture properties
	cargo test -p tollgate --test it -- --ignored --nocapture --test-threads 1 --skip upgrades::

# The earlier commit is built from a checkout of its own, which stays for the next time.
BEFORE = target/upgrade-from/$(FROM)

test-upgrade: ## Upgrade three nodes under load from the binary of an earlier commit: FROM=commit (the one before HEAD)
	git rev-parse --verify --quiet $(FROM)^{commit} > /dev/null || { echo "no such commit: FROM=$(FROM)"; exit 1; }
	rm -rf $(BEFORE)/source && mkdir -p $(BEFORE)/source
	git archive $(FROM) | tar -x -C $(BEFORE)/source
	cargo build --manifest-path $(BEFORE)/source/Cargo.toml --target-dir $(BEFORE)/target -p tollgate
	TOLLGATE_BEFORE=$(CURDIR)/$(BEFORE)/target/debug/tollgate cargo test -p tollgate --test it -- \
		--ignored --exact --nocapture upgrades::p4_p10_p12_an_upgrade_from_an_earlier_binary_under_load_is_told_to_no_caller

# What the program of docs/write-a-client.md needs, from PyPI: its libraries, and stubs made from the .proto files.
PYTHON = target/python-client/venv/bin/python
PROTO = crates/tollgate-proto/proto

python-client: ## Prepare docs/examples/client.py in target/python-client: libraries from PyPI, and stubs
	test -x $(PYTHON) || python3 -m venv target/python-client/venv
	$(PYTHON) -m pip install --quiet --requirement docs/examples/requirements.txt
	mkdir -p target/python-client/stubs
	$(PYTHON) -m grpc_tools.protoc -I $(PROTO) --python_out target/python-client/stubs \
		--grpc_python_out target/python-client/stubs $(PROTO)/tollgate/v1/*.proto

test-python-client: python-client ## Run docs/examples/client.py against three processes: forced release, dead lease, ...
	cargo build -p tollgate
	TOLLGATE=target/debug/tollgate PYTHONPATH=target/python-client/stubs $(PYTHON) docs/examples/client_test.py

# Instructions are counted by valgrind.
valgrind:
	@command -v valgrind > /dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes valgrind; \
	else echo "valgrind is missing: install it, or the hot path can't be counted"; fi

hot-path: valgrind ## Count the instructions that an operation takes, and compare them with those written down
	cargo xtask hot-path

lint: ## Check format, lints, docs and the rules of the house
	cargo fmt --all --check
	cargo fmt $(COMPARE) --check
	cargo clippy --workspace --all-targets $(CORE_BUGS) $(SIM_BUGS) $(NODE_BUGS) $(FENCE_BUGS) $(SMALL_SIZES) -- -D warnings
	cargo clippy --workspace -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	cargo xtask tidy
	cargo xtask layers

sim: ## Run random worlds with faults: SEEDS=1000 START=0, or one in detail: SEED=7
	cargo run --release -p tollgate-sim -- $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --start $(START))

chaos: strace ## Real processes under faults of every kind for MINUTES=15, NODES=5, GROUPS=4; again with its SEED=n
	CHAOS_MINUTES=$(MINUTES) CHAOS_SEED=$(SEED) CHAOS_NODES=$(NODES) CHAOS_GROUPS=$(GROUPS) CHAOS_GATEWAYS=$(GATEWAYS) \
		cargo test --profile quick -p tollgate --test it -- --ignored --exact --nocapture \
		chaos::faults_of_every_kind_for_minutes_break_no_promise

mutants-core: ## Plant each known bug in the core and show which test catches it
	cargo test -p tollgate-core $(CORE_BUGS) --test it -- --nocapture --exact mutants::every_planted_bug_is_caught

mutants-sim: ## Plant each known bug in replica and core and show after how many worlds it is caught
	cargo test --release -p tollgate-sim $(SIM_BUGS) --test it -- --ignored --nocapture --exact \
		mutants::every_planted_bug_is_caught

mutants-node: strace ## Plant each known bug in node, server and binary and show that its test catches it
	cargo xtask mutants-node

fuzz: ## Feed the decoders random and damaged bytes for SECONDS=60
	FUZZ_SECONDS=$(SECONDS) cargo test --release -p tollgate-core $(CORE_BUGS) --test it -- --nocapture fuzz::fuzz_

bench: ## Measure three processes: locks per second, latencies, CPU (ARGS="contended --own-cluster 3" and so on)
	cargo build --release -p tollgate
	target/release/tollgate bench $(if $(ARGS),$(ARGS),uncontended --clients 1,64,256,1024 --own-cluster 3)

bench-core: ## Measure the core: time per command, memory, snapshot stalls
	cargo bench -p tollgate-core --bench core

bench-replica: ## Measure replication without disk and network, beside bare raft-rs
	cargo bench -p tollgate-replica --bench replica

bench-storage: ## Measure the log on disk, with fsync, in target/ or BENCH_DIR
	cargo bench -p tollgate-replica --bench storage

# What is compared with comes from Debian's packages. What they start by themselves is stopped; what was there before is
# let be.
peers:
	@missing=; for tool in etcd java redis-server protoc setpriv; do command -v $$tool > /dev/null || missing="$$missing $$tool"; done; \
	for file in java/zookeeper.jar ../include/google/protobuf/struct.proto; do \
		test -e /usr/share/$$file || missing="$$missing $$file"; done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
		apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends \
			etcd-server redis-server zookeeper protobuf-compiler libprotobuf-dev default-jre-headless util-linux; \
		for service in etcd redis-server zookeeper; do service $$service stop > /dev/null 2>&1 || true; done; \
	else echo "missing:$$missing. Install etcd-server, redis-server, zookeeper, protobuf-compiler and libprotobuf-dev"; exit 1; fi

bench-compare-build: peers
	cargo build --release -p tollgate
	cargo build --release $(COMPARE) --target-dir target

bench-compare: bench-compare-build ## Measure beside etcd, ZooKeeper and Redis and write docs/benchmarks.md (ARGS="--figures pairs")
	target/release/tollgate-bench-compare $(if $(ARGS),$(ARGS),--document docs/benchmarks.md)
