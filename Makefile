# Needs only python3 (3.11 or newer, with venv) and make. `make help` prints the targets.
PYTHON ?= python3
BIN := .venv/bin
SEEDS ?= 1000

# Python keeps what it has compiled: the tests begin hundreds of processes, and each would compile all of it anew.
unexport PYTHONDONTWRITEBYTECODE

help: ## print this
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: .venv/ready ## make the virtual environment, once, with all that tests and deployments need

# Two stages, so that the demo waits for nothing that it does not need. Each step prints how long it takes, and then dots
# while it goes on. pip alone would print nothing, or a hundred lines. It compiles nothing, because Python compiles what is
# imported, and keeps that: most modules of aws-cdk-lib never are, and to compile all takes longer than to install them.
FOR_DEMO := server
FOR_DEPLOYMENT := aws,infra,server
FOR_TESTS := aws,docs,infra,server,test
FOR_DOCS := docs,server
FOR_PLOT := plot
FOR_SPARK := server,spark
define install
	@(while sleep 2; do printf .; done) & dots=$$!; trap 'kill $$dots; echo' EXIT; trap 'exit 130' INT TERM; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(1)]'
endef

.venv/ready-demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "fenceline needs Python 3.11 or newer; name one: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@echo "setup: a virtual environment in .venv, about 5 s"
	@$(PYTHON) -m venv .venv
	@echo "setup: the server, the command line and the client, 90 MB, about 20 s"
	$(call install,$(FOR_DEMO))
	@touch $@

.venv/ready: .venv/ready-demo
	@echo "setup: what deploys to AWS, 600 MB more, one to two minutes"
	$(call install,$(FOR_DEPLOYMENT))
	@echo "setup: what the tests need, 250 MB more, about a minute"
	$(call install,$(FOR_TESTS))
	@touch $@

.venv/ready-docs: .venv/ready-demo
	@echo "setup: what builds the documentation, 60 MB more, about 15 s"
	$(call install,$(FOR_DOCS))
	@touch $@

.venv/ready-spark: .venv/ready-demo
	@echo "setup: Spark for Python, 900 MB more, about a minute"
	$(call install,$(FOR_SPARK))
	@$(BIN)/python -m fenceline_spark.java 2>/dev/null || { echo "setup: a Java for Spark, since none of 17 or newer is here, 35 MB more, about 5 s"; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[$(FOR_SPARK),java]'; }
	@touch $@

.venv/ready-plot: .venv/ready
	@echo "setup: matplotlib for the plots, 170 MB more, about 20 s"
	$(call install,$(FOR_PLOT))
	@touch $@

demo: .venv/ready-demo ## load real events through the HTTP API, read them back, verify them; under a minute
	$(BIN)/python examples/demo.py

demo-spark: .venv/ready-spark ## count a web server's log by Spark, exactly once, while its driver is killed three times; two minutes
	$(BIN)/python examples/spark_access_log.py

test: setup .venv/ready-spark ## every test but those of `make prove`; some deploy two regions to an emulated AWS, which needs Node 22
	@# Four at once, for the two cores of a small machine, because many tests wait for processes. A group (Spark's session,
	@# the two deployed regions) is one worker's; the others fill what it leaves.
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m 'not prove'

prove: setup .venv/ready-spark ## what runs at night: every guard, every death and every server, the seeds of `make simulate`; hours
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m prove
	$(MAKE) simulate

test-deploy: setup ## the tests on two deployed regions alone
	$(BIN)/python -m pytest -m deploy tests/e2e

test-servers: setup ## the tests on real servers, none left out: needs Go, Java 17 and Maven
	FENCELINE_REQUIRE_SERVERS=1 $(BIN)/python -m pytest -n 2 --dist worksteal tests/contract tests/processes/test_faults.py

test-spark: setup .venv/ready-spark ## the tests that run Spark alone; need Java 17
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m 'spark and not prove' tests/spark

check: setup ## lint, types and the fast tests; about two minutes on two cores
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# Types and layers are checked beside the tests, because mypy uses one core, and tests wait for processes.
	{ $(BIN)/mypy && $(BIN)/lint-imports --no-logo; } & \
	$(BIN)/python -m pytest -n 4 -m 'not slow and not spark and not prove' --hypothesis-profile quick; \
	found=$$?; wait $$! && exit $$found

lint: setup ## lint, types and layers alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@# mypy uses one core. Meanwhile the other one compiles the tests, which both of their workers need, and checks the types
	@# of the console's modules, where Node is.
	{ $(BIN)/python -m pytest --collect-only -qq >/dev/null; $(BIN)/python -m tests.console.types; } & \
	$(BIN)/mypy; found=$$?; wait $$! && exit $$found
	$(BIN)/lint-imports --no-logo

simulate: setup ## search: the simulation over SEEDS seeds (1000), runs against the models, properties on fresh examples
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario combining --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario access --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario transactions --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario once --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario regions --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --scenario groups --seeds $(SEEDS)
	$(BIN)/python -m tests.models
	$(BIN)/python -m pytest -n 2 -m 'not slow and not spark and not prove' --hypothesis-profile fresh

compare: setup ## compare with an older version: make compare OLD=ref; answers and stored bytes, and both versions side by side
	$(BIN)/python -m tests.versions $(OLD) --seeds 200

models: .venv/ready-demo ## check the models of the protocol, and each guard of them; MODEL=Append GUARD="judge while young" tells a history
	@$(BIN)/python -m models $(MODEL) $(if $(GUARD),--without "$(GUARD)")

PLOTTED := build/bench-latencies.png

bench: setup $(if $(PLOT),.venv/ready-plot) ## measure, as ratios in one run: on a disk, on real servers, cold starts, regions; PLOT=1 draws; ARGS=… is for a part
	$(BIN)/python -m benchmarks $(ARGS)
ifndef ARGS
	$(BIN)/python -m benchmarks.real_servers$(if $(PLOT), --plot $(PLOTTED))
	$(BIN)/python -m benchmarks.s2_lite
	$(BIN)/python -m benchmarks.functions
	$(BIN)/python -m benchmarks.regions
endif

bench-spark: setup .venv/ready-spark ## measure Spark on fenceline beside Kafka and its connector, which Maven fetches; fifteen minutes, on Linux
	$(BIN)/python -m benchmarks.spark

docs: .venv/ready-docs ## build the documentation into site/; VERSION=0.1 builds that version, and makes it the latest
	$(BIN)/python -m tools.docs build $(if $(VERSION),--version $(VERSION))

docs-serve: .venv/ready-docs ## show the documentation at http://127.0.0.1:8000, and follow changes
	$(BIN)/python -m tools.docs serve

docs-links: .venv/ready-docs ## ask each web address that the documentation names; by hand, because CI has no network
	$(BIN)/python -m tools.docs links

docs-pictures: setup docs ## pictures of ten pages, light and dark, in build/docs-pictures; needs Chromium
	$(BIN)/python -m tests.docs.pictures

console-pictures: setup ## pictures of each page of the console, light and dark, in build/console-pictures; needs Chromium
	$(BIN)/python -m tests.console.pictures

clean: ## remove what setup and demo made
	rm -rf .venv build site cdk.out demo-data* *.egg-info

.PHONY: help setup demo demo-spark test test-deploy test-servers test-spark check lint simulate prove compare models bench bench-spark docs docs-serve docs-links docs-pictures console-pictures clean
