/* Threads of tests/cuda_emulator.cc: a stack of one's own, and the change from
 * one to another, of which AddressSanitizer is told. */
#pragma once

#include <stddef.h>
#include <string.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK_BYTES ((size_t)64 << 10)

struct context {
#if defined(__x86_64__)
    void *sp;
#else
    ucontext_t registers;
#endif
    const void *bottom; /* of the stack, for AddressSanitizer */
    size_t bytes;
    void *fake;
};

#if defined(__x86_64__)
extern "C" void cuda_emulator_switch(void **save, void *load);
/* Saves what a call must keep, changes the stack, restores. */
asm(".text\n"
    ".globl cuda_emulator_switch\n"
    ".type cuda_emulator_switch, @function\n"
    "cuda_emulator_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n"
    "  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n"
    "  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size cuda_emulator_switch, . - cuda_emulator_switch\n");

static void context_create(struct context *c, void *stack, void (*entry)())
{
    /* six registers, the entry's address and its missing return address, so
     * that the stack is aligned as after a call */
    void **top = (void **)((char *)stack + STACK_BYTES) - 8;
    memset(top, 0, 8 * sizeof(*top));
    memcpy(&top[6], &entry, sizeof(entry));
    c->sp = top;
}

static void context_exchange(struct context *from, struct context *to)
{
    cuda_emulator_switch(&from->sp, to->sp);
}
#else
static void context_create(struct context *c, void *stack, void (*entry)())
{
    getcontext(&c->registers);
    c->registers.uc_stack.ss_sp = stack;
    c->registers.uc_stack.ss_size = STACK_BYTES;
    c->registers.uc_link = NULL;
    makecontext(&c->registers, entry, 0);
}

static void context_exchange(struct context *from, struct context *to)
{
    swapcontext(&from->registers, &to->registers);
}
#endif

#if defined(__SANITIZE_ADDRESS__)
static void context_arrived(struct context *here, struct context *from)
{
    __sanitizer_finish_switch_fiber(here->fake, &from->bottom, &from->bytes);
}

static void context_switch(struct context *from, struct context *to)
{
    __sanitizer_start_switch_fiber(&from->fake, to->bottom, to->bytes);
    context_exchange(from, to);
}
#else
static void context_arrived(struct context *, struct context *)
{
}

static void context_switch(struct context *from, struct context *to)
{
    context_exchange(from, to);
}
#endif
