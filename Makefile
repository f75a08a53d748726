# Tessera: one Makefile for everything. `make help` lists the targets, `make
# info` shows what was found. Settings may stand in config.mk: V=1 shows
# commands, WERROR=1 makes warnings errors, SAN=1 builds with ASan and UBSan in
# build-san/, MPI and CUDA are auto, 0 (leave out) or 1 (insist).
-include config.mk

VERSION   := 0.1.0
PREFIX    ?= /usr/local/tessera/$(VERSION)
MODULEDIR ?= $(PREFIX)/share/modulefiles
DESTDIR   ?=
CC        := gcc
CXX       := g++
OPT       ?= -O2 -g
MPI       ?= auto
CUDA      ?= auto
V         ?= 0
WERROR    ?= 0
SAN       ?= 0
B         ?= $(if $(filter 1,$(SAN)),build-san,build)
Q         := $(if $(filter 1,$(V)),,@)
PATH      := $(PATH):/usr/sbin:/sbin
export PATH
# tests share few cores: idle threads must sleep, not spin
export OMP_WAIT_POLICY := passive
ifeq ($(MAKELEVEL)$(filter -j%,$(MAKEFLAGS)),0)
MAKEFLAGS += -j$(shell nproc)
endif

# --- what must be there -------------------------------------------------------
DEPS_BUILD := gcc pkg-config libopenmpi-dev openmpi-bin libhdf5-dev \
    libconfig-dev libjansson-dev libssl-dev libxxhash-dev
DEPS_TEST := g++ bats hdf5-tools slurm-wlm munge environment-modules dict-gcide \
    iproute2 util-linux perl procps kmod
DEPS_HASH := clang libomp-dev gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
PKGS := hdf5 libconfig jansson libcrypto libxxhash
TOOLS_TEST := g++ bats h5dump slurmctld slurmd munged modulecmd ip unshare prove mpirun
have = $(shell for t in $(1); do command -v $$t; done | wc -l | grep -qx $(words $(1)) && echo yes)
have_packages = $(shell pkg-config --exists $(1) && echo yes)
MISSING_BUILD := $(if $(and $(call have,gcc pkg-config),$(call have_packages,$(PKGS)),$(or $(call have_packages,ompi-c),$(filter 0,$(MPI)),$(filter-out 0,$(shell id -u)))),,yes)
MISSING_TEST := $(if $(and $(call have,$(TOOLS_TEST)),$(wildcard /usr/share/dictd/gcide.dict.dz)),,yes)

# --- features: auto takes what is there, 1 insists, 0 leaves out ----------------
HAVE_MPI  := $(shell pkg-config --exists ompi-c 2>/dev/null && echo 1 || echo 0)
NVCC      ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
HAVE_CUDA := $(if $(and $(NVCC),$(wildcard $(dir $(NVCC))../include/cublasLt.h)),1,0)
HAVE_CXX  := $(shell command -v $(CXX))
feature    = $(if $(filter auto,$($(1))),$(HAVE_$(1)),$($(1)))
WITH_MPI  := $(call feature,MPI)
WITH_CUDA := $(call feature,CUDA)
ifeq ($(WITH_MPI)$(HAVE_MPI)$(MISSING_BUILD),10)
$(error MPI=1, but pkg-config finds no ompi-c: install OpenMPI's development files or say MPI=0)
endif
ifeq ($(WITH_CUDA)$(HAVE_CUDA),10)
$(error CUDA=1, but there is no nvcc with cublasLt.h: install the CUDA toolkit with cuBLAS, say NVCC=/path/to/nvcc or CUDA=0)
endif

# --- compilation ----------------------------------------------------------------
# CC=clang works, and a cross-compiler's name: sets are those of its machine
MACHINE        := $(shell $(CC) -dumpmachine 2>/dev/null)
KERNEL_SETS    := $(strip $(if $(filter x86_64-%,$(MACHINE)),avx512 avx2) \
    $(if $(filter aarch64-%,$(MACHINE)),neon) generic)
KERNEL_OPT     ?= -O3
MARCH_avx512   := -march=x86-64-v4 -mprefer-vector-width=512
MARCH_avx2     := -march=x86-64-v3
ifeq ($(SAN),1)
OPT      := -O1 -g -fno-omit-frame-pointer
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined
endif
USED     := $(PKGS) $(if $(filter 1,$(WITH_MPI)),ompi-c)
WARN     := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes \
    -Wno-sign-conversion $(if $(filter 1,$(WERROR)),-Werror)
CPPFLAGS += -I. -D_GNU_SOURCE -DTESSERA_VERSION='"$(VERSION)"' \
    -DTESSERA_PREFIX='"$(PREFIX)"' -DTESSERA_WITH_MPI=$(WITH_MPI) \
    $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(USED) 2>/dev/null))
# a fused multiply-add happens where it is written, whatever the compiler
CFLAGS   += -std=c17 -ffp-contract=off $(OPT) $(WARN) $(SANITIZE) -fopenmp -pthread -MMD -MP
LDFLAGS  += -Wl,--as-needed -fopenmp -pthread $(SANITIZE)
CUDA_ROOT := $(patsubst %/bin/,%,$(dir $(NVCC)))
# cuBLASLt is opened at run time, where the loader or this path finds it
HAVE_CUDNN := $(wildcard $(CUDA_ROOT)/include/cudnn.h)
CUDA_LIBS := -L$(CUDA_ROOT)/lib64 -Wl,-rpath,$(CUDA_ROOT)/lib64 -lcudart_static -lpthread -ldl -lrt
# of libxxhash only the header is used
LDLIBS   := $(shell pkg-config --libs $(filter-out libxxhash,$(USED)) 2>/dev/null) $(if $(filter 1,$(WITH_CUDA)),$(CUDA_LIBS)) -lm

LIB_DIRS := src/base src/comm src/data src/model src/parallel src/train src/job \
    checkpoint healthcheck
LIB_SRC  := $(sort $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c))) kernels/kernels.c kernels/kernel_memory_cpu.c
LIB_SRC  := $(if $(filter 1,$(WITH_MPI)),$(LIB_SRC),$(filter-out src/comm/comm_mpi%,$(LIB_SRC)))
CPU_SRC  := $(sort $(wildcard kernels/cpu_*.c))
# a main has no underscore in its name; NAME_part.c belongs to NAME.c
MAIN_SRC := $(sort $(shell ls src/cmd/*.c | grep -v _))
TEST_SRC := $(sort $(wildcard tests/test_*.c))
TEST_SRC := $(filter-out $(if $(HAVE_CXX),,$(addprefix tests/,test_cuda_emulator.c test_cuda_far.c test_cuda_probe.c test_cuda_race.c test_cuda_graph.c test_gpu_attention.c test_health_probe.c test_model_device.c test_model_fp8.c test_model_fp8_layer.c test_model_graph.c test_trainer_device.c test_trainer_device_n4.c)),$(TEST_SRC))
TEST_SRC := $(filter-out $(if $(filter 1,$(WITH_CUDA)),,tests/test_cuda_blas.c tests/test_cuda_device.c tests/test_cuda_dnn.c),$(TEST_SRC))
TEST_SRC := $(filter-out $(if $(HAVE_CUDNN),,tests/test_cuda_dnn.c),$(TEST_SRC))
LIB      := $(B)/libtessera.a
CUDA_SRC := $(sort $(wildcard kernels/cuda_*.cu))
CUDA_C   := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(HAVE_CUDNN),,kernels/cuda_dnn_% kernels/cuda_attention_choice.c),$(sort $(wildcard kernels/cuda_*.c))))
CUDA_OBJ := $(CUDA_SRC:%.cu=$(B)/%.o) $(CUDA_C)
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/%.o) $(if $(filter 1,$(WITH_CUDA)),$(CUDA_OBJ)) $(foreach s,$(KERNEL_SETS),$(CPU_SRC:%.c=$(B)/%.$(s).o))
MAINS    := $(filter-out tessera,$(MAIN_SRC:src/cmd/%.c=%))
PROGRAMS := $(B)/bin/tessera $(MAINS:%=$(B)/bin/tessera-%) $(B)/bin/tessera-launch
# the part of the health check that root runs: no MPI, no kernels, and of other
# libraries their archives, where there are any
NODE     := $(B)/libexec/node-health
NODE_OBJ := $(addprefix $(B)/,src/cmd/health.node.o healthcheck/health.node.o healthcheck/health_cpu.node.o)
archive   = $(or $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a)),-l$(1))
TESTS    := $(TEST_SRC:tests/%.c=$(B)/tests/%)
# linked before the library, this object makes crash points work
CRASH    := $(B)/checkpoint/ckpt_crash.points.o
# the CUDA kernels on the processor, for tests; needs a C++ compiler
EMULATED := $(if $(HAVE_CXX),$(CUDA_SRC:%.cu=$(B)/%.emulated.o) $(B)/kernels/cuda_table.emulated.o $(addprefix $(B)/tests/cuda_emulator,.o _memory.o _streams.o))
# the same with a look at every access: tests/cuda_race.h
RACED    := $(if $(HAVE_CXX),$(CUDA_SRC:%.cu=$(B)/%.raced.o) $(B)/kernels/cuda_table.emulated.o $(addprefix $(B)/tests/,cuda_emulator.o cuda_emulator_memory.o cuda_emulator_streams.o cuda_race.o))
SOAK     := $(addprefix $(B)/soak/,victim shim.so)
# the digests of README's table, against which tessera-hash compares
DIGESTS  = $(shell sed -nE 's/^\| `([a-z-]+)` \| `([0-9a-f]{16})` \|.*/\1=\2/p' README.md)
# the same program without libraries, for another processor's emulator
ALONE    := $(B)/alone/tessera-hash
CRASHING := $(B)/crash/bin/tessera-train
# libraries of GPUs that tests open where there are none
NVMLS    := $(addprefix $(B)/fake/,libnvidia-ml.so.1 libnvidia-ml-old.so)
# a BLAS that the bench opens
FAKES    := $(NVMLS) $(B)/fake/blas/libblis.so.4
# the tests of ops on a GPU, and with the emulator in its place (tests/gpu); of
# the CPU's kernel sets there is nothing to compare there, nor are there such pages
OP_TESTS := $(filter-out test_kernels_same test_kernels_pages,$(patsubst tests/%.c,%,$(sort $(wildcard tests/test_kernels_*.c))))
MANAGED  := $(addprefix $(B)/tests/gpu/,managed.o managed_again.o managed_memory.o)
WRAPPED  := -Wl,--wrap=aligned_alloc,--wrap=free,--wrap=kernels_all -Wl,--as-needed
# what has nothing to compute with elsewhere: NCCL, and cuDNN where it is known
GPU_ONLY := $(B)/gpu/test_nccl $(if $(HAVE_CUDNN),$(B)/gpu/test_attention_cudnn)
GPU      := $(if $(filter 1,$(WITH_CUDA)),$(OP_TESTS:%=$(B)/gpu/%) $(GPU_ONLY) $(B)/gpu/bench_kernels)
GPU_REHEARSAL := $(addprefix $(B)/gpu/rehearsal/,$(filter-out $(if $(HAVE_CXX),,%bf16 %fp8),$(OP_TESTS)))
RACES    := $(addprefix $(B)/race/,$(OP_TESTS) test_cuda_probe)
# those that take seconds, for make check
RACES_SHORT := $(if $(HAVE_CXX),$(filter-out %gemm %gemm_bf16 %norm %moe %attention %attention_chunk,$(RACES)))
# tests on N ranks get one wrapper per rank count, for prove
TESTS_N  := $(filter %_n4,$(TESTS))
TESTS_1  := $(filter-out %_n4,$(TESTS))
RANKS_test_reduce_n4 := 1 2 3 4
RANKS_test_ckpt_n4 := 1 2 3 4
RANKS_test_ckpt_saver_n4 := 1 2 3 4
RANKS_test_ckpt_load_n4 := 1 2 3 4
RANKS_test_ckpt_memory_n4 := 1 2 3
RANKS_test_ckpt_xor_n4 := 1 2 3 4
RANKS_test_ckpt_xor_damage_n4 := 2 3 4
RANKS_test_train_devices_n4 := 1 2 4
RANKS_test_trainer_memory_n4 := 1 2 4
RANKS_test_train_choices_n4 := 1 2
RANKS_test_train_arithmetic_n4 := 1 2
RANKS_test_trainer_device_n4 := 2
RANKS_test_replica_n4 := 1 2 3 4
RANKS_test_replica_shared_n4 := 1 2 3 4
RANKS_test_replica_device_n4 := 1 2 4
RANKS_test_group_n4 := 1 2 3 4
RANKS_test_group_tensors_n4 := 2 4
RANKS_test_comm_tensors_n4 := 1 2 3 4
RANKS_test_comm_tensors_nccl_n4 := 2 3 4
ranks_of  = $(or $(RANKS_$(1)),4)
WRAPPERS := $(foreach t,$(TESTS_N),$(foreach n,$(call ranks_of,$(notdir $(t))),$(t).np$(n).t))
# jobs on Slurm mostly wait: they run one after the other beside all other tests
LANES    := -j2 --rules 'seq=tests/{slurm_*,cluster}.bats' --rules 'seq=**'
BATS     := $(sort $(wildcard tests/*.bats)) tests/inputs.t

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all help info deps hash hash-deps tests gpu check demo bench interop interop-dcp interop-step sanitize sanitize-run racecheck lint \
    layers install uninstall clean tiny-data soak-ckpt matrix install-node
.DEFAULT_GOAL := all

ifneq ($(MISSING_BUILD),)
# nothing can be built yet: install what is missing, then begin again
all tests gpu check demo hash bench sanitize racecheck install install-node tiny-data soak-ckpt matrix: deps
	+@$(MAKE) --no-print-directory $@
else
all: $(PROGRAMS) $(NODE)
endif

$(B)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -c $< -o $@

# every CPU kernel file is compiled once per kernel set
define kernel_set
$$(B)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	@echo "  CC    $$< ($(1))"
	$$(Q)$$(CC) $$(CPPFLAGS) $$(CFLAGS) $$(KERNEL_OPT) $$(MARCH_$(1)) -DKERNEL_SET=$(1) -c $$< -o $$@
endef
$(foreach s,$(KERNEL_SETS),$(eval $(call kernel_set,$(s))))
$(B)/kernels/kernels.o: CPPFLAGS += $(KERNEL_SETS:%=-DKERNEL_SET_%=1) $(if $(filter 1,$(WITH_CUDA)),-DKERNELS_CUDA)

$(B)/src/cmd/hash.o: README.md
$(B)/src/cmd/hash.o: CPPFLAGS += -DHASH_DIGESTS='"$(DIGESTS)"'

$(B)/healthcheck/%.o $(B)/tests/test_health_gpu.o: CPPFLAGS += $(if $(filter 1,$(WITH_CUDA)),-DKERNELS_CUDA)
$(B)/healthcheck/health.o: CPPFLAGS += $(if $(filter 1,$(WITH_CUDA)),-DHEALTH_PROBES)

# Without contraction, as in C: a fused multiply-add happens where it is written.
NVCCFLAGS = -std=c++17 -O3 -fmad=false $(if $(filter 1,$(WERROR)),-Werror all-warnings) \
    -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
    -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a

$(B)/%.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) -I. $(NVCCFLAGS) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(CUDA_C) $(addprefix $(B)/tests/,gpu/managed_cuda.o cuda_blas_fake.o test_cuda_blas.o cuda_dnn_fake.o test_cuda_dnn.o): CPPFLAGS += -isystem $(CUDA_ROOT)/include
$(B)/tests/test_cuda_dnn.o: CPPFLAGS += -DDRIVER_DOUBLE='"$(abspath $(B))/tests/libcuda.so.1"'
$(if $(HAVE_CUDNN),$(CUDA_C)): CPPFLAGS += -DKERNELS_CUDNN

CXXFLAGS = -std=c++17 $(OPT) -Wall -Wextra -Wshadow $(if $(filter 1,$(WERROR)),-Werror) $(SANITIZE) \
    -fno-exceptions -fno-rtti -fno-threadsafe-statics -ffp-contract=off -pthread -MMD -MP

# a vector at an address that no GPU takes ends the program, with words if SAN=1
ALIGNED := -fsanitize=alignment -fsanitize-undefined-trap-on-error

# shared memory gets a section of its own: g++ forgets that attribute in templates
$(B)/%.emulated.o: %.cu
	@mkdir -p $(@D)
	@echo "  CXX   $< (emulated)"
	$(Q)$(CXX) -I. $(CXXFLAGS) $(if $(SANITIZE),,$(ALIGNED)) -include tests/cuda_emulator.h -x c++ -c $< -o $@
	$(Q)objcopy --rename-section .bss=cuda_shared $@

$(B)/%.emulated.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $< (emulated)"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DCUDA_EMULATED -c $< -o $@

# with calls at every access, which tests/cuda_race.cc answers
$(B)/%.raced.o: %.cu
	@mkdir -p $(@D)
	@echo "  CXX   $< (raced)"
	$(Q)$(CXX) -I. $(filter-out $(SANITIZE),$(CXXFLAGS)) -O1 -fsanitize=thread $(ALIGNED) -include tests/cuda_emulator.h -x c++ -c $< -o $@
	$(Q)objcopy --rename-section .bss=cuda_shared $@

$(B)/tests/%.o: tests/%.cc
	@mkdir -p $(@D)
	@echo "  CXX   $<"
	$(Q)$(CXX) -I. $(CXXFLAGS) -c $< -o $@

$(CRASH): checkpoint/ckpt_crash.c
	@mkdir -p $(@D)
	@echo "  CC    $< (crash points)"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DCKPT_CRASH_POINTS -c $< -o $@

$(LIB): $(LIB_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

define program
$(B)/bin/$(if $(filter tessera,$(1)),tessera,tessera-$(1)): $$(patsubst %.c,$(B)/%.o,src/cmd/$(1).c $$(wildcard src/cmd/$(1)_*.c)) $(LIB)
	@mkdir -p $$(@D)
	@echo "  LD    $$@"
	$$(Q)$$(CC) $$(LDFLAGS) -o $$@ $$^ $$(LDLIBS)
endef
$(foreach m,tessera $(MAINS),$(eval $(call program,$(m))))

# what it does not reach may lack its library
$(ALONE): $(addprefix $(B)/,src/cmd/hash.o src/cmd/hash_style.o src/cmd/hash_text.o tests/hash_alone.o) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,--gc-sections -o $@ $^ -ldl -lm

# the same with crash points, for tests; never installed
$(B)/crash/bin/tessera-%: $(CRASH) $(B)/bin/tessera-%
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $(CRASH) $(patsubst %.c,$(B)/%.o,src/cmd/$*.c $(wildcard src/cmd/$*_*.c)) $(LIB) $(LDLIBS)

$(B)/%.node.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $< (node)"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -O3 -DHEALTH_NODE -c $< -o $@

$(NODE): $(NODE_OBJ) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(filter-out -fopenmp,$(LDFLAGS)) -Wl,--as-needed -o $@ $^ \
	    $(call archive,config) $(call archive,jansson) $(call archive,gomp) -ldl -lm

$(B)/bin/tessera-launch: jobs/launch
	@mkdir -p $(@D)
	$(Q)ln -sf $(CURDIR)/jobs/launch $@

$(B)/soak/victim: $(B)/tests/soak/victim.o $(B)/tests/soak/victim_flips.o $(B)/tests/tap.o $(CRASH) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -rdynamic -o $@ $^ $(LDLIBS)

$(B)/interop/side: $(B)/tests/interop/side.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/interop/step: $(B)/tests/interop/step.o $(B)/src/cmd/bench_model.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/soak/shim.so: tests/soak/shim.c tests/soak/shim_store.c tests/soak/shim.h
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(filter-out -MMD -MP -fopenmp $(SANITIZE),$(CPPFLAGS) $(CFLAGS)) -fPIC -shared -o $@ $(filter %.c,$^) -ldl

$(NVMLS): tests/nvml_fake.c healthcheck/health_nvml.h
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(filter-out -MMD -MP -fopenmp $(SANITIZE),$(CPPFLAGS) $(CFLAGS)) $(if $(findstring old,$@),-DNVML_FAKE_OLD) \
	    -fPIC -shared -Wl,-soname,$(@F) -o $@ $<

$(B)/fake/blas/%: tests/blas_fake.c
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(filter-out -MMD -MP -fopenmp $(SANITIZE),$(CPPFLAGS) $(CFLAGS)) -fPIC -shared -Wl,-soname,$(@F) -o $@ $<

$(B)/tests/%: $(B)/tests/%.o $(B)/tests/tap.o $(CRASH) $(LIB)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(B)/tests/test_model $(B)/tests/test_model_sequence $(B)/tests/test_model_device: $(B)/tests/model_reference.o
$(B)/tests/test_cuda_blas: $(B)/tests/cuda_blas_fake.o
$(B)/tests/test_cuda_dnn: $(B)/tests/cuda_dnn_fake.o | $(B)/tests/libcuda.so.1

$(B)/tests/libcuda.so.1: tests/cuda_driver_double.c
	@mkdir -p $(@D)
	@echo "  CC    $@"
	$(Q)$(CC) $(filter-out -MMD -MP -fopenmp $(SANITIZE),$(CPPFLAGS) $(CFLAGS)) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<
$(B)/tests/test_health_gpu $(B)/tests/test_health_probe: | $(NVMLS)
$(filter $(filter-out %_same,$(filter $(B)/tests/test_kernels%,$(TESTS))) $(addprefix $(B)/tests/,test_cuda_far test_cuda_graph test_gpu_attention test_health_probe test_model_device test_model_fp8 test_model_fp8_layer test_model_graph test_trainer_device test_trainer_device_n4),$(TESTS)): $(EMULATED)
$(B)/tests/test_cuda_probe: $(B)/kernels/cuda_probe.emulated.o $(B)/tests/cuda_emulator.o
$(filter $(B)/tests/test_comm_tensors% $(B)/tests/test_replica_device_n4 $(B)/tests/test_group_dead $(B)/tests/test_group_tensors_n4,$(TESTS)): $(B)/tests/deferred_memory.o $(B)/tests/nccl_fake.o
$(B)/tests/test_gpu_attention: $(B)/tests/gpu/attention_pair.o
$(B)/tests/test_gpu_managed: $(MANAGED)
$(B)/tests/test_gpu_managed: LDFLAGS += $(WRAPPED)
$(B)/tests/test_cuda_race: $(B)/tests/cuda_race_cases.raced.o $(B)/tests/cuda_emulator.o $(B)/tests/cuda_race.o
$(B)/tests/test_cuda_emulator: $(B)/tests/cuda_emulator_cases.emulated.o $(B)/tests/cuda_emulator.o

# one of the processor's threads: it is the kernels' that count here
$(B)/race/%.o: tests/%.c
	@mkdir -p $(@D)
	@echo "  CC    $< (raced)"
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -DCHECK_THREADS_MAX=1 -c $< -o $@

$(B)/race/test_%: $(B)/race/test_%.o $(B)/tests/tap.o $(B)/tests/cuda_race_tables.o $(RACED) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,--wrap=kernels_all -o $@ $^ $(LDLIBS)

$(B)/gpu/test_%: $(B)/tests/test_%.o $(B)/tests/tap.o $(MANAGED) $(B)/tests/gpu/managed_cuda.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(WRAPPED) -o $@ $^ $(LDLIBS)

$(B)/gpu/test_attention_cudnn: $(B)/tests/gpu/attention_pair.o
$(GPU_ONLY): $(B)/gpu/%: $(B)/tests/gpu/%.o $(B)/tests/tap.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $(filter %.o,$^) $(LIB) $(LDLIBS)

# only bf16 and fp8 need the emulator there: what takes fp32 is quicker on the CPU's table
$(filter %bf16 %fp8,$(GPU_REHEARSAL)): $(EMULATED)
$(B)/gpu/rehearsal/test_%: $(B)/tests/test_%.o $(B)/tests/tap.o $(MANAGED) $(B)/tests/gpu/managed_host.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) $(WRAPPED) -o $@ $^ $(LDLIBS)

$(B)/gpu/bench_kernels: $(patsubst %.c,$(B)/%.o,$(wildcard tests/gpu/bench_*.c)) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ $(LDLIBS)

$(B)/gpu/predict: $(patsubst %.c,$(B)/%.o,$(wildcard tests/gpu/predict*.c)) $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -o $@ $^ $(LDLIBS)

define wrapper
$(1).np$(2).t: $(1) Makefile
	$$(Q)printf '%s\n' '#!/bin/sh' 'exec tests/mpirun $(2) $(1)' > $$@ && chmod +x $$@
endef
$(foreach t,$(TESTS_N),$(foreach n,$(call ranks_of,$(notdir $(t))),$(eval $(call wrapper,$(t),$(n)))))

# --- targets ----------------------------------------------------------------------
help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed 's/:.*## /\t/' | expand -t 12

info: ## what was found and what will be built
	@echo "version      $(VERSION)"
	@echo "compiler     $$($(CC) --version | head -n 1)"
	@echo "kernel sets  $(KERNEL_SETS)"
	@echo "MPI          $(WITH_MPI) (MPI=$(MPI); $$(pkg-config --modversion ompi-c 2>/dev/null || echo none))"
	@echo "CUDA         $(WITH_CUDA) (CUDA=$(CUDA); nvcc $(or $(NVCC),none))"
	@for p in $(PKGS); do echo "$$p $$(pkg-config --modversion $$p 2>/dev/null || echo MISSING)" | expand -t 13; done
	@echo "to build     $(if $(MISSING_BUILD),incomplete: make deps,complete)"
	@echo "to test      $(if $(MISSING_TEST),incomplete: make deps,complete)"
	@echo "programs     tessera $(MAINS:%=tessera-%) tessera-launch"
	@echo "prefix       $(PREFIX), modulefile in $(MODULEDIR)"

deps: ## install Debian packages that are missing (as root)
	@[ -n "$(MISSING_BUILD)$(MISSING_TEST)" ] || exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    export DEBIAN_FRONTEND=noninteractive; \
	    apt-get update -qq && apt-get install -y -qq --no-install-recommends $(DEPS_BUILD) $(DEPS_TEST) >/dev/null; \
	else \
	    echo "Packages are missing. As root: apt-get install $(DEPS_BUILD) $(DEPS_TEST)" >&2; exit 1; \
	fi

hash-deps: ## install what make hash can use besides: clang, aarch64, qemu (as root)
	apt-get install -y -qq --no-install-recommends $(DEPS_HASH)

ifeq ($(MISSING_BUILD),)
gpu: $(GPU) ## tests and benchmark for a machine with a GPU: tests/gpu/run

tests: $(TESTS) $(WRAPPERS) $(FAKES) $(GPU) $(GPU_REHEARSAL) $(B)/gpu/predict $(SOAK) $(CRASHING) $(addprefix $(B)/interop/,side step)

# The tests that need Slurm say themselves that they skip when it is missing and
# cannot be installed.
check: $(if $(and $(MISSING_TEST),$(filter 0,$(shell id -u))),deps) ## build, run every test
	+@$(MAKE) --no-print-directory WERROR=$(WERROR) all tests $(RACES_SHORT) tiny-data
	TESSERA_BIN=$(abspath $(B)/bin) prove --timer --comments $(LANES) $(TESTS_1) $(RACES_SHORT) $(GPU_REHEARSAL) $(WRAPPERS) $(BATS)

soak-ckpt: $(SOAK) ## kill, fill, damage and cut the power of checkpoints everywhere
	tests/soak/matrix $(B)/soak

matrix: all ## every strategy on 1 to 8 ranks, with every style of model
	TESSERA_BIN=$(abspath $(B)/bin) tests/matrix

hash: $(B)/bin/tessera-hash ## the same bits everywhere, as README has them (UPDATE=1 writes them there)
	+@BUILD=$(B) WITH_MPI=$(WITH_MPI) MAKE="$(MAKE)" tests/hash $(if $(filter-out 0,$(UPDATE)),--update)

demo: $(if $(and $(MISSING_TEST),$(filter 0,$(shell id -u))),deps) ## one sbatch through a bad and a dead node, to the same bits
	+@$(MAKE) --no-print-directory all
	@TESSERA_BIN=$(abspath $(B)/bin) tests/demo

interop: all tests ## data against Streaming, checkpoints against h5py
	TESSERA_BIN=$(abspath $(B)/bin) prove tests/interop/streaming.sh tests/interop/h5py.sh

interop-dcp: all $(B)/interop/side ## checkpoints beside PyTorch's (downloads 3 GB)
	TESSERA_BIN=$(abspath $(B)/bin) tests/interop/dcp.sh

interop-step: all $(B)/interop/step ## the step beside PyTorch's on this CPU (downloads 3 GB)
	TESSERA_BIN=$(abspath $(B)/bin) tests/interop/torch_step.sh

bench: all ## all benchmarks
	@for name in step gemm data ckpt memory context comm; do echo "== $$name"; $(B)/bin/tessera-bench $$name || exit 1; done

sanitize: ## the C tests under ASan and UBSan
	+@$(MAKE) --no-print-directory SAN=1 sanitize-run

sanitize-run: $(TESTS_1)
	ASAN_OPTIONS=detect_leaks=1 TESSERA_BIN=$(abspath $(B)/bin) prove --timer --comments $(TESTS_1)

racecheck: $(B)/tests/test_cuda_race $(RACES) ## the CUDA kernels' tests, looking for data races
	prove --timer $^

tiny-data: $(B)/tiny-data/train/index.json ## data of jobs/conf/tiny.cfg

$(B)/tiny-data/train/index.json: $(B)/bin/tessera-data tests/english-text
	$(Q)tests/english-text 4000000 > $(B)/tiny.txt
	$(Q)$(B)/bin/tessera-data tokenize --force --seq-len 128 --eval-fraction 0.05 --out $(B)/tiny-data $(B)/tiny.txt
	$(Q)rm -f $(B)/tiny.txt

# What root runs, whole: for a disk of the node itself.
install-node: $(NODE) ## prolog, epilog and their check alone, into PREFIX on a local disk
	install -d $(DESTDIR)$(PREFIX)/libexec/tessera/lib $(DESTDIR)$(PREFIX)/etc
	install $(NODE) jobs/prolog jobs/epilog $(DESTDIR)$(PREFIX)/libexec/tessera
	install -m 644 jobs/lib/admin.sh $(DESTDIR)$(PREFIX)/libexec/tessera/lib
	[ -f $(DESTDIR)$(PREFIX)/etc/tessera.conf ] || install -m 644 jobs/tessera.conf $(DESTDIR)$(PREFIX)/etc

install: all install-node ## into PREFIX (DESTDIR is honoured), with a modulefile
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/tessera/lib \
	    $(DESTDIR)$(PREFIX)/etc $(DESTDIR)$(PREFIX)/share/tessera/conf \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(MODULEDIR)/tessera
	install $(filter-out %launch,$(PROGRAMS)) $(DESTDIR)$(PREFIX)/bin
	install jobs/launch $(DESTDIR)$(PREFIX)/libexec/tessera
	install -m 644 $(wildcard jobs/lib/*.sh) $(DESTDIR)$(PREFIX)/libexec/tessera/lib
	ln -sf ../libexec/tessera/launch $(DESTDIR)$(PREFIX)/bin/tessera-launch
	install -m 644 $(wildcard jobs/*.sbatch) $(DESTDIR)$(PREFIX)/share/tessera
	install -m 644 $(wildcard jobs/conf/*.cfg) $(DESTDIR)$(PREFIX)/share/tessera/conf
	install -m 644 $(wildcard docs/man/*.1) $(DESTDIR)$(PREFIX)/share/man/man1
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' modulefiles/tessera.in \
	    > $(DESTDIR)$(MODULEDIR)/tessera/$(VERSION)

endif

# deepest first, and only those that are empty then
INSTALL_DIRS := $(DESTDIR)$(MODULEDIR)/tessera $(addprefix $(DESTDIR)$(PREFIX)/, \
    bin libexec share/modulefiles share/man/man1 share/man share etc) \
    $(DESTDIR)$(PREFIX)
uninstall: ## remove what install put there (etc/ stays)
	rm -f $(PROGRAMS:$(B)/bin/%=$(DESTDIR)$(PREFIX)/bin/%) $(DESTDIR)$(MODULEDIR)/tessera/$(VERSION)
	rm -rf $(DESTDIR)$(PREFIX)/libexec/tessera $(DESTDIR)$(PREFIX)/share/tessera
	rm -f $(patsubst docs/man/%,$(DESTDIR)$(PREFIX)/share/man/man1/%,$(wildcard docs/man/*.1))
	@rmdir $(INSTALL_DIRS) 2>/dev/null || true

lint: layers ## cppcheck, shellcheck, layers
	cppcheck --quiet --enable=warning,portability --inline-suppr --error-exitcode=1 \
	    --suppress=missingIncludeSystem -I. -D_GNU_SOURCE -DTESSERA_WITH_MPI=1 -DKERNEL_SET=generic src kernels checkpoint healthcheck
	shellcheck -x jobs/launch jobs/prolog jobs/epilog $(wildcard jobs/lib/*.sh) tests/cluster tests/demo \
	    tests/mpirun tests/english-text tests/hash tests/inputs.t tests/layers tests/matrix tests/soak/matrix tests/gpu/run tests/gpu/pack $(wildcard tests/gpu/*.bash) $(wildcard tests/*.bash tests/interop/*.sh) .ci/run

layers: ## no include against the direction of dependencies
	@tests/layers

clean: ## remove what was built
	rm -rf build build-san build-hash

-include $(shell find $(B) -name '*.d' 2>/dev/null)
