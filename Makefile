# Tessera: one Makefile for everything. `make info` shows what was found,
# `make help` the targets. V=1 shows commands; WERROR=1 makes warnings errors;
# SAN=1 builds with ASan and UBSan into build-san/. Settings may stand in
# config.mk.
-include config.mk

VERSION  := 0.1.0
B        ?= build
PREFIX   ?= /usr/local/tessera/$(VERSION)
MODULEDIR ?= $(PREFIX)/share/modulefiles
CC       ?= gcc
OPT      ?= -O2 -g
MPI      ?= auto
CUDA     ?= auto
V        ?= 0
WERROR   ?= 0
SAN      ?= 0
Q        := $(if $(filter 1,$(V)),,@)

# --- features: auto uses what is there, 1 insists, 0 leaves out -------------
PKGS     := hdf5 libconfig jansson openblas libcrypto
HAVE_MPI := $(shell pkg-config --exists ompi-c 2>/dev/null && echo 1 || echo 0)
NVCC     ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
HAVE_CUDA := $(if $(NVCC),1,0)
feature   = $(if $(filter auto,$($(1))),$(HAVE_$(1)),$($(1)))
WITH_MPI := $(call feature,MPI)
WITH_CUDA := $(if $(wildcard kernels/cuda_*.cu),$(call feature,CUDA),0)
GOALS_WITHOUT_BUILD := deps clean help layers lint
NEED_BUILD := $(if $(MAKECMDGOALS),$(filter-out $(GOALS_WITHOUT_BUILD),$(MAKECMDGOALS)),all)

ARCH     := $(shell uname -m)
KERNEL_SETS := $(if $(filter x86_64,$(ARCH)),avx512 avx2,) generic
MARCH_avx512 := -march=x86-64-v4 -mprefer-vector-width=512
MARCH_avx2 := -march=x86-64-v3
MARCH_generic :=

ifeq ($(SAN),1)
B        := build-san
OPT      := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANLINK  := -fsanitize=address,undefined
endif

WARN     := -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wstrict-prototypes $(if $(filter 1,$(WERROR)),-Werror)
CPPFLAGS += -I. -D_GNU_SOURCE -DTESSERA_VERSION='"$(VERSION)"' \
            -DTESSERA_WITH_MPI=$(WITH_MPI) -DTESSERA_WITH_CUDA=$(WITH_CUDA)
CFLAGS   += -std=c17 $(OPT) $(WARN) -fopenmp -pthread -MMD -MP
PKG_CFLAGS := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags $(PKGS) $(if $(filter 1,$(WITH_MPI)),ompi-c) 2>/dev/null))
LDLIBS   := $(shell pkg-config --libs $(PKGS) $(if $(filter 1,$(WITH_MPI)),ompi-c) 2>/dev/null) -lm
LDFLAGS  += -fopenmp -pthread $(SANLINK)

# --- sources ------------------------------------------------------------------
LIB_DIRS := src/base src/comm src/data src/model src/parallel src/train src/job checkpoint healthcheck
LIB_SRC  := $(sort $(foreach d,$(LIB_DIRS),$(wildcard $(d)/*.c)) kernels/kernels.c)
ifneq ($(WITH_MPI),1)
LIB_SRC  := $(filter-out src/comm/comm_mpi.c,$(LIB_SRC))
endif
CPU_SRC  := $(sort $(wildcard kernels/cpu_*.c))
CMD_SRC  := $(sort $(wildcard src/cmd/*.c))
TEST_SRC := $(sort $(wildcard tests/test_*.c))
LIB_OBJ  := $(LIB_SRC:%.c=$(B)/%.o) $(foreach s,$(KERNEL_SETS),$(CPU_SRC:%.c=$(B)/%.$(s).o))
LIB      := $(B)/libtessera.a
PROGRAMS := $(CMD_SRC:src/cmd/%.c=$(B)/bin/tessera-%)
TESTS    := $(TEST_SRC:tests/%.c=$(B)/tests/%)

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all info help deps check demo bench sanitize lint layers install uninstall clean tiny-data tests

all: $(PROGRAMS) $(B)/bin/tessera $(B)/bin/tessera-launch

ifneq ($(NEED_BUILD),)
ifneq ($(shell pkg-config --exists $(PKGS) 2>/dev/null && echo ok),ok)
MISSING := 1
endif
endif

$(B)/%.o: %.c $(if $(MISSING),deps)
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(CPPFLAGS) $(PKG_CFLAGS) $(CFLAGS) -c $< -o $@

# every CPU kernel file is compiled once per kernel set
define kernel_set_rule
$$(B)/%.$(1).o: %.c
	@mkdir -p $$(@D)
	@echo "  CC    $$< ($(1))"
	$$(Q)$$(CC) $$(CPPFLAGS) $$(PKG_CFLAGS) $$(CFLAGS) -O3 $$(MARCH_$(1)) -DKERNEL_SET=$(1) -c $$< -o $$@
endef
$(foreach s,$(KERNEL_SETS),$(eval $(call kernel_set_rule,$(s))))

$(B)/kernels/kernels.o: CPPFLAGS += $(foreach s,$(KERNEL_SETS),-DKERNEL_SET_$(s)=1)

$(LIB): $(LIB_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)

$(B)/bin/tessera-%: $(B)/src/cmd/%.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(LIB) $(LDLIBS)

$(B)/tests/%: $(B)/tests/%.o $(B)/tests/tap.o $(LIB)
	@mkdir -p $(@D)
	@echo "  LD    $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(B)/tests/tap.o $(LIB) $(LDLIBS)

tests: $(TESTS)

clean:
	rm -rf build build-san

-include $(shell find $(B) -name '*.d' 2>/dev/null)
