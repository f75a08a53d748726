# Tessera: one Makefile for everything. `make help` lists the targets, `make
# info` shows what was found. Settings may stand in config.mk: V=1 shows
# commands, WERROR=1 makes warnings errors, SAN=1 builds with ASan and UBSan in
# build-san/, COVERAGE=1 with gcov's counters in build-cov/, MPI, CUDA and EDIT are auto, 0 (leave out) or 1 (insist).
-include config.mk

VERSION   := 0.1.0
PREFIX    ?= /usr/local/tessera/$(VERSION)
MODULEDIR ?= $(PREFIX)/share/modulefiles
# the administrator's files; programs look for them there
SITEDIR   := $(if $(filter /usr,$(PREFIX)),/etc/tessera,$(PREFIX)/etc)
DESTDIR   ?=
CC        := gcc
CXX       := g++
OPT       ?= -O2 -g
MPI       ?= auto
CUDA      ?= auto
EDIT      ?= auto
# GPUs' machine code beside that of 80, whose PTX later ones' drivers compile at a first
# start: 90a (H100, H200), or all, with Blackwell's (100: B200; 120: RTX PRO)
CUDA_ARCHS ?= 90a
V         ?= 0
WERROR    ?= 0
SAN       ?= 0
COVERAGE  ?= 0
B         ?= $(if $(filter 1,$(SAN)),build-san,$(if $(filter 1,$(COVERAGE)),build-cov,build))
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
    libconfig-dev libjansson-dev libssl-dev libxxhash-dev libpcre2-dev \
    libutf8proc-dev libcurl4-openssl-dev zlib1g-dev libzstd-dev libbz2-dev libsnappy-dev libbrotli-dev libedit-dev
PKGS := hdf5 libconfig jansson libcrypto libxxhash libpcre2-8 libutf8proc libcurl zlib libzstd
have = $(shell for t in $(1); do command -v $$t; done | wc -l | grep -qx $(words $(1)) && echo yes)
have_packages = $(shell pkg-config --exists $(1) && echo yes)
MISSING_BUILD := $(if $(and $(call have,gcc pkg-config),$(call have_packages,$(PKGS)),$(or $(call have_packages,ompi-c),$(filter 0,$(MPI)),$(filter-out 0,$(shell id -u)))),,yes)

# --- features: auto takes what is there, 1 insists, 0 leaves out ----------------
HAVE_MPI  := $(shell pkg-config --exists ompi-c 2>/dev/null && echo 1 || echo 0)
NVCC      ?= $(firstword $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc))
HAVE_CUDA := $(if $(and $(NVCC),$(wildcard $(dir $(NVCC))../include/cublasLt.h)),1,0)
HAVE_EDIT := $(if $(call have_packages,libedit),1,0)
feature    = $(if $(filter auto,$($(1))),$(HAVE_$(1)),$($(1)))
WITH_MPI  := $(call feature,MPI)
WITH_CUDA := $(call feature,CUDA)
WITH_EDIT := $(call feature,EDIT)
ifeq ($(WITH_MPI)$(HAVE_MPI)$(MISSING_BUILD),10)
$(error MPI=1, but pkg-config finds no ompi-c: install OpenMPI's development files or say MPI=0)
endif
ifeq ($(WITH_CUDA)$(HAVE_CUDA),10)
$(error CUDA=1, but there is no nvcc with cublasLt.h: install the CUDA toolkit with cuBLAS, say NVCC=/path/to/nvcc or CUDA=0)
endif
ifeq ($(WITH_EDIT)$(HAVE_EDIT),10)
$(error EDIT=1, but pkg-config finds no libedit: install its development files or say EDIT=0)
endif

# compressions of data sets that are left out where their library is missing
header = $(shell echo '\#include <$(1)>' | $(CC) -E - >/dev/null 2>&1 && echo 1)
CODECS := $(if $(call header,bzlib.h),bz2) $(if $(call header,snappy-c.h),snappy) $(if $(call header,brotli/encode.h),brotlidec brotlienc)

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
# counters that threads, children and ranks share
ifeq ($(COVERAGE),1)
OPT      := -O1 -g
COVER    := --coverage -fprofile-update=atomic
# of the kernels one set counts, without locks: the others run as fast as ever
KERNEL_COVER = $(if $(filter generic,$(1)),-fprofile-update=single,-fno-profile-arcs -fno-test-coverage)
endif
OPENMP   := -fopenmp
USED     := $(PKGS) $(if $(filter 1,$(WITH_MPI)),ompi-c)
WARN     := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes \
    -Wno-sign-conversion $(if $(filter 1,$(WERROR)),-Werror)
CPPFLAGS += -I. -D_GNU_SOURCE -DTESSERA_VERSION='"$(VERSION)"' \
    -DTESSERA_WITH_MPI=$(WITH_MPI) \
    $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(USED) 2>/dev/null))
# a fused multiply-add happens where it is written, whatever the compiler
CFLAGS   += -std=c17 -ffp-contract=off $(OPT) $(WARN) $(SANITIZE) $(COVER) $(OPENMP) -pthread -MMD -MP
LDFLAGS  += -Wl,--as-needed $(OPENMP) -pthread $(SANITIZE) $(COVER)
CUDA_ROOT := $(patsubst %/bin/,%,$(dir $(NVCC)))
# cuBLASLt is opened at run time, where the loader or this path finds it
HAVE_CUDNN := $(wildcard $(CUDA_ROOT)/include/cudnn.h)
CUDA_LIBS := -L$(CUDA_ROOT)/lib64 -Wl,-rpath,$(CUDA_ROOT)/lib64 -lcudart_static -lpthread -ldl -lrt
# of libxxhash only the header is used
LDLIBS   := $(shell pkg-config --libs $(filter-out libxxhash,$(USED)) 2>/dev/null) $(CODECS:%=-l%) $(if $(filter 1,$(WITH_CUDA)),$(CUDA_LIBS)) -lm

LIB_DIRS := $(filter-out src/cmd%,$(shell find src checkpoint healthcheck -type d))
LIB_SRC  := $(sort $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c))) kernels/kernels.c $(sort $(wildcard kernels/kernel_*.c))
LIB_SRC  := $(if $(filter 1,$(WITH_MPI)),$(LIB_SRC),$(filter-out src/comm/comm_mpi%,$(LIB_SRC)))
CPU_SRC  := $(sort $(wildcard kernels/cpu/*.c))
# a main has no underscore in its name; NAME_part.c belongs to NAME.c
MAIN_SRC := $(sort $(shell ls src/cmd/*.c | grep -v _))
LIB      := $(B)/libtessera.a
CUDA_SRC := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_C   := $(patsubst %.c,$(B)/%.o,$(filter-out $(if $(HAVE_CUDNN),,kernels/cuda/libraries/cuda_dnn_% kernels/cuda/libraries/cuda_attention_choice.c),$(sort $(wildcard kernels/cuda/*.c kernels/cuda/*/*.c))))
CUDA_OBJ := $(CUDA_SRC:%.cu=$(B)/%.o) $(CUDA_C)
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/%.o) $(if $(filter 1,$(WITH_CUDA)),$(CUDA_OBJ)) $(foreach s,$(KERNEL_SETS),$(CPU_SRC:%.c=$(B)/%.$(s).o))
MAINS    := $(filter-out tessera,$(MAIN_SRC:src/cmd/%.c=%))
PROGRAMS := $(B)/bin/tessera $(MAINS:%=$(B)/bin/tessera-%) $(B)/bin/tessera-launch
# the part of the health check that root runs: no MPI, no kernels, and of other
# libraries their archives, where there are any
NODE     := $(B)/libexec/node-health
NODE_OBJ := $(addprefix $(B)/,src/cmd/health.node.o healthcheck/health_run.node.o healthcheck/health_cpu.node.o)
archive   = $(or $(filter /%,$(shell $(CC) -print-file-name=lib$(1).a)),-l$(1))
comma    := ,

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: archs all help info deps hash hash-deps tests gpu check demo demo-chat bench interop interop-dcp interop-step interop-track sanitize sanitize-run fuzz fuzz-run racecheck lint \
    layers man reference format install uninstall clean tiny-data soak-ckpt soak-cluster storm doors matrix simulate growth name-culprit plan-random predict recipes other-debian slurm-versions install-node deb
.DEFAULT_GOAL := all

ifneq ($(MISSING_BUILD),)
# nothing can be built yet: install what is missing, then begin again
all tests gpu check demo demo-chat hash bench sanitize racecheck install install-node deb tiny-data soak-ckpt soak-cluster storm doors matrix: deps
	+@$(MAKE) --no-print-directory $@
else
all: $(PROGRAMS) $(NODE)
endif

# --- rules ----------------------------------------------------------------------
# Objects that features change, and the list of all, are made anew where a feature is
# another than at the last time: they stand in a file, which is written when they differ.
FEATURES := MPI=$(WITH_MPI) CUDA=$(WITH_CUDA)$(if $(HAVE_CUDNN), cuDNN) $(CUDA_ARCHS) $(CODECS) EDIT=$(WITH_EDIT)
CHAT     := $(B)/src/cmd/chat.o $(B)/src/cmd/chat_edit.o
FEATURED := $(addprefix $(B)/,kernels/kernels.% kernels/cuda/% healthcheck/% src/comm/% src/data/codec/%)
$(shell [ ! -e $(B)/features ] || grep -qxF '$(FEATURES)' $(B)/features || echo '$(FEATURES)' > $(B)/features)
$(B)/features:
	@mkdir -p $(@D) && echo '$(FEATURES)' > $@
$(filter $(FEATURED),$(LIB_OBJ) $(NODE_OBJ)) $(LIB) $(CHAT): $(B)/features

# recipes: (1) is what is said behind the file's name, (2) or of link (1) are flags
define compile
@mkdir -p $(@D)
@echo "  CC    $<$(1)"
$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(2) -c $< -o $@
endef
define link
@mkdir -p $(@D)
@echo "  LD    $@"
$(Q)$(CC) $(LDFLAGS) $(1) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS)
endef

$(B)/%.o: %.c
	$(call compile,,)
$(B)/src/convert/foreign.o: src/convert/foreign.table

# every CPU kernel file is compiled once per kernel set
define kernel_set
$$(B)/%.$(1).o: %.c
	$$(call compile, ($(1)),$$(KERNEL_OPT) $$(MARCH_$(1)) $(call KERNEL_COVER,$(1)) -DKERNEL_SET=$(1))
endef
$(foreach s,$(KERNEL_SETS),$(eval $(call kernel_set,$(s))))
$(B)/kernels/kernels.o: CPPFLAGS += $(KERNEL_SETS:%=-DKERNEL_SET_%=1) $(if $(filter 1,$(WITH_CUDA)),-DKERNELS_CUDA)

$(B)/src/data/codec/codec_%.o: CPPFLAGS += $(CODECS:%=-DCODEC_%=1)

$(CHAT): CPPFLAGS += -DTESSERA_WITH_EDIT=$(WITH_EDIT) $(if $(filter 1,$(WITH_EDIT)),$(patsubst -I%,-isystem %,$(shell pkg-config --cflags libedit)))
$(B)/bin/tessera-chat: LDLIBS += $(if $(filter 1,$(WITH_EDIT)),$(shell pkg-config --libs libedit))

$(B)/healthcheck/%.o: CPPFLAGS += $(if $(filter 1,$(WITH_CUDA)),-DKERNELS_CUDA)
$(B)/healthcheck/health_run.o: CPPFLAGS += $(if $(filter 1,$(WITH_CUDA)),-DHEALTH_PROBES)

# Without contraction, as in C: a fused multiply-add happens where it is written.
NVCCFLAGS = -std=c++17 -O3 -fmad=false $(if $(filter 1,$(WERROR)),-Werror all-warnings) \
    -Xcompiler=-Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics

CUDA_EVERY := 80 90a 100 120
override CUDA_ARCHS := $(if $(filter all,$(CUDA_ARCHS)),$(CUDA_EVERY),80 $(filter-out 80,$(CUDA_ARCHS)))
GENCODE = -gencode 'arch=compute_80,code=[compute_80,sm_80]' \
    $(foreach a,$(filter-out 80,$(CUDA_ARCHS)),-gencode arch=compute_$(a),code=sm_$(a))
$(B)/%.o: %.cu
	@mkdir -p $(@D)
	@echo "  NVCC  $<"
	$(Q)$(NVCC) -I. $(NVCCFLAGS) $(GENCODE) -MD -MP -MF $(@:.o=.d) -c $< -o $@

$(CUDA_C): CPPFLAGS += -isystem $(CUDA_ROOT)/include $(if $(HAVE_CUDNN),-DKERNELS_CUDNN)
$(B)/kernels/cuda/cuda_table.o: CPPFLAGS += -DCUDA_ARCHS='"$(subst $() ,+,$(CUDA_ARCHS:%=sm_%))"'

$(LIB): $(LIB_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)

# by mpirun or srun also as several ranks
RANKED := eval generate
define program
$(B)/bin/$(if $(filter tessera,$(1)),tessera,tessera-$(1)): $$(patsubst %.c,$(B)/%.o,src/cmd/$(1).c $$(wildcard src/cmd/$(1)_*.c) src/cmd/cmd_main.c $(if $(filter $(RANKED),$(1)),src/cmd/cmd_ranks.c)) $(LIB)
	$$(call link,)
endef
$(foreach m,tessera $(MAINS),$(eval $(call program,$(m))))

$(B)/%.node.o: %.c
	$(call compile, (node),-O3 -DHEALTH_NODE)

$(NODE): LDFLAGS := $(filter-out -fopenmp,$(LDFLAGS))
$(NODE): LDLIBS = $(call archive,config) $(call archive,jansson) $(call archive,gomp) -ldl -lm
$(NODE): $(NODE_OBJ) $(LIB)
	$(call link,-Wl$(comma)--as-needed)

$(B)/bin/tessera-launch: jobs/launch
	@mkdir -p $(@D)
	$(Q)ln -sf $(CURDIR)/jobs/launch $@

include tests/tests.mk

# --- targets ----------------------------------------------------------------------
help: ## this list
	@grep -hE '^[a-z-]+:.*##' Makefile tests/tests.mk | sed 's/:.*## /\t/' | expand -t 12

info: ## what was found and what will be built
	@echo "version      $(VERSION)"
	@echo "compiler     $$($(CC) --version | head -n 1)"
	@echo "kernel sets  $(KERNEL_SETS)"
	@echo "MPI          $(WITH_MPI) (MPI=$(MPI); $$(pkg-config --modversion ompi-c 2>/dev/null || echo none))"
	@echo "CUDA         $(WITH_CUDA) (CUDA=$(CUDA); nvcc $(or $(NVCC),none))"
	@echo "compression  gz zstd $(filter-out brotlienc,$(CODECS))"
	@echo "line editing $(WITH_EDIT) (EDIT=$(EDIT); libedit $$(pkg-config --modversion libedit 2>/dev/null || echo none))"
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

ifeq ($(MISSING_BUILD),)
# What root runs, whole: for a disk of the node itself.
# One file after the other, each whole at any time: prologs and jobs may be reading.
put = @for f in $(3); do to=$(DESTDIR)$(PREFIX)/$(2)/$${f\#\#*/}; \
    install -m $(1) $$f $$to.new && mv -f $$to.new $$to || exit 1; done

filled = sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@VERSION@|$(VERSION)|g' modulefiles/$(1)

BASHED := share/bash-completion/completions
ZSHED  := share/zsh/site-functions

install-node: $(NODE) ## prolog, epilog and their check alone, into PREFIX on a local disk
	install -d $(DESTDIR)$(PREFIX)/libexec/tessera $(DESTDIR)$(SITEDIR)
	$(call put,755,libexec/tessera,$(NODE) jobs/prolog jobs/epilog jobs/quick)
	[ -f $(DESTDIR)$(SITEDIR)/tessera.conf ] || install -m 644 jobs/tessera.conf $(DESTDIR)$(SITEDIR)

install: all install-node ## into PREFIX (DESTDIR is honoured), with a modulefile
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/libexec/tessera/lib \
	    $(addprefix $(DESTDIR)$(PREFIX)/share/,tessera/conf/sweeps tessera/examples pkgconfig) \
	    $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(MODULEDIR)/tessera
	$(call put,755,bin,$(filter-out %launch,$(PROGRAMS)))
	$(call put,644,libexec/tessera/lib,$(wildcard jobs/lib/*.sh))
	$(call put,755,libexec/tessera,jobs/launch)
	ln -sf ../libexec/tessera/launch $(DESTDIR)$(PREFIX)/bin/tessera-launch
	$(call put,644,share/tessera,$(wildcard jobs/*.sbatch))
	$(call put,644,share/tessera/conf,$(wildcard jobs/conf/*.cfg jobs/conf/*.conf))
	$(call put,644,share/tessera/conf/sweeps,$(wildcard jobs/conf/sweeps/*.cfg))
	$(call put,644,share/man/man1,$(wildcard docs/man/*.1))
	$(call put,644,share/tessera,docs/elsewhere.md)
	install -d $(DESTDIR)$(PREFIX)/$(BASHED) $(DESTDIR)$(PREFIX)/$(ZSHED)
	$(call put,644,$(BASHED),jobs/completion/tessera)
	for p in $(notdir $(PROGRAMS:%/tessera=)); do ln -sf tessera $(DESTDIR)$(PREFIX)/$(BASHED)/$$p; done
	$(call put,644,$(ZSHED),jobs/completion/_tessera)
	$(call put,644,include,src/train/extend/tessera_plugin.h)
	$(call put,644,share/tessera/examples,$(wildcard docs/examples/*))
	$(call filled,tessera.in) > $(DESTDIR)$(MODULEDIR)/tessera/$(VERSION)
	$(call filled,tessera.pc.in) > $(DESTDIR)$(PREFIX)/share/pkgconfig/tessera.pc

deb: all ## Debian packages: the suite, and the root part alone (needs dpkg-dev)
	+modulefiles/deb $(B) $(VERSION)

endif

# deepest first, and only those that are empty then
INSTALL_DIRS := $(DESTDIR)$(MODULEDIR)/tessera $(addprefix $(DESTDIR)$(PREFIX)/, \
    bin libexec include share/modulefiles share/pkgconfig share/man/man1 share/man $(BASHED) \
    share/bash-completion $(ZSHED) share/zsh share) $(DESTDIR)$(SITEDIR) \
    $(DESTDIR)$(PREFIX)
uninstall: ## remove what install put there (etc/ stays)
	rm -f $(PROGRAMS:$(B)/bin/%=$(DESTDIR)$(PREFIX)/bin/%) $(DESTDIR)$(MODULEDIR)/tessera/$(VERSION)
	rm -rf $(DESTDIR)$(PREFIX)/libexec/tessera $(DESTDIR)$(PREFIX)/share/tessera
	rm -f $(DESTDIR)$(PREFIX)/include/tessera_plugin.h $(DESTDIR)$(PREFIX)/share/pkgconfig/tessera.pc
	rm -f $(PROGRAMS:$(B)/bin/%=$(DESTDIR)$(PREFIX)/$(BASHED)/%) $(DESTDIR)$(PREFIX)/$(ZSHED)/_tessera
	rm -f $(patsubst docs/man/%,$(DESTDIR)$(PREFIX)/share/man/man1/%,$(wildcard docs/man/*.1))
	@rmdir $(INSTALL_DIRS) 2>/dev/null || true

clean: ## remove what was built
	rm -rf build build-san build-hash build-fuzz

-include $(shell find $(B) -path $(B)/peers -prune -o -type f -name '*.d' -print 2>/dev/null)
