# Every target is one line: what it does lives in gpuplatform/bootstrap and in the management commands.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: demo-cluster load screenshots help-pictures bench-smoke help machine ready packages up setup test test-long test-images deb offline sbom fgpu lint audit format messages doctor images clean bench-launch bench-cluster bench-promote bench-fgpu bench-scheduler bench-packing bench-terminal bench-proxy bench-deployments bench-imports bench-files bench-growth bench-pages bench-api bench-abuse bench-failover bench-restart faults-virtual faults-elastic week-virtual faults

PYTHON := .venv/bin/python
VENV := $(PYTHON)
PARALLEL := $(MAKE) -s --no-print-directory -j 4
MANAGE := $(PYTHON) manage.py
STEP := sh gpuplatform/bootstrap/step.sh
RUNTIME := .venv/stamp-requirements
CLIENT := client/build/wheels/stamp
DEV := .venv/stamp-requirements-dev
NODE := node_modules/stamp
NODE_DEV := node_modules/stamp-dev

help: ## Show what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: machine ## Set everything up, run the platform, print its address and log-ins; Ctrl-C stops it
	@$(PARALLEL) ready && $(MANAGE) up

demo-cluster: $(RUNTIME) $(NODE) .env ## Run a demo of 50 simulated hosts with 8 GPUs each, and users; ARGS="--hosts N --users N"
	@sh gpuplatform/bootstrap/demo_cluster.sh $(ARGS)

setup: machine ## Set everything up like `make up`, but do not run it
	@$(PARALLEL) ready && $(MANAGE) up --setup-only

test: $(DEV) $(CLIENT) $(NODE_DEV) .env fgpu ## Set everything up for the tests, then run all but the campaigns
	@$(MANAGE) prepare --tests && sh gpuplatform/bootstrap/tests.sh short

test-long: $(DEV) $(CLIENT) $(NODE_DEV) .env fgpu ## Set everything up for the tests, then run the campaigns
	@$(MANAGE) prepare --tests && sh gpuplatform/bootstrap/tests.sh long

test-images: $(DEV) $(NODE_DEV) .env fgpu ## Set everything up for the tests, then build every image of the catalogue from nothing
	@$(MANAGE) prepare --tests && sh gpuplatform/bootstrap/tests.sh images

machine:
	@sh gpuplatform/bootstrap/machine.sh

ready: $(RUNTIME) $(CLIENT) $(NODE) .env fgpu packages ## Install what the platform needs here, and no more: no tables, no demo, no images

packages: | $(VENV)
	@sh gpuplatform/bootstrap/packages.sh

fgpu: $(RUNTIME) ## Build the hook that divides a GPU, and the simulated driver; up to date takes no time
	@$(STEP) "The hook that divides a GPU" $(MAKE) -s -C fgpu PYTHON=../$(PYTHON) OUT=build

lint: $(DEV) $(NODE_DEV) .env ## Check format, style, types, layers, settings and migrations
	@sh gpuplatform/bootstrap/lint.sh

audit: $(RUNTIME) ## Look the pinned packages up among known vulnerabilities, where their databases can be reached
	@$(PYTHON) -m gpuplatform.bootstrap.checks.audit $(ARGS)

format: $(DEV) ## Format the code and sort its imports
	@$(PYTHON) -m ruff check --select I --fix . && $(PYTHON) -m ruff format .

manual: $(DEV) ## Make the manual page of the command line of its commands
	@PYTHONPATH=client $(PYTHON) -m gpuplatform_client.cli.manual > client/gpuplatform.1

messages: $(DEV) .env ## Bring the catalogues of texts in locale/ to the sources, and compile them
	@$(MANAGE) messages

sbom: $(DEV) $(CLIENT) fgpu ## Print what the platform ships that others have written, as CycloneDX in JSON
	@$(PYTHON) -m gpuplatform.bootstrap.sbom $$(TZ=UTC git log -1 --date=format-local:%Y%m%d.%H%M%S --format='%cd+%h %ct')

deb: $(DEV) ## Build the Debian package of the platform into build/, for servers without git, npm, compiler or network
	@sh gpuplatform/bootstrap/deb.sh build

offline: $(DEV) ## Build an archive with that package, what it needs of the distribution, and session images; ARGS="IMAGE..."
	@sh gpuplatform/bootstrap/offline.sh build $(ARGS)

doctor: ## Say what is missing or broken on this machine; GPU=1: measure how its GPU is divided, for ten minutes
	@test -x $(PYTHON) || { echo "FAIL  .venv: missing; run 'make ready'"; exit 1; } && $(MANAGE) doctor $(if $(GPU),--gpu) $(ARGS)

images: $(RUNTIME) $(NODE) .env ## Build the session images that are missing or outdated
	@$(MANAGE) with_services build_images

bench-smoke: $(DEV) $(NODE_DEV) .env fgpu ## Run every benchmark and campaign for a few seconds, to show that it works; ARGS="TARGET..."
	@$(MANAGE) prepare --tests && $(PYTHON) -m bench.smoke $(ARGS)

bench-launch: $(DEV) $(NODE) .env ## Measure launch and release against the bare Docker Engine
	@$(PYTHON) -m bench.launch

bench-cluster: $(DEV) $(NODE) .env ## Measure clusters against the bare Docker Engine, and their network against the hosts'
	@$(PYTHON) -m bench.cluster

bench-promote: $(DEV) $(NODE) .env ## Measure from one session's release to the next one's start
	@$(PYTHON) -m bench.promote

bench-fgpu: $(DEV) .env ## Measure what the hook costs and how exact its gate is, on the simulated driver
	@$(PYTHON) -m bench.fgpu

bench-scheduler: $(DEV) .env ## Measure the scheduler: speed, memory, packing; ARGS="--nodes CSV --pods CSV" for a trace
	@$(PYTHON) -m bench.scheduler $(ARGS)

bench-packing: $(DEV) .env ## Compare placement policies on lists of sessions: GPUs used, waits; ARGS="--nodes CSV --pods CSV..."
	@$(PYTHON) -m bench.packing $(ARGS)

bench-terminal: $(DEV) $(NODE) .env ## Measure a keystroke's echo in a terminal against the raw exec socket, and a flood of output
	@$(PYTHON) -m bench.terminal

bench-proxy: $(DEV) $(NODE) .env ## Measure the way to apps against configurable-http-proxy and nginx; ARGS="--rounds N"
	@$(PYTHON) -m bench.proxy $(ARGS)

bench-deployments: $(DEV) .env ## Measure requests spread over replicas against nginx, and memory of open streams; ARGS="--rounds N"
	@$(PYTHON) -m bench.deployments $(ARGS)

bench-imports: $(DEV) $(NODE) .env ## Measure imports of ten shapes of repositories, and starts with them against plain sessions; ARGS="--rounds N --shapes S"
	@$(PYTHON) -m bench.imports $(ARGS)

bench-pages: $(DEV) $(NODE) .env ## Measure every page at 1,000 hosts and 10,000 sessions, the list with 8 clients, and first paints and clicks in Chromium
	@$(PYTHON) -m bench.pages $(ARGS)

bench-api: $(DEV) $(NODE) .env ## Measure every endpoint of the API at 1,000 hosts and 10,000 sessions against a view that does nothing
	@$(PYTHON) -m bench.api $(ARGS)

bench-growth: $(DEV) $(NODE) .env ## Measure what 100, 300 and 1,000 hosts ask of everything, and how each cost grows; ARGS="--svg FILE"
	@$(PYTHON) -m bench.growth $(ARGS)

load: $(DEV) $(NODE) .env ## Measure a whole platform under hosts, sessions, browsers, terminals and programs; ARGS="--scale 0.1"
	@$(PYTHON) -m bench.load $(ARGS)

bench-abuse: $(DEV) $(NODE) .env ## Measure what an honest user notices while others attack
	@$(PYTHON) -m bench.abuse

bench-files: $(DEV) .env ## Measure uploads against a raw copy and downloads against nginx; ARGS="--rounds N --megabytes N"
	@$(PYTHON) -m bench.files $(ARGS)

bench-failover: $(DEV) .env ## Measure what users notice while Redis, and PostgreSQL, fail over
	@$(PYTHON) -m bench.failover

bench-restart: $(DEV) .env ## Measure what users notice while each process is replaced
	@$(MANAGE) prepare --tests && $(PYTHON) -m bench.restart

faults-virtual: $(DEV) .env ## Tell 20,000 stories of random faults to the platform in memory, and count what is lost; ARGS="--seeds N --first N"
	@$(PYTHON) -m tests.virtual.campaign $(ARGS)

faults-elastic: $(DEV) .env ## Tell 20 stories of failing providers, hosts and schedulers of an elastic pool; ARGS="--seeds N --first N"
	@$(PYTHON) -m tests.virtual.elastic_campaign $(ARGS)

week-virtual: $(DEV) .env ## Live a week of 200 users on a clock that is set, and say how all that is stored grows; ARGS="--users N --days N"
	@$(PYTHON) -m tests.virtual.week $(ARGS)

faults: $(DEV) .env fgpu ## Break a cluster of real containers in 500 ways and more, and count what is lost; ARGS="--faults N --seed N"
	@$(MANAGE) prepare --tests && $(PYTHON) -m tests.cluster.campaign $(ARGS)

screenshots: $(DEV) $(NODE_DEV) .env ## Take pictures of every page, in both themes and languages and four widths, into var/screenshots
	@$(PYTHON) -m bench.screenshots

help-pictures: $(DEV) $(NODE_DEV) .env ## Take the pictures of the help anew, into docs/images
	@$(PYTHON) -m pytest -q tests/help_pictures.py

clean: ## Remove what make installed here; keeps .env and the data in var/
	@rm -rf .venv node_modules fgpu/build client/build var/static .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV):
	@sh gpuplatform/bootstrap/venv.sh

$(RUNTIME): requirements.txt constraints.txt | $(VENV)
	@sh gpuplatform/bootstrap/venv.sh requirements.txt && touch $@

$(CLIENT): client/zipapp.txt | $(VENV)
	@sh gpuplatform/bootstrap/client_wheels.sh && touch $@

$(DEV): requirements-dev.txt $(RUNTIME)
	@sh gpuplatform/bootstrap/venv.sh requirements-dev.txt && touch $@

$(NODE): package-lock.json package.json | $(VENV)
	@sh gpuplatform/bootstrap/node.sh --omit=dev && touch $@

$(NODE_DEV): package-lock.json package.json | $(VENV)
	@sh gpuplatform/bootstrap/node.sh && touch $(NODE) $@

.env: | $(VENV)
	@$(PYTHON) gpuplatform/bootstrap/env_file.py
