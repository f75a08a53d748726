#include "tests/cuda_race.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda_emulator.h"

#define WARP 32u
#define WARPS_MAX 32
#define PAGE_BITS 12
#define PAGE_BYTES ((size_t)1 << PAGE_BITS)
/* Pages of 47 bits of address, in two steps. */
#define LEAF_BITS 17
#define LEAVES ((size_t)1 << (47 - PAGE_BITS - LEAF_BITS))
#define STEPS_MAX (1u << 18)

/* Accesses to a byte. An epoch is what lies between two barriers of a block: it
 * has a number that no other launch, block or epoch has, and epochs are
 * numbered in the order they run. A step is the same between two barriers of a
 * warp, within the epoch. Of the readers since the last write the latest one is
 * kept, and whether there were others that nothing orders with it: a write that
 * conflicts with any reader conflicts with one of these. */
struct access {
    uint32_t epoch; /* 0: never */
    uint32_t where; /* bytes behind the program's start */
    unsigned step : 18;
    unsigned thread : 10;
    unsigned lanes : 1;     /* readers in this step: more than this thread */
    unsigned warps : 1;     /* readers in this epoch: more than this warp */
    unsigned blocks : 1;    /* readers in this launch: more than this block */
    unsigned in_flight : 1; /* an asynchronous copy that still writes */
};

/* Of a byte. */
struct cell {
    struct access write, read;
};

static struct cell **leaves[LEAVES];

/* What runs. */
static struct {
    bool on;
    struct cuda_race_shared shared[2];
    uint32_t epoch, block_epoch, launch_epoch; /* now, and the first ones */
    uint32_t steps[WARPS_MAX];
    unsigned thread;
    uintptr_t stack;
    size_t stack_bytes;
} now;

extern char __executable_start[];

/* --- messages --- */

/* "kernels/cuda/cuda_vec.h:78, kernels/cuda/cuda_norm.cu:40": a line of code and those
 * that it was inlined into. */
static void write_place(uint32_t where, char *text, size_t bytes)
{
    char line[256];
    size_t used = 0;
    snprintf(line, sizeof(line), "addr2line -i -e /proc/%ld/exe 0x%x",
             (long)getpid(), where - 1);
    FILE *lines = popen(line, "r");
    snprintf(text, bytes, "an unknown line");
    while (lines != NULL && fgets(line, sizeof(line), lines) != NULL) {
        line[strcspn(line, " \n")] = '\0';
        const char *name = strstr(line, "kernels/");
        if (name == NULL)
            name = strstr(line, "tests/");
        if (name != NULL && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s",
                                     used > 0 ? ", " : "", name);
    }
    if (lines != NULL)
        pclose(lines);
}

static bool is_shared(uintptr_t at)
{
    for (const struct cuda_race_shared &shared : now.shared)
        if (at >= shared.first && at < shared.end)
            return true;
    return false;
}

/* "thread 3 reads a byte of shared memory (LINES)" and what else is wrong. */
[[noreturn]] static void fail(uintptr_t at, bool write, uint32_t where,
                              const char *format, ...)
{
    char text[2048], place[512], rest[1024];
    va_list arguments;
    now.on = false;
    va_start(arguments, format);
    vsnprintf(rest, sizeof(rest), format, arguments);
    va_end(arguments);
    write_place(where, place, sizeof(place));
    snprintf(text, sizeof(text), "thread %u %s %s memory at %s%s", now.thread,
             write ? "writes" : "reads", is_shared(at) ? "shared" : "global",
             place, rest);
    cuda_emulator_fail(text);
}

[[noreturn]] static void fail_race(uintptr_t at, bool write, uint32_t where,
                                   const struct access *other, bool other_write)
{
    char place[512];
    bool same = other->epoch >= now.block_epoch;
    bool others = other->lanes || other->warps || other->blocks;
    write_place(other->where, place, sizeof(place));
    fail(at, write, where,
         ", which thread %u%s of %s block has %s at %s, and no barrier is in "
         "between",
         other->thread, others ? ", like others," : "",
         same ? "this" : "another", other_write ? "written" : "read", place);
}

/* --- accesses --- */

static struct cell *cell_of(uintptr_t at)
{
    size_t page = at >> PAGE_BITS;
    struct cell ***leaf = &leaves[(page >> LEAF_BITS) % LEAVES];
    if (*leaf == NULL)
        *leaf = (struct cell **)calloc((size_t)1 << LEAF_BITS, sizeof(**leaf));
    if (*leaf == NULL)
        abort();
    struct cell **cells = *leaf + page % ((size_t)1 << LEAF_BITS);
    if (*cells == NULL)
        *cells = (struct cell *)calloc(PAGE_BYTES, sizeof(**cells));
    if (*cells == NULL)
        abort();
    return *cells + at % PAGE_BYTES;
}

static struct access here(uint32_t where)
{
    struct access access = {};
    access.epoch = now.epoch;
    access.where = where;
    access.step = now.steps[now.thread / WARP] % STEPS_MAX;
    access.thread = now.thread % 1024;
    return access;
}

/* Whether nothing orders one access, of this launch or, in shared memory, of
 * this block, with what happens now. */
static bool unordered(const struct access *before, const struct access *access)
{
    if (before->epoch < now.block_epoch)
        return true;
    if (before->epoch != access->epoch || before->thread == access->thread)
        return false;
    return before->thread / WARP != access->thread / WARP ||
           before->step == access->step;
}

/* The same of all readers. */
static bool unordered_readers(const struct access *read,
                              const struct access *access)
{
    if (read->blocks || unordered(read, access))
        return true;
    if (read->epoch != access->epoch)
        return false;
    return read->warps || (read->lanes && read->step == access->step);
}

/* `access` becomes the latest reader; those of before `first` do not count. */
static void note_read(struct access *read, struct access access, uint32_t first)
{
    if (read->epoch >= first)
        access.blocks = read->blocks || read->epoch < now.block_epoch;
    if (read->epoch == access.epoch) {
        bool warp = read->thread / WARP == access.thread / WARP;
        access.warps = read->warps || !warp;
        access.lanes = warp && read->step == access.step &&
                       (read->lanes || read->thread != access.thread);
    }
    *read = access;
}

static inline void note_byte(struct cell *cell, uintptr_t at, bool write,
                             bool shared, struct access access)
{
    uint32_t first = shared ? now.block_epoch : now.launch_epoch;
    bool written = cell->write.epoch >= first;
    if (written && cell->write.in_flight)
        fail(at, write, access.where,
             ", where a copy of thread %u is not there yet",
             cell->write.thread);
    if (written && unordered(&cell->write, &access))
        fail_race(at, write, access.where, &cell->write, true);
    if (!write && shared && !written)
        fail(at, write, access.where,
             ", which nobody in its block has written");
    if (!write) {
        note_read(&cell->read, access, first);
        return;
    }
    if (cell->read.epoch >= first && unordered_readers(&cell->read, &access))
        fail_race(at, write, access.where, &cell->read, false);
    cell->write = access;
}

static uint32_t offset_of(const void *where)
{
    return (uint32_t)((const char *)where - __executable_start);
}

static void note(const void *p, size_t bytes, bool write, const void *where)
{
    uintptr_t at = (uintptr_t)p;
    if (!now.on || at - now.stack < now.stack_bytes)
        return;
    bool shared = is_shared(at);
    struct access access = here(offset_of(where));
    struct cell *cell = cell_of(at);
    for (size_t i = 0; i < bytes; i++, cell++) {
        if (i > 0 && (at + i) % PAGE_BYTES == 0)
            cell = cell_of(at + i);
        note_byte(cell, at + i, write, shared, access);
    }
}

/* --- what the emulator says --- */

static void epoch_next()
{
    if (++now.epoch == 0)
        cuda_emulator_fail("more barriers than are counted");
    memset(now.steps, 0, sizeof(now.steps));
}

void cuda_race_launch(const struct cuda_race_shared shared[2])
{
    now.on = shared != NULL;
    now.launch_epoch = now.epoch + 1;
    if (now.on)
        memcpy(now.shared, shared, sizeof(now.shared));
}

void cuda_race_block()
{
    epoch_next();
    now.block_epoch = now.epoch;
}

void cuda_race_thread(unsigned thread, const void *stack, size_t bytes)
{
    now.thread = thread;
    now.stack = (uintptr_t)stack;
    now.stack_bytes = bytes;
}

void cuda_race_barrier()
{
    epoch_next();
}

void cuda_race_warp_barrier(unsigned warp)
{
    if (++now.steps[warp] == STEPS_MAX)
        cuda_emulator_fail("more barriers of a warp than are counted");
}

/* It may write from its begin until it has been waited for, so what others do
 * at either time counts. */
void cuda_race_fetch(bool done, const void *from, void *to, size_t bytes,
                     const void *where)
{
    for (size_t i = 0; done && i < bytes; i++)
        cell_of((uintptr_t)to + i)->write.in_flight = false;
    note(from, bytes, false, where);
    note(to, bytes, true, where);
    for (size_t i = 0; !done && i < bytes; i++)
        cell_of((uintptr_t)to + i)->write.in_flight = true;
}

void cuda_race_store(const void *to, size_t bytes, const void *where)
{
    note(to, bytes, true, where);
}

/* --- what the compiler calls --- */

#define ACCESS(bytes)                                                          \
    void __tsan_read##bytes(const void *p)                                     \
    {                                                                          \
        note(p, bytes, false, __builtin_return_address(0));                    \
    }                                                                          \
    void __tsan_write##bytes(const void *p)                                    \
    {                                                                          \
        note(p, bytes, true, __builtin_return_address(0));                     \
    }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

void __tsan_read_range(const void *p, size_t bytes)
{
    note(p, bytes, false, __builtin_return_address(0));
}

void __tsan_write_range(const void *p, size_t bytes)
{
    note(p, bytes, true, __builtin_return_address(0));
}

void __tsan_init()
{
}

void __tsan_func_entry(const void *)
{
}

void __tsan_func_exit()
{
}
}
