# Every target works from a bare clone, again and again. Installing needs the network, once; nothing else does.
#   PYTHON  the interpreter to make the environment of        make test PYTHON=python3.12
#   VENV    the folder of the environment                     make test VENV=/media/ssd/venv
#   EXTRAS  what is installed of train, jetson, report, dev   make lint EXTRAS=dev
#   TORCH   which torch on x86-64: cpu or default (what pip gives, with CUDA); without it, cpu where there is no NVIDIA GPU
#   TORCH_INDEX  the package index of torch's CPU build       make bench TORCH_INDEX=URL
#   JOBS    processes that share the tests, 0: only this one  make test JOBS=0 ARGS=--pdb
#   ARGS    further arguments for pytest                      make test ARGS="-k corpus -x"
#           in random order, with a seed to repeat it         make test ARGS=--random-order
#   TRY     interpreters to try the wheel on                  make wheel TRY="python3.8 python3.15"
#   ONLY    parts of the recorded figures to compute          make record ONLY=predictors

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= train,report,dev
JOBS ?= 2
ARGS ?=
ONLY ?=
TORCH ?=
TORCH_INDEX ?=
TRY ?= $(PYTHON)

RUN := "$(VENV)/bin/python" -m
PIP := "$(VENV)/bin/python" tools/pip_in_lines.py pip install --disable-pip-version-check

# Jetson boards have this file. Their torch is JetPack's: the environment uses the system's packages, packages that depend on
# torch are installed without dependencies, and constraints-board.txt keeps pip from installing another torch.
L4T ?= /etc/nv_tegra_release
BOARD := $(wildcard $(L4T))

.DEFAULT_GOAL := help
.PHONY: help install test test-all bench report record docs lint wheel format fleet-test fleet-demo clean

help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

install: ## create the environment in VENV (.venv) or update it; does nothing if it is up to date
	@command -v "$(PYTHON)" > /dev/null || { \
		echo "error: there is no $(PYTHON) on the PATH; install Python 3.8 or later, or name one: PYTHON=python3.X" >&2; \
		exit 1; }
	@wanted="$$(cat pyproject.toml constraints*.txt | cksum) $(EXTRAS) $$("$(PYTHON)" -V) $$PWD$(TORCH:%= %)"; \
	[ "$$(cat "$(VENV)/jetwatt-installed" 2> /dev/null)" = "$$wanted" ] || { \
		$(MAKE) --no-print-directory environment && echo "$$wanted" > "$(VENV)/jetwatt-installed"; }

# What comes, measured on x86-64 with Python 3.11. torch, its CUDA packages and triton are 5.3 of the 7 GB.
ifeq ($(findstring train,$(EXTRAS)),)
COMES := about 0.2 GB of downloads, 0.7 GB on disk, a minute on a fast line
else ifeq ($(BOARD),)
COMES := about 3 GB of downloads, 7 GB on disk, 2 minutes on a fast line; EXTRAS=dev leaves torch out (0.2 and 0.7 GB)
else
COMES := about 0.5 GB of downloads, 1.5 GB on disk, a few minutes; JetPack's torch stays
endif

# What `install` runs; docs/install.md has the same commands, to run by hand.
.PHONY: environment
environment:
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 8))' || { \
		echo "error: $(PYTHON) is $$("$(PYTHON)" -V), and the suite needs 3.8 or later; name another: PYTHON=python3.X" >&2; \
		exit 1; }
	@echo "installing $(EXTRAS) into $(VENV), once: $(COMES)"
	[ -x "$(VENV)/bin/python" ] || "$(PYTHON)" -m venv $(if $(BOARD),--system-site-packages) "$(VENV)"
	@[ "$$("$(VENV)/bin/python" -V)" = "$$("$(PYTHON)" -V)" ] || { \
		echo "error: $(VENV) has $$("$(VENV)/bin/python" -V), $$("$(PYTHON)" -V) is asked for: make clean, or VENV=FOLDER" >&2; \
		exit 1; }
	$(PIP) 'pip>=21.3'
ifeq ($(BOARD),)
	$(if $(findstring train,$(EXTRAS)),@$(RUN) tools.torch_build "$(TORCH)" "$(TORCH_INDEX)")
	$(PIP) -c constraints.txt -e ".[$(EXTRAS)]"
else
	$(PIP) -c constraints.txt -c constraints-board.txt -e ".[$(subst train,train-without-torch,$(EXTRAS))]"
	$(if $(findstring train,$(EXTRAS)),$(PIP) -c constraints.txt --no-deps ultralytics-opencv-headless ultralytics-thop)
	@! ls -d "$(VENV)"/lib/python*/site-packages/torch > /dev/null 2>&1 || { \
		echo "error: pip put a torch into $(VENV), before JetPack's: make clean, then make install; and please report it" >&2; exit 1; }
	@said=$$("$(VENV)/bin/python" -c 'import torch, torchvision' 2>&1) || { \
		echo "note: torch and torchvision cannot be imported by $$("$(PYTHON)" -V), so this board cannot train yet: see docs/install.md"; \
		printf '%s\n' "$$said" | tail -n 1; }
endif
	@echo "loading once what runs load, so that the first run need not compile it"
	@"$(VENV)/bin/python" tools/first_run.py

# The gates are strict where figures are computed as recorded, on any x86-64 processor with AVX2.
AS_RECORDED = env $$($(RUN) tools.kernels)
# JOBS processes use the cores already: further threads would wait for each other, busily. And what a computation frees
# stays in its process: having the kernel clear new pages takes a tenth of the time.
FRUGAL = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=1000000000 MALLOC_TRIM_THRESHOLD_=1000000000
TESTS = $(AS_RECORDED) $(FRUGAL) $(RUN) pytest tests -n $(JOBS) --dist worksteal --benchmark-disable

test: install ## run the quick tests, in JOBS processes: about 6 minutes; the first line says how long here
	@$(FRUGAL) $(RUN) tools.how_long quick $(JOBS)
	$(TESTS) -m "not exhaustive" $(ARGS)

test-all: install ## run all tests: about 20 minutes; the first line says how long here
	@$(FRUGAL) $(RUN) tools.how_long all $(JOBS)
	$(TESTS) $(ARGS)

bench: install ## measure the quick campaign on this machine into out/results.sqlite; at most 5 minutes after installing
	$(RUN) pytest benchmarks/test_training.py --campaign quick --results out/results.sqlite --time-budget 5min $(ARGS)

report: install ## make the report of out/results.sqlite into out/report, and open it if there is a desktop
	$(RUN) harness report --results out/results.sqlite --out out/report
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ] && command -v xdg-open > /dev/null; then xdg-open out/report/index.html; fi

record: install ## recompute the recorded figures and write them into README.md and docs; ONLY=PART,PART for some of them
	$(AS_RECORDED) $(RUN) tools.record $(if $(ONLY),--only "$(ONLY)")

docs: install ## build the documentation into out/docs; a broken link or something undocumented fails (Python 3.11 on)
	$(RUN) tools.docs.build

lint: install ## check style, docstrings and imports (ruff), and types (mypy)
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

wheel: install ## build wheel and sdist into dist/, and try the wheel in an empty environment of each Python in TRY
	$(RUN) tools.wheel.try_wheel $(foreach python,$(TRY),--python $(python))

format: install ## rewrite the sources to pass `make lint`
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

# Boards of the fleet have the Python of JetPack 5, 6 and 7, where this machine has it.
.PHONY: board-environments
board-environments: install
	@for version in 3.8 3.10 3.12; do \
		for python in python$$version "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/$$version.*/bin/python; do \
			"$$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" 2> /dev/null || continue; \
			$(MAKE) --no-print-directory install PYTHON="$$python" VENV=.venv-board-$$version EXTRAS=dev || exit 1; \
			break; \
		done; \
	done

fleet-test: board-environments ## test the fleet with real Slurm, munge and sshd on simulated boards, if they are installed
	JETWATT_FLEET_TESTS=1 $(RUN) pytest tests/fleet $(ARGS)

fleet-demo: install ## show a fleet of three simulated boards on this machine, and remove it afterwards
	PYTHON="$(VENV)/bin/python" tools/fleet_demo.sh

clean: ## remove the environment and all caches; results in out/ and .benchmarks/ stay
	test ! -e "$(VENV)/pyvenv.cfg" || rm -rf "$(VENV)"
	rm -rf .venv-board-* *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
