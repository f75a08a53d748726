/* Ops on a timeline, on every table: the same bits as of the table that tells
 * nobody, a span for each op with what it was asked for; on the device that
 * tests/cuda_emulator_memory.h plays also the device's own times, in the order
 * in which they were enqueued, more of them than there are events. */
#include "kernels/kernel_profile.h"

#include "kernels/kernels.h"
#include "src/base/rng.h"
#include "tests/tap.h"

#define SIDE 24
#define COUNT (SIDE * SIDE)
#define BYTES (COUNT * sizeof(float))
#define ROOM 40000
#define MANY 9000 /* more than the events of a profile */

static struct timeline_kind kinds[TIMELINE_KINDS_MAX];

struct bench {
    const struct kernels *kernels;
    const struct kernel_memory *memory;
    struct kernel_ctx ctx;
    struct arena tensors, host;
    float *a, *b, *c;
    float *here;
    struct timeline *timeline;
    struct kernel_profile *profile;
};

static enum err bench_open(struct bench *b)
{
    const struct kernel_limits limits = { .threads = 1,
                                          .tokens = SIDE,
                                          .batch = 1,
                                          .seq = SIDE,
                                          .width = SIDE,
                                          .heads = 1,
                                          .head_dim = SIDE,
                                          .vocab = SIDE };
    b->memory = b->kernels->memory;
    b->ctx.threads = 1;
    b->ctx.scratch_bytes = b->kernels->scratch_bytes(&limits);
    TRY(b->memory->stream_create(false, &b->ctx.stream));
    TRY(b->memory->tensors_create(4 * BYTES + b->ctx.scratch_bytes + 4096,
                                  &b->tensors));
    TRY(b->memory->host_create(BYTES, &b->host));
    b->ctx.scratch = arena_take(&b->tensors, b->ctx.scratch_bytes + 256);
    b->ctx.scratch =
        (char *)b->ctx.scratch + (256 - (uintptr_t)b->ctx.scratch % 256) % 256;
    b->a = arena_take(&b->tensors, BYTES);
    b->b = arena_take(&b->tensors, BYTES);
    b->c = arena_take(&b->tensors, BYTES);
    b->here = arena_take(&b->host, BYTES);
    timeline_kinds(kinds);
    kernel_profile_kinds(kinds + TIMELINE_KINDS_OWN);
    TRY(timeline_create(kinds, TIMELINE_KINDS_OWN + KERNEL_OP_COUNT, ROOM,
                        &b->timeline));
    return kernel_profile_create(b->timeline, TIMELINE_KINDS_OWN, b->memory,
                                 &b->profile);
}

static void bench_close(struct bench *b)
{
    kernel_profile_destroy(b->profile);
    timeline_destroy(b->timeline);
    b->memory->host_destroy(&b->host);
    b->memory->tensors_destroy(&b->tensors);
    b->memory->stream_destroy(b->ctx.stream);
}

static enum err fill(struct bench *b, float *tensor, uint64_t seed)
{
    for (int i = 0; i < COUNT; i++)
        b->here[i] =
            (float)((double)(rng_u64(seed, 3, (uint64_t)i) >> 40) * 0x1p-24);
    TRY(b->memory->upload(b->ctx.stream, BYTES, b->here, tensor));
    return b->memory->wait(b->ctx.stream);
}

/* c = (a b^T) + a, by two ops. */
static enum err compute(struct bench *b, const struct kernels *kernels,
                        float *out)
{
    struct gemm gemm = { .form = GEMM_NT,
                         .m = SIDE,
                         .n = SIDE,
                         .k = SIDE,
                         .a = b->a,
                         .b = b->b,
                         .c = b->c };
    TRY(kernels->gemm(&b->ctx, DTYPE_F32, &gemm));
    TRY(kernels->accumulate(&b->ctx, DTYPE_F32, COUNT, b->a, b->c));
    TRY(b->memory->download(b->ctx.stream, BYTES, b->c, b->here));
    TRY(b->memory->wait(b->ctx.stream));
    memcpy(out, b->here, BYTES);
    return ERR_OK;
}

static int kind_of(enum kernel_op op)
{
    return TIMELINE_KINDS_OWN + (int)op;
}

static const struct timeline_event *event_of(const struct timeline *timeline,
                                             int kind)
{
    for (size_t i = 0; i < timeline->count; i++)
        if (timeline->events[i].kind == kind)
            return &timeline->events[i];
    return NULL;
}

static void test_spans(struct bench *b, const char *name)
{
    const struct timeline *timeline = b->timeline;
    bool device = b->memory->device;
    const struct timeline_sum *sums =
        device ? timeline->device : timeline->host;
    const struct timeline_event *gemm =
        event_of(timeline, kind_of(KERNEL_OP_gemm));
    const struct timeline_event *next =
        event_of(timeline, kind_of(KERNEL_OP_accumulate));
    tap_is_int((long long)timeline->count, device ? 4 : 2,
               "%s: a span for each op, and on a device for its launch", name);
    tap_is_int(sums[kind_of(KERNEL_OP_gemm)].count, 1, "%s: in a sum", name);
    tap_is_int(timeline->host[TIMELINE_LAUNCH].count, device ? 2 : 0,
               "%s: what the host does for a device is a launch", name);
    if (gemm == NULL || next == NULL)
        return;
    tap_is_str(gemm->detail.label, "gemm NT", "%s: which product", name);
    tap_ok(gemm->detail.dim[0] == SIDE && gemm->detail.dim[2] == SIDE &&
               gemm->detail.flop == 2.0 * SIDE * COUNT &&
               gemm->detail.bytes == 3.0 * BYTES,
           "%s: its shape, operations and bytes", name);
    tap_ok(next->detail.dim[0] == COUNT && next->detail.bytes == 3.0 * BYTES,
           "%s: of another op as well", name);
    tap_ok(gemm->end_ns >= gemm->begin_ns && next->begin_ns >= gemm->end_ns,
           "%s: in their order", name);
    tap_is_int(gemm->lane == 0, !device, "%s: in a lane of the device", name);
}

/* The device's times are the host's within what is told. */
static void test_clock(struct bench *b, const char *name, int64_t before,
                       int64_t after)
{
    int64_t error = 0;
    const struct timeline_event *gemm =
        event_of(b->timeline, kind_of(KERNEL_OP_gemm));
    if (!kernel_profile_times_device(b->profile, &error) || gemm == NULL)
        return;
    tap_note("%s: clocks tied to %lld ns", name, (long long)error);
    tap_ok(gemm->begin_ns >= before - error - 1000 &&
               gemm->end_ns <= after + error + 1000,
           "%s: between what the host did before and after", name);
}

static void test_table(const struct kernels *kernels)
{
    struct bench b = { .kernels = kernels };
    float plain[COUNT], told[COUNT];
    char name[64];
    enum err rc = bench_open(&b);
    snprintf(name, sizeof name, "%s/%s", kernels->backend, kernels->kernel_set);
    if (rc == ERR_OK)
        rc = fill(&b, b.a, 1);
    if (rc == ERR_OK)
        rc = fill(&b, b.b, 2);
    if (rc == ERR_OK)
        rc = compute(&b, kernels, plain);
    tap_is_int(rc, ERR_OK, "%s: computes", name);
    tap_ok(kernels->profiled->profiled == kernels->profiled,
           "%s: a table that tells has itself", name);
    if (rc == ERR_OK)
        rc = compute(&b, kernels->profiled, told);
    tap_is_int((long long)b.timeline->count, 0,
               "%s: nobody is told without a profile", name);
    b.ctx.profile = b.profile;
    if (rc == ERR_OK)
        rc = compute(&b, kernels->profiled, told);
    tap_is_int((long long)b.timeline->count, 0, "%s: nor by one that is off",
               name);
    timeline_start(b.timeline);
    if (rc == ERR_OK)
        rc = kernel_profile_start(b.profile, b.ctx.stream);
    int64_t before = timeline_now();
    if (rc == ERR_OK)
        rc = compute(&b, kernels->profiled, told);
    int64_t after = timeline_now();
    if (rc == ERR_OK)
        rc = kernel_profile_finish(b.profile, 10.0);
    timeline_stop(b.timeline);
    tap_is_int(rc, ERR_OK, "%s: tells", name);
    tap_ok(memcmp(plain, told, BYTES) == 0, "%s: the same bits", name);
    tap_is_int((long long)b.timeline->lost, 0, "%s: nothing is lost", name);
    test_spans(&b, name);
    test_clock(&b, name, before, after);
    bench_close(&b);
}

/* The host does not wait for events: those that find none are lost, and told,
 * and later ones are timed again. */
static void test_many(const struct kernels *kernels)
{
    struct bench b = { .kernels = kernels };
    bool ordered = true;
    enum err rc = bench_open(&b);
    int64_t last = 0;
    b.ctx.profile = b.profile;
    timeline_start(b.timeline);
    if (rc == ERR_OK)
        rc = kernel_profile_start(b.profile, b.ctx.stream);
    for (int i = 0; i < MANY && rc == ERR_OK; i++)
        rc = kernels->profiled->zero(&b.ctx, DTYPE_F32, 1, b.c);
    if (rc == ERR_OK)
        rc = b.memory->wait(b.ctx.stream);
    if (rc == ERR_OK)
        rc = kernel_profile_follow(b.profile);
    int64_t timed = b.timeline->device[kind_of(KERNEL_OP_zero)].count;
    tap_is_int(timed + (long long)b.timeline->lost, MANY,
               "%lld of %d ops are timed, the others counted as lost",
               (long long)timed, MANY);
    if (rc == ERR_OK)
        rc = kernels->profiled->zero(&b.ctx, DTYPE_F32, 1, b.c);
    if (rc == ERR_OK)
        rc = b.memory->wait(b.ctx.stream);
    if (rc == ERR_OK)
        rc = kernel_profile_finish(b.profile, 10.0);
    timeline_stop(b.timeline);
    tap_is_int(rc, ERR_OK, "none of it is a failure");
    tap_is_int(b.timeline->device[kind_of(KERNEL_OP_zero)].count, timed + 1,
               "and the next is timed again");
    for (size_t i = 0; i < b.timeline->count; i++) {
        const struct timeline_event *event = &b.timeline->events[i];
        if (event->lane == 0)
            continue;
        ordered = ordered && event->begin_ns >= last &&
                  event->end_ns >= event->begin_ns;
        last = event->end_ns;
    }
    tap_ok(ordered, "one after the other, as on the stream");
    bench_close(&b);
}

/* What an op counts, by hand. */
static void test_work(void)
{
    const struct kernel_ctx ctx = { .threads = 1 };
    const struct attention shape = {
        .batch = 2, .seq = 8, .heads = 4, .kv_heads = 2, .head_dim = 16
    };
    const int64_t offsets[] = { 0, 3, 10 };
    const struct grouped_gemm grouped = {
        .form = GEMM_NT, .groups = 2, .offsets = offsets, .n = 5, .k = 7
    };
    struct timeline_detail work = kernel_work_attention_forward(
        &ctx, DTYPE_F32, &shape, NULL, NULL, NULL);
    /* two products of seq x seq x head_dim a head, half of each */
    tap_is_close(work.flop, 2 * 2.0 * 2 * 4 * 8 * 8 * 16 / 2, 0.0,
                 "attention's operations are those below the diagonal");
    tap_is_close(work.bytes, 4.0 * 2 * 8 * 16 * ((4 + 2 * 2) + 4), 0.0,
                 "its bytes queries, keys, values and what comes out");
    work = kernel_work_grouped_gemm(&ctx, DTYPE_F32, &grouped);
    tap_is_close(work.flop, 2.0 * 10 * 5 * 7, 0.0,
                 "experts' products are of the rows that there are");
    work = kernel_work_adamw(&ctx, DTYPE_F32, 100, NULL, NULL, NULL, NULL);
    tap_is_close(work.bytes, 100.0 * 4 * 7, 0.0,
                 "an update reads a gradient, and reads and writes three");
}

int main(void)
{
    bool device = false;
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++) {
        test_table(*t);
        if ((*t)->memory->device) {
            device = true;
            test_many(*t);
        }
    }
    tap_ok(device, "the emulated device is among the tables");
    test_work();
    return tap_done();
}
