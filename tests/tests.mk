# How tests are built and run; the Makefile includes it. A test is tests/test_*.c,
# and what it needs stands at the end of its name:
#
#   _n124   runs on 1, 2 and on 4 ranks (each digit is a number of them)
#   _emu    links the CUDA kernels compiled for the processor; needs a C++ compiler
#   _faults links tests/faults_calls.c, whose calls for memory and files fail, and the
#           programs data, ckpt and hf as functions
#   _nvcc   needs the headers of the CUDA toolkit, or of cuDNN
#
# tests/*.bats are jobs and commands, tests/gpu what a machine with a GPU runs.
DEPS_TEST := g++ bats jq clang-format hdf5-tools slurm-wlm munge environment-modules dict-gcide \
    iproute2 util-linux perl procps kmod
DEPS_HASH := clang libomp-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
TOOLS_TEST := g++ bats jq h5dump slurmctld slurmd munged modulecmd ip unshare prove mpirun
MISSING_TEST := $(if $(and $(call have,$(TOOLS_TEST)),$(wildcard /usr/share/dictd/gcide.dict.dz)),,yes)
HAVE_CXX := $(shell command -v $(CXX))
TEST_SRC := $(sort $(wildcard tests/test_*.c))
TEST_SRC := $(if $(HAVE_CXX),$(TEST_SRC),$(foreach t,$(TEST_SRC),$(if $(findstring _emu,$(t)),,$(t))))
TEST_SRC := $(filter-out $(if $(filter 1,$(WITH_CUDA)),,%_nvcc.c) $(if $(HAVE_CUDNN),,%_dnn_nvcc.c),$(TEST_SRC))
TEST_BIN := $(TEST_SRC:tests/%.c=$(B)/tests/%)
# one wrapper for each number of ranks, for prove
ranks_of  = $(foreach d,1 2 3 4 5 6 7 8 9,$(findstring $(d),$(lastword $(subst _n, ,$(1)))))
TESTS_N  := $(shell printf '%s\n' $(TEST_BIN) | grep -E '_n[1-9]+$$')
TESTS_1  := $(filter-out $(TESTS_N),$(TEST_BIN))
WRAPPERS := $(foreach t,$(TESTS_N),$(foreach n,$(call ranks_of,$(t)),$(t).np$(n).t))
TESTS_EMU := $(foreach t,$(TEST_BIN),$(if $(findstring _emu,$(t)),$(t)))
# Four lanes, in each one test after the other: jobs on Slurm, which mostly wait; ranks
# that die, and whole programs on files and nodes; what else runs whole programs; tests
# in C (tests/DESIGN.md).
# every test by tests/bounded, which ends what hangs
PROVE    := prove --timer --exec tests/bounded
LANES    := -j4 --rules 'seq=tests/{slurm_*,cluster}.bats' \
            --rules 'seq={$(B)/tests/test_*_dead,tests/{ckpt_*,data_*,health_*,train*,inputs}.{bats,t}}' \
            --rules 'seq=tests/*.{bats,t}' --rules 'seq=**'
# fuzzers: make fuzz, and in make check their corpora alone
FUZZERS  := $(sort $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c)))
REPLAYS  := $(FUZZERS:%=$(B)/fuzz/%)
# cost by ranks, over a stub of src/comm/comm.c
GROWN    := $(B)/growth/growth
BATS     := tests/style.t $(sort $(wildcard tests/*.bats)) tests/inputs.t

# programs that tests/faults.c calls
FAULTS   := $(addprefix $(B)/tests/,faults.o faults_calls.o) $(foreach m,data ckpt hf,$(B)/src/cmd/$(m).called.o $(patsubst %.c,$(B)/%.o,$(wildcard src/cmd/$(m)_*.c)))
# linked before the library, this object makes crash points work
CRASH    := $(B)/checkpoint/files/ckpt_crash.points.o
CRASHING := $(B)/crash/bin/tessera-train
BENCH    := $(B)/bench/tessera-bench
REFERENCE := $(B)/docs/reference/training
SOAK     := $(addprefix $(B)/soak/,victim shim.so)
EMULATOR := $(addprefix $(B)/tests/cuda_emulator,.o _memory.o _streams.o)
EMULATED := $(if $(HAVE_CXX),$(CUDA_SRC:%.cu=$(B)/%.emulated.o) $(B)/kernels/cuda/cuda_table.emulated.o $(EMULATOR))
# the same with a look at every access: tests/cuda_race.h
RACED    := $(if $(HAVE_CXX),$(CUDA_SRC:%.cu=$(B)/%.raced.o) $(B)/kernels/cuda/cuda_table.emulated.o $(EMULATOR) $(B)/tests/cuda_race.o)
# libraries of GPUs that tests open where there are none
NVMLS    := $(addprefix $(B)/fake/,libnvidia-ml.so.1 libnvidia-ml-old.so)
# the tests of ops on a GPU, and with the emulator in its place (tests/gpu); of
# the CPU's kernel sets there is nothing to compare there, nor are there such pages
OP_TESTS := $(filter-out test_kernels_same test_kernels_pages,$(patsubst tests/%.c,%,$(sort $(wildcard tests/test_kernels_*.c))))
MANAGED  := $(addprefix $(B)/tests/gpu/,managed.o managed_again.o managed_memory.o)
WRAPPED  := -Wl,--wrap=aligned_alloc,--wrap=free,--wrap=kernels_all -Wl,--as-needed
# what has nothing to compute with elsewhere: NCCL, and cuDNN where it is known
GPU_ONLY := $(B)/gpu/test_nccl $(if $(HAVE_CUDNN),$(B)/gpu/test_attention_cudnn)
GPU      := $(if $(filter 1,$(WITH_CUDA)),$(OP_TESTS:%=$(B)/gpu/%) $(GPU_ONLY) $(B)/gpu/products $(B)/gpu/predict)
# what tests/gpu does around a test is the same for each: three small ones show it
GPU_REHEARSAL := $(addprefix $(B)/gpu/rehearsal/test_kernels_,activation update $(if $(HAVE_CXX),bf16))
RACES    := $(addprefix $(B)/race/,$(OP_TESTS) test_cuda_probe_emu)
# those that take seconds, for make check
RACES_SHORT := $(if $(HAVE_CXX),$(filter-out %gemm %gemm_bf16 %norm %moe %attention %attention_chunk,$(RACES)))

# --- objects ------------------------------------------------------------------
$(B)/tests/test_health_gpu.o: CPPFLAGS += $(if $(filter 1,$(WITH_CUDA)),-DKERNELS_CUDA)
$(addprefix $(B)/tests/,gpu/managed_cuda.o $(patsubst %,%.o,cuda_blas_fake cuda_dnn_fake) $(notdir $(patsubst tests/%.c,%.o,$(wildcard tests/*_nvcc.c)))): CPPFLAGS += -isystem $(CUDA_ROOT)/include
$(B)/tests/test_cuda_parts_dnn_nvcc.o: CPPFLAGS += -DDRIVER_DOUBLE='"$(abspath $(B))/tests/libcuda.so.1"'

CXXFLAGS = -std=c++17 $(OPT) -Wall -Wextra -Wshadow $(if $(filter 1,$(WERROR)),-Werror) $(SANITIZE) \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off -pthread -MMD -MP
# a vector at an address that no GPU takes ends the program, with words if SAN=1
ALIGNED := -fsanitize=alignment -fsanitize-undefined-trap-on-error

define compile_cxx
@mkdir -p $(@D)
@echo "  CXX   $<$(1)"
$(Q)$(CXX) -I. $(CXXFLAGS) $(2) -c $< -o $@
endef
define shared
@mkdir -p $(@D)
@echo "  CC    $@"
$(Q)$(CC) $(filter-out -MMD -MP -fopenmp $(SANITIZE) $(COVER),$(CPPFLAGS) $(CFLAGS)) $(1) -fPIC -shared \
    -Wl,-soname,$(@F) -o $@ $(filter %.c,$^) -ldl
endef

$(B)/tests/%.o: tests/%.cc
	$(call compile_cxx,,)

# shared memory gets a section of its own: g++ forgets that attribute in templates
$(B)/%.emulated.o: %.cu
	$(call compile_cxx, (emulated),$(if $(SANITIZE),,$(ALIGNED)) -include tests/cuda_emulator.h -x c++)
	$(Q)objcopy --rename-section .bss=cuda_shared $@

$(B)/%.emulated.o: %.c
	$(call compile, (emulated),-DCUDA_EMULATED)

# with calls at every access, which tests/cuda_race.cc answers
$(B)/%.raced.o: CXXFLAGS := $(filter-out $(SANITIZE),$(CXXFLAGS)) -O1 -fsanitize=thread
$(B)/%.raced.o: %.cu
	$(call compile_cxx, (raced),$(ALIGNED) -include tests/cuda_emulator.h -x c++)
	$(Q)objcopy --rename-section .bss=cuda_shared $@

$(CRASH): checkpoint/files/ckpt_crash.c
	$(call compile, (crash points),-DCKPT_CRASH_POINTS)

# its main by another name
$(B)/%.called.o: $(B)/%.o
	$(Q)objcopy --redefine-sym main=$(notdir $*)_main $< $@

# one of the processor's threads: it is the kernels' that count here
$(B)/race/%.o: tests/%.c
	$(call compile, (raced),-DCHECK_THREADS_MAX=1)

# --- tests --------------------------------------------------------------------
$(B)/tests/%: $(B)/tests/%.o $(B)/tests/tap.o $(CRASH) $(LIB)
	$(call link,)

# those of the emulator itself have kernels of their own
EMU_OWN := $(addprefix $(B)/tests/,test_cuda_race_emu test_cuda_emulator_emu)
$(filter-out $(EMU_OWN) %_same,$(TESTS_EMU) $(filter $(B)/tests/test_kernels%,$(TEST_BIN))): $(EMULATED)
$(EMU_OWN): $(B)/tests/cuda_emulator.o
$(B)/tests/test_cuda_race_emu: $(B)/tests/cuda_race_cases.raced.o $(B)/tests/cuda_race.o
$(B)/tests/test_cuda_emulator_emu: $(B)/tests/cuda_emulator_cases.emulated.o
$(B)/tests/test_gpu_attention_emu: $(B)/tests/gpu/attention_pair.o
$(B)/tests/test_gpu_managed: $(MANAGED)
$(B)/tests/test_gpu_managed: LDFLAGS += $(WRAPPED)
$(addprefix $(B)/tests/,test_model test_model_tuned test_model_sequence test_model_device_emu): $(B)/tests/model_reference.o
$(filter %_faults,$(TEST_BIN)): $(FAULTS)
$(B)/tests/test_cuda_blas_nvcc: $(B)/tests/cuda_blas_fake.o
$(B)/tests/test_cuda_dnn_nvcc $(B)/tests/test_cuda_parts_dnn_nvcc: $(B)/tests/cuda_dnn_fake.o
$(B)/tests/test_cuda_parts_dnn_nvcc: | $(B)/tests/libcuda.so.1
$(addprefix $(B)/tests/,test_health_gpu test_health_probe_emu test_system): | $(NVMLS)
$(filter $(B)/tests/test_comm_tensors% $(B)/tests/test_replica_device% $(B)/tests/test_replica_nccl% $(B)/tests/test_replica_frozen% $(B)/tests/test_group_dead $(B)/tests/test_group_tensors%,$(TEST_BIN)): $(B)/tests/deferred_memory.o $(B)/tests/nccl_fake.o
$(B)/tests/test_replica_nccl_n24: LDFLAGS += -Wl,--wrap=comm_tensors_create,--wrap=clock_sleep

# tests/growth/stub_comm.c goes before the functions of that file; what it needs itself
# is weak, too, and not taken from a library
STUBBED := $(B)/growth/comm.o $(B)/growth/comm_messages.o
$(B)/growth/%.o: $(B)/src/comm/%.o
	@mkdir -p $(@D)
	$(Q)objcopy --weaken $< $@

$(B)/tests/test_ckpt_plan $(B)/tests/test_replica_nodes: $(B)/tests/growth/stub_comm.o $(STUBBED) $(B)/src/base/timeline.o
$(GROWN): $(patsubst %.c,$(B)/%.o,$(wildcard tests/growth/*.c)) $(STUBBED) $(B)/src/base/timeline.o $(B)/tests/tap.o $(LIB)
	$(call link,)

$(REPLAYS): $(B)/fuzz/%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/fuzz/replay.o $(B)/tests/tap.o $(LIB)
	$(call link,)

# what reads data, by clang with its fuzzer; no OpenMP, whose library clang may lack,
# and of the kernels, which compute nothing there, the set that compiles quickly
$(FUZZERS:%=$(B)/fuzz_%): $(B)/fuzz_%: $(B)/tests/fuzz/fuzz_%.o $(B)/tests/tap.o $(LIB)
	$(call link,-fsanitize=fuzzer)

define wrapper
$(1).np$(2).t: $(1)
	$$(Q)printf '%s\n' '#!/bin/sh' 'exec tests/mpirun $(2) $(1)' > $$@ && chmod +x $$@
endef
$(foreach t,$(TESTS_N),$(foreach n,$(call ranks_of,$(t)),$(eval $(call wrapper,$(t),$(n)))))

$(B)/race/test_%: $(B)/race/test_%.o $(B)/tests/tap.o $(B)/tests/cuda_race_tables.o $(RACED) $(LIB)
	$(call link,-Wl$(comma)--wrap=kernels_all)

$(B)/gpu/test_%: $(B)/tests/test_%.o $(B)/tests/tap.o $(MANAGED) $(B)/tests/gpu/managed_cuda.o $(LIB)
	$(call link,$(WRAPPED))

$(B)/gpu/test_attention_cudnn: $(B)/tests/gpu/attention_pair.o
$(GPU_ONLY): $(B)/gpu/%: $(B)/tests/gpu/%.o $(B)/tests/tap.o $(LIB)
	$(call link,-Wl$(comma)--as-needed)

# only bf16 needs the emulator there: what takes fp32 is quicker on the CPU's table
$(filter %bf16,$(GPU_REHEARSAL)): $(EMULATED)
$(B)/gpu/rehearsal/test_%: $(B)/tests/test_%.o $(B)/tests/tap.o $(MANAGED) $(B)/tests/gpu/managed_host.o $(LIB)
	$(call link,$(WRAPPED))

$(B)/gpu/products: $(B)/tests/gpu/products.o $(LIB)
	$(call link,-Wl$(comma)--as-needed)

$(B)/gpu/predict: $(patsubst %.c,$(B)/%.o,$(wildcard tests/gpu/predict*.c)) $(LIB)
	$(call link,-Wl$(comma)--as-needed)

# the same as one rank of many
$(B)/gpu/predict_ranks: $(patsubst %.c,$(B)/%.o,$(wildcard tests/gpu/predict*.c)) $(B)/tests/growth/stub_comm.o $(STUBBED) $(B)/src/base/timeline.o $(LIB)
	$(call link,-Wl$(comma)--as-needed)

$(B)/predict: $(B)/tests/predict.o $(LIB)
	$(call link,)

# --- programs and libraries for tests -------------------------------------------
# with crash points; never installed
$(B)/crash/bin/tessera-%: $(CRASH) $(B)/bin/tessera-%
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(CRASH) $(patsubst %.c,$(B)/%.o,src/cmd/$*.c $(wildcard src/cmd/$*_*.c) src/cmd/cmd_main.c) $(LIB) $(LDLIBS)

$(B)/soak/victim: $(B)/tests/soak/victim.o $(B)/tests/soak/victim_flips.o $(B)/tests/tap.o $(CRASH) $(LIB)
	$(call link,-rdynamic)

# ratios to what the machine allows: tests/bench/bench.h
$(BENCH): $(patsubst %.c,$(B)/%.o,$(wildcard tests/bench/*.c)) $(B)/src/cmd/cmd_main.o $(LIB) | $(B)/bench/nodes
	$(call link,)
$(B)/bench/nodes: tests/bench/nodes
	@mkdir -p $(@D) && cp $< $@

# programs that are compared with Python's
INTEROP := $(patsubst tests/%.c,$(B)/%,$(wildcard tests/interop/*.c))
$(B)/interop/step: $(B)/tests/bench/bench_model.o
$(INTEROP): $(B)/interop/%: $(B)/tests/interop/%.o $(LIB)
	$(call link,)

# the program of make hash without libraries, for another processor's emulator;
# what it does not reach may lack its library
$(B)/alone/tessera-hash: LDLIBS := -ldl -lm
$(B)/alone/tessera-hash: $(addprefix $(B)/,src/cmd/hash.o tests/hash_alone.o) $(LIB)
	$(call link,-Wl$(comma)--gc-sections)

$(B)/http_server: $(B)/tests/http_server.o
	$(call link,)

$(B)/soak/shim.so: tests/soak/shim.c tests/soak/shim_store.c tests/soak/shim.h
	$(call shared,)

$(NVMLS): tests/nvml_fake.c healthcheck/health_nvml.h
	$(call shared,$(if $(findstring old,$@),-DNVML_FAKE_OLD))

$(B)/tests/libcuda.so.1: tests/cuda_driver_double.c
	$(call shared,)

# --- targets -------------------------------------------------------------------
hash-deps: ## install what make hash can use besides: clang, aarch64, qemu (as root)
	apt-get install -y -qq --no-install-recommends $(DEPS_HASH)

ifeq ($(MISSING_BUILD),)
# each kernel once for each kind of GPU, warnings are errors
PTXAS := $(foreach a,$(CUDA_EVERY),$(CUDA_SRC:kernels/cuda/%.cu=$(B)/archs/%.$(a).txt))
define arch
$(B)/archs/%.$(1).txt: kernels/cuda/%.cu $(wildcard kernels/cuda/*.h kernels/cuda/device/*.h)
	@mkdir -p $$(@D)
	@echo "  NVCC  $$< (sm_$(1))"
	$$(Q)$(NVCC) -I. $$(NVCCFLAGS) -Werror all-warnings -Xptxas -v -arch=sm_$(1) -cubin $$< -o $$@.cubin >$$@ 2>&1 || { cat $$@; exit 1; }
endef
$(foreach a,$(CUDA_EVERY),$(eval $(call arch,$(a))))

archs: $(PTXAS) ## registers and spills of the CUDA kernels for all kinds of GPUs (ALL=1: each)
	@tests/registers tests/registers.spills $(PTXAS)

gpu: $(GPU) ## tests for a machine with a GPU: tests/gpu/run

tests: $(TEST_BIN) $(REPLAYS) $(GROWN) $(WRAPPERS) $(NVMLS) $(GPU) $(GPU_REHEARSAL) $(B)/gpu/predict $(B)/gpu/predict_ranks $(B)/predict $(SOAK) $(CRASHING) $(B)/http_server $(INTEROP) $(BENCH) $(REFERENCE)

# The tests that need Slurm say themselves that they skip when it is missing and
# cannot be installed.
check: $(if $(and $(MISSING_TEST),$(filter 0,$(shell id -u))),deps) ## build, run every test
	+@$(MAKE) --no-print-directory WERROR=$(WERROR) all tests $(RACES_SHORT) tiny-data
	TESSERA_BIN=$(abspath $(B)/bin) $(PROVE) --comments $(LANES) $(TESTS_1) $(REPLAYS) $(GROWN) $(RACES_SHORT) $(GPU_REHEARSAL) $(WRAPPERS) $(BATS)

bench: $(BENCH) ## all benchmarks
	@for name in step gemm data ckpt comm infer; do echo "== $$name"; $(BENCH) $$name || exit 1; done

soak-ckpt: $(SOAK) ## kill, fill, damage and cut the power of checkpoints everywhere
	tests/soak/matrix $(B)/soak

soak-kills: all ## a run that is killed a thousand times on 1 to 4 ranks (KILLS)
	KILLS=$(or $(KILLS),1000) TESSERA_BIN=$(abspath $(B)/bin) bats -f 'killed at random' tests/train.bats

doors: all ## what a stranger on the node can do to a run (as root)
	TESSERA_BIN=$(abspath $(B)/bin) tests/doors

other-debian: ## build and a short test on Debian's next version, in a chroot (as root, by debootstrap; SUITE=trixie)
	$(Q)tests/other-debian $(DEPS_BUILD) g++ bats jq hdf5-tools iproute2 util-linux procps

slurm-versions: ## jobs, nodes and drains under Slurm 20.11, 22.05 and 24.11, in chroots (as root, by debootstrap)
	$(Q)tests/slurm-versions $(DEPS_BUILD) $(filter-out clang-format,$(DEPS_TEST))

matrix: all ## every strategy on 1 to 8 ranks, with every style of model
	TESSERA_BIN=$(abspath $(B)/bin) tests/matrix

hash: $(B)/bin/tessera-hash ## the same bits everywhere, as README has them (UPDATE=1 writes them there)
	+@BUILD=$(B) WITH_MPI=$(WITH_MPI) MAKE="$(MAKE)" tests/hash $(if $(filter-out 0,$(UPDATE)),--update)

demo: $(if $(and $(MISSING_TEST),$(filter 0,$(shell id -u))),deps) ## one sbatch through a bad and a dead node, to the same bits
	+@$(MAKE) --no-print-directory all
	@TESSERA_BIN=$(abspath $(B)/bin) tests/demo

storm: all ## nodes cut off and killed at random until a run is done (MTBF=60 MINUTES=20 SEED=1), to the same bits
	@$(if $(MTBF),MTBF=$(MTBF)) $(if $(MINUTES),MINUTES=$(MINUTES)) $(if $(SEED),SEED=$(SEED)) TESSERA_BIN=$(abspath $(B)/bin) tests/storm

soak-cluster: all ## every kind of fault on a real Slurm, drawn by SEED, for MINUTES (SEED=1 MINUTES=10), to the same bits (as root)
	@TESSERA_BIN=$(abspath $(B)/bin) $(if $(ONLY),ONLY="$(ONLY)") tests/soak_cluster $(or $(SEED),1) $(or $(MINUTES),10)

demo-chat: $(if $(and $(MISSING_TEST),$(filter 0,$(shell id -u))),deps) ## a pretrained model, tuned through a dead node, measured and exported
	+@$(MAKE) --no-print-directory all
	@TESSERA_BIN=$(abspath $(B)/bin) tests/demo-chat

interop: all tests ## beside Streaming, S3, Hugging Face, LLM Foundry, llama.cpp, h5py
	TESSERA_BIN=$(abspath $(B)/bin) $(PROVE) $(filter-out %/dcp.sh %/torch_step.sh %/track.sh %/wandb.sh,$(sort $(wildcard tests/interop/*.sh)))

interop-dcp: all $(B)/interop/side ## checkpoints beside PyTorch's (downloads 3 GB)
	TESSERA_BIN=$(abspath $(B)/bin) tests/interop/dcp.sh

interop-track: all ## trackers beside TensorBoard, MLflow, Prometheus and W&B (downloads 1 GB)
	TESSERA_BIN=$(abspath $(B)/bin) $(PROVE) tests/interop/track.sh tests/interop/wandb.sh

interop-step: all $(B)/interop/step ## the step beside PyTorch's on this CPU (downloads 3 GB)
	TESSERA_BIN=$(abspath $(B)/bin) tests/interop/torch_step.sh

sanitize: ## the C tests under ASan and UBSan
	+@$(MAKE) --no-print-directory SAN=1 sanitize-run

# calls that fail take malloc()'s place, as the sanitizer does
sanitize-run: TESTS_1 := $(filter-out %_faults,$(TESTS_1))
sanitize-run: $(TESTS_1) $(REPLAYS)
	ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 TESSERA_BIN=$(abspath $(B)/bin) $(PROVE) --comments $(TESTS_1) $(REPLAYS)

# TESTS="test_err tests/hash.bats" only these, else all that needs no GPU; kernels
# of GPUs, which are C++, are not counted
COVERED = $(if $(TESTS),$(patsubst test_%,$(B)/tests/test_%,$(TESTS)),$(TESTS_1) $(REPLAYS) $(WRAPPERS) $(BATS))
coverage: ## lines and branches that tests reach, by folder, and what none does (TESTS="NAME...")
	+@$(MAKE) --no-print-directory COVERAGE=1 coverage-run

coverage-run: $(if $(filter tests/%,$(COVERED)),all tests tiny-data) $(filter $(B)/%,$(COVERED))
	TESSERA_BIN=$(abspath $(B)/bin) tests/coverage $(B) $(PROVE) $(LANES) $(COVERED)

plan-random: all tiny-data ## planned memory beside the peak of 500 runs drawn at random
	tests/plan_random $(abspath $(B))/bin $(abspath $(B))/tiny-data/train

name-culprit: all tiny-data $(B)/tests/test_comm_beat_dead ## ranks that hang or are slowed, and whether they are the ones that are named (ROUNDS=N KINDS="stop loop")
	tests/name_culprit $(abspath $(B)) $(or $(ROUNDS),1) $(KINDS)

predict: $(B)/predict ## step times of tessera-plan --gpu beside published ones (ROWS=1: each row)
	@$(B)/predict $(if $(ROWS),rows)

recipes: $(addprefix $(B)/bin/tessera,-plan -data -job) $(B)/bin/tessera ## heads of the recipes for GPUs beside tessera-plan (UPDATE=1 writes them)
	@TESSERA_BIN=$(B)/bin tests/recipes $(if $(filter-out 0,$(UPDATE)),--update) jobs/conf/*.cfg

growth: $(GROWN) ## how cost grows with ranks, as one rank of 64 to 4,096 (GROWTH=16384; ROW=TEXT: rows with it)
	GROWTH=$(or $(GROWTH),4096) ROW="$(ROW)" $(GROWN)

HISTORIES = $(B)/tests/test_job_histories $(B)/tests/test_nodes_histories $(B)/tests/test_drain_histories
simulate: $(HISTORIES) ## jobs that go on or end, nodes that train or drain themselves, 10^5 seeded histories each (SEEDS=N; SEED=N: one, step by step)
	set -e; for program in $(HISTORIES); do $$program $(if $(SEED),--seed $(SEED),$(or $(SEEDS),100000)); done

# FUZZ="NAME..." only these; see tests/fuzz/run
FUZZ ?= $(FUZZERS)
fuzz: ## fuzzers of what reads data, 10^7 executions each (FUZZ_RUNS, FUZZ_SECONDS, FUZZ=NAME)
	+@if echo 'int LLVMFuzzerTestOneInput(void) { return 0; }' | clang -x c -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; \
	then $(MAKE) --no-print-directory CC=clang MPI=0 CUDA=0 B=build-fuzz KERNEL_SETS=generic KERNEL_OPT='-O1 -Wno-unused-parameter -Wno-unused-variable' OPT='-O1 -g -fno-omit-frame-pointer' \
	    OPENMP='-Wno-unused-parameter -Wno-unused-variable -Wno-unused-but-set-variable' SANITIZE='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined' fuzz-run; \
	else echo "fuzz: SKIPPED: there is no clang with libFuzzer: apt-get install clang"; fi

fuzz-run: $(FUZZ:%=$(B)/fuzz_%)
	tests/fuzz/run $(B) $(FUZZ)

racecheck: $(B)/tests/test_cuda_race_emu $(RACES) ## the CUDA kernels' tests, looking for data races
	$(PROVE) $^

tiny-data: $(B)/tiny-data/train/index.json ## data of jobs/conf/tiny.cfg

$(B)/tiny-data/train/index.json: $(B)/bin/tessera-data tests/english-text
	$(Q)tests/english-text 4000000 > $(B)/tiny.txt
	$(Q)$(B)/bin/tessera-data tokenize --force --seq-len 128 --eval-fraction 0.05 --out $(B)/tiny-data $(B)/tiny.txt
	$(Q)rm -f $(B)/tiny.txt
endif

lint: layers ## cppcheck, shellcheck, layers, style
	@tests/style --format
	cppcheck --quiet --enable=warning,portability --inline-suppr --error-exitcode=1 \
	    --suppress=missingIncludeSystem -I. -D_GNU_SOURCE -DTESSERA_WITH_MPI=1 -DKERNEL_SET=generic src kernels checkpoint healthcheck
	shellcheck -x $$(awk 'FNR == 1 && /^#!.*[\/ ](ba)?sh$$/ { print FILENAME }' $$(git ls-files jobs tests modulefiles .ci)) \
	    $(wildcard jobs/lib/*.sh tests/*.bash tests/gpu/*.bash)

layers: ## no include against the direction of dependencies
	@tests/layers

man: all ## settings and options in the manual pages, from --help
	$(Q)docs/man/settings $(B)/bin/tessera-train docs/man/tessera-train.1 >$(B)/tessera-train.1
	$(Q)cp $(B)/tessera-train.1 docs/man/tessera-train.1
	$(Q)for p in chat ckpt convert data eval generate health hf job ls plan report sweep top; do \
	    docs/man/options $(B)/bin/tessera-$$p docs/man/tessera-$$p.1 >$(B)/page.1 && \
	    cp $(B)/page.1 docs/man/tessera-$$p.1 || exit 1; done

$(REFERENCE): $(REFERENCE).o $(LIB)
	$(call link,)

reference: $(REFERENCE) ## docs/reference, from the tables of the program
	$(Q)$< >docs/reference/training.md

format: ## lay the C files out as .clang-format says (clang-format 14)
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu')
