#include "tests/cuda_emulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/cuda_emulator_context.h"
#include "tests/cuda_race.h"

#define THREADS_MAX 1024u
#define WARP 32u
/* What a kernel gets without asking for more, less what it may have besides in
 * static arrays. */
#define SHARED_BYTES_MAX ((size_t)47 << 10)
/* What every device of compute capability 8.0 or more grants one that asks. */
#define SHARED_BYTES_GRANTED ((size_t)99 << 10)
#define GRANTS_MAX 64
#define FETCHES_MAX 256
#define FETCH_BYTES 16
#define GRID_YZ_MAX 65535u
#define GRID_X_MAX 0x7fffffffu

dim3 threadIdx, blockIdx, blockDim, gridDim;

extern "C" char __start_cuda_shared[] __attribute__((weak));
extern "C" char __stop_cuda_shared[] __attribute__((weak));

/* --- without cuda_race.o nobody looks for races --- */

#define NOBODY(name, ...)                                                      \
    __attribute__((weak)) void name(__VA_ARGS__)                               \
    {                                                                          \
    }

NOBODY(cuda_race_launch, const struct cuda_race_shared *)
NOBODY(cuda_race_block)
NOBODY(cuda_race_thread, unsigned, const void *, size_t)
NOBODY(cuda_race_barrier)
NOBODY(cuda_race_warp_barrier, unsigned)
NOBODY(cuda_race_fetch, bool, const void *, void *, size_t, const void *)
NOBODY(cuda_race_store, const void *, size_t, const void *)

/* --- threads --- */

enum waits { IDLE, RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK };

struct fetch {
    const void *from;
    void *to;
};

struct fiber {
    struct context context;
    enum waits waits;
    unsigned thread;
    unsigned generation; /* of the barrier that it waits at */
    const char *where;
    struct fetch fetches[FETCHES_MAX]; /* begun, not yet waited for */
    unsigned fetch_count;
};

struct warp {
    unsigned arrived, generation;
    const char *where;
    uint64_t values[2][WARP]; /* by turns: a lane may be one ahead */
};

/* The launch that runs. */
static struct {
    const char *name;
    void (*body)(void *);
    void *argument;
    unsigned threads;
    unsigned started, ended;
    unsigned fibers;      /* that have had a thread of the block */
    unsigned first, step; /* threads start in the order first + i * step */
    unsigned slow_warp;
    unsigned arrived, generation;
    struct warp warps[THREADS_MAX / WARP];
    char *shared;
} run;

static struct fiber *fibers[THREADS_MAX];
static unsigned fiber_count;
static struct fiber *current;
static struct context scheduler;
static uint64_t chance = 1;

static unsigned random_below(unsigned n)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((chance >> 33) % n);
}

static struct {
    const void *kernel;
    size_t bytes;
} grants[GRANTS_MAX];

cudaError_t cuda_emulator_grant(const void *kernel, int shared_bytes)
{
    size_t bytes = (size_t)shared_bytes;
    for (int i = 0; i < GRANTS_MAX; i++)
        if (bytes <= SHARED_BYTES_GRANTED &&
            (grants[i].kernel == NULL || grants[i].kernel == kernel)) {
            grants[i].kernel = kernel;
            grants[i].bytes = bytes;
            return cudaSuccess;
        }
    return 1;
}

static size_t shared_bytes_max(const void *kernel)
{
    for (int i = 0; i < GRANTS_MAX; i++)
        if (grants[i].kernel == kernel && grants[i].bytes > SHARED_BYTES_MAX)
            return grants[i].bytes;
    return SHARED_BYTES_MAX;
}

void cuda_emulator_fail(const char *text)
{
    fprintf(stderr, "cuda emulator: %s, block (%u, %u, %u): %s\n", run.name,
            blockIdx.x, blockIdx.y, blockIdx.z, text);
    abort();
}

static void thread_begin(unsigned thread)
{
    current->thread = thread;
    threadIdx.x = thread % blockDim.x;
    threadIdx.y = thread / blockDim.x % blockDim.y;
    threadIdx.z = thread / blockDim.x / blockDim.y;
    cuda_race_thread(thread, current->context.bottom, current->context.bytes);
}

void cuda_emulator_fetch(const void *from, void *to)
{
    if (current->fetch_count == FETCHES_MAX)
        cuda_emulator_fail("a thread has begun too many copies");
    if (((uintptr_t)from | (uintptr_t)to) % FETCH_BYTES != 0)
        cuda_emulator_fail(
            "an asynchronous copy's address is no multiple of 16");
    cuda_race_fetch(false, from, to, FETCH_BYTES, __builtin_return_address(0));
    current->fetches[current->fetch_count++] = { from, to };
}

void cuda_emulator_fetched()
{
    for (unsigned i = 0; i < current->fetch_count; i++) {
        struct fetch fetch = current->fetches[i];
        cuda_race_fetch(true, fetch.from, fetch.to, FETCH_BYTES,
                        __builtin_return_address(0));
        memcpy(fetch.to, fetch.from, FETCH_BYTES);
    }
    current->fetch_count = 0;
}

void cuda_emulator_store(const unsigned *words, size_t bytes, void *to)
{
    if ((uintptr_t)to % bytes != 0)
        cuda_emulator_fail("a store's address is no multiple of its bytes");
    cuda_race_store(to, bytes, __builtin_return_address(0));
    memcpy(to, words, bytes);
}

/* A fiber takes threads until one of them waits, then others take over. */
static void fiber_main()
{
    context_arrived(&current->context, &scheduler);
    for (;;) {
        struct fiber *self = current;
        while (run.started < run.threads) {
            uint64_t i = run.started++;
            thread_begin((unsigned)((run.first + i * run.step) % run.threads));
            run.body(run.argument);
            if (self->fetch_count != 0)
                cuda_emulator_fail(
                    "a thread ended before what it copies was there");
            run.ended++;
        }
        self->waits = IDLE;
        context_switch(&self->context, &scheduler);
        context_arrived(&self->context, &scheduler);
    }
}

/* One that has had no thread of this block yet. */
static struct fiber *fiber_next()
{
    if (run.fibers < fiber_count)
        return fibers[run.fibers++];
    struct fiber *fiber = (struct fiber *)calloc(1, sizeof(*fiber));
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fiber == NULL || stack == MAP_FAILED)
        cuda_emulator_fail("no memory for a thread");
    fiber->context.bottom = stack;
    fiber->context.bytes = STACK_BYTES;
    context_create(&fiber->context, stack, fiber_main);
    fibers[fiber_count++] = fiber;
    run.fibers++;
    return fiber;
}

static void fiber_resume(struct fiber *fiber)
{
    current = fiber;
    fiber->waits = RUNS;
    context_switch(&scheduler, &fiber->context);
    context_arrived(&scheduler, &fiber->context);
}

static void wait_for(enum waits what, unsigned generation, const char *where)
{
    struct fiber *self = current;
    self->waits = what;
    self->generation = generation;
    self->where = where;
    context_switch(&self->context, &scheduler);
    context_arrived(&self->context, &scheduler);
    thread_begin(self->thread);
}

void __syncthreads()
{
    unsigned generation = run.generation;
    if (++run.arrived == run.threads) {
        run.arrived = 0;
        run.generation++;
        cuda_race_barrier();
        return;
    }
    wait_for(WAITS_FOR_BLOCK, generation, "__syncthreads");
}

const uint64_t *cuda_emulator_exchange(const char *collective, unsigned mask,
                                       uint64_t value)
{
    struct warp *warp = &run.warps[current->thread / WARP];
    unsigned generation = warp->generation;
    uint64_t *values = warp->values[generation % 2];
    if (mask != 0xffffffffu || run.threads % WARP != 0 || blockDim.y != 1 ||
        blockDim.z != 1)
        cuda_emulator_fail(
            "collectives are for whole warps of blocks in one dimension");
    if (warp->arrived == 0)
        warp->where = collective;
    if (strcmp(warp->where, collective) != 0)
        cuda_emulator_fail("lanes of a warp meet in different collectives");
    values[current->thread % WARP] = value;
    if (++warp->arrived == WARP) {
        warp->arrived = 0;
        warp->generation++;
        if (strcmp(collective, "__syncwarp") == 0)
            cuda_race_warp_barrier(current->thread / WARP);
        return values;
    }
    wait_for(WAITS_FOR_WARP, generation, collective);
    return values;
}

/* --- blocks --- */

static bool may_go_on(const struct fiber *fiber)
{
    if (fiber->waits == WAITS_FOR_BLOCK)
        return fiber->generation != run.generation;
    return fiber->waits == WAITS_FOR_WARP &&
           fiber->generation != run.warps[fiber->thread / WARP].generation;
}

/* Every fiber that may go on does so once; true if there was one. Those of the
 * slow warp only if no other may: the others get as far ahead of it as barriers
 * let them. */
static bool sweep(bool slow)
{
    bool any = false;
    unsigned first = random_below(run.fibers);
    unsigned step = random_below(2) == 0 ? 1 : run.fibers - 1;
    for (unsigned i = 0, at = first; i < run.fibers; i++) {
        if ((fibers[at]->thread / WARP == run.slow_warp) == slow &&
            may_go_on(fibers[at])) {
            fiber_resume(fibers[at]);
            any = true;
        }
        at = (at + step) % run.fibers;
    }
    return any;
}

[[noreturn]] static void fail_stuck()
{
    char text[160];
    unsigned waiting = 0;
    const struct fiber *one = NULL;
    for (unsigned i = 0; i < run.fibers; i++)
        if (fibers[i]->waits != IDLE) {
            waiting++;
            one = fibers[i];
        }
    snprintf(text, sizeof(text),
             "%u threads wait, thread %u at %s, and the other %u have ended",
             waiting, one->thread, one->where, run.ended);
    cuda_emulator_fail(text);
}

/* Also what AddressSanitizer puts between the arrays, so not by memset(). */
__attribute__((no_sanitize("address"))) static void poison_arrays()
{
    const uint64_t word = UINT64_MAX;
    char *at = __start_cuda_shared;
    for (; __stop_cuda_shared - at >= 8; at += sizeof(word)) {
        __builtin_memcpy(at, &word, sizeof(word));
        asm volatile("" ::: "memory");
    }
    for (; at < __stop_cuda_shared; at++) {
        *at = '\xff';
        asm volatile("" ::: "memory");
    }
}

static void block_run(size_t shared_bytes)
{
    cuda_race_block();
    poison_arrays();
    if (shared_bytes > 0)
        memset(run.shared, 0xff, shared_bytes);
    run.started = run.ended = run.fibers = run.arrived = 0;
    run.first = random_below(run.threads);
    run.step = random_below(2) == 0 ? 1 : run.threads - 1;
    run.slow_warp = random_below((run.threads + WARP - 1) / WARP);
    while (run.ended < run.threads) {
        if (run.started < run.threads)
            fiber_resume(fiber_next());
        else if (!sweep(false) && !sweep(true))
            fail_stuck();
    }
    for (size_t i = 0; i < run.threads / WARP; i++)
        if (run.warps[i].arrived != 0)
            cuda_emulator_fail("a warp's collective was left half done");
}

static unsigned coprime_below(unsigned n)
{
    for (;;) {
        unsigned a = n, b = n > 1 ? 1 + random_below(n - 1) : 1, step = b;
        while (b != 0) {
            unsigned rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step;
    }
}

void *cuda_emulator_shared()
{
    return run.shared;
}

void cuda_emulator_run(const char *name, const void *kernel, dim3 grid,
                       dim3 block, size_t shared_bytes, void (*body)(void *),
                       void *argument)
{
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    gridDim = grid;
    blockDim = block;
    blockIdx = dim3(0, 0, 0);
    run.name = name;
    run.body = body;
    run.argument = argument;
    run.threads = (unsigned)threads;
    if (blocks == 0 || grid.x > GRID_X_MAX || grid.y > GRID_YZ_MAX ||
        grid.z > GRID_YZ_MAX || threads == 0 || threads > THREADS_MAX ||
        block.z > 64 || shared_bytes > shared_bytes_max(kernel))
        cuda_emulator_fail("no device grants such a launch");
    if (blocks > GRID_X_MAX)
        cuda_emulator_fail("so many blocks would run for hours");
    /* exactly as large as asked for, so that AddressSanitizer sees its end */
    run.shared = (char *)malloc(shared_bytes);
    const struct cuda_race_shared shared[2] = {
        { (uintptr_t)run.shared, (uintptr_t)run.shared + shared_bytes },
        { (uintptr_t)__start_cuda_shared, (uintptr_t)__stop_cuda_shared },
    };
    cuda_race_launch(shared);
    unsigned first = random_below((unsigned)blocks);
    unsigned step = coprime_below((unsigned)blocks);
    for (uint64_t i = 0; i < blocks; i++) {
        unsigned at = (unsigned)((first + i * step) % blocks);
        blockIdx.x = at % grid.x;
        blockIdx.y = at / grid.x % grid.y;
        blockIdx.z = at / grid.x / grid.y;
        block_run(shared_bytes);
    }
    cuda_race_launch(NULL);
    free(run.shared);
    run.shared = NULL;
}

/* --- what is enqueued --- */

/* cuda_emulator_memory.c, where a program has it. */
extern "C" void cuda_emulator_open(bool open) __attribute__((weak));
extern "C" void cuda_emulator_defer(void *stream, void (*run)(void *),
                                    void *what) __attribute__((weak));

struct launch {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    void (*body)(void *);
};

struct fill {
    void *p;
    int value;
    size_t bytes;
};

static void open_memory(bool open)
{
    if (cuda_emulator_open != NULL)
        cuda_emulator_open(open);
}

static void run_launch(const struct launch *launch, void *argument)
{
    open_memory(true);
    cuda_emulator_run(launch->name, launch->kernel, launch->grid, launch->block,
                      launch->shared_bytes, launch->body, argument);
    open_memory(false);
}

/* The argument lies behind the launch. */
static void run_deferred(void *what)
{
    run_launch((const struct launch *)what,
               (char *)what + sizeof(struct launch));
}

static void run_fill(void *what)
{
    const struct fill *fill = (const struct fill *)what;
    open_memory(true);
    if (fill->bytes > 0)
        memset(fill->p, fill->value, fill->bytes);
    open_memory(false);
}

/* Memory that the stream frees. */
static char *parcel(size_t bytes)
{
    char *memory = (char *)malloc(bytes);
    if (memory == NULL || cuda_emulator_defer == NULL)
        abort();
    return memory;
}

void cuda_emulator_enqueue(cudaStream_t stream, const char *name,
                           const void *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, void (*body)(void *),
                           const void *argument, size_t bytes)
{
    struct launch launch = { name, kernel, grid, block, shared_bytes, body };
    if (stream == NULL) {
        run_launch(&launch, const_cast<void *>(argument));
        return;
    }
    char *what = parcel(sizeof(launch) + bytes);
    memcpy(what, &launch, sizeof(launch));
    memcpy(what + sizeof(launch), argument, bytes);
    cuda_emulator_defer(stream, run_deferred, what);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes,
                            cudaStream_t stream)
{
    struct fill fill = { p, value, bytes };
    if (stream == NULL) {
        run_fill(&fill);
        return cudaSuccess;
    }
    char *what = parcel(sizeof(fill));
    memcpy(what, &fill, sizeof(fill));
    cuda_emulator_defer(stream, run_fill, what);
    return cudaSuccess;
}
