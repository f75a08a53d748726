#include "tests/gpu/bench_device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/cuda/device/cuda_device.h"
#include "src/base/clock.h"
#include "src/base/rng.h"

#define OPERANDS ((size_t)6 << 30)
#define OPERANDS_REHEARSAL ((size_t)192 << 20)
#define BLOCK ((size_t)16 << 20)

static enum err scratch_create(struct bench *b)
{
    const struct kernel_limits limits = {
        .threads = 1,
        .tokens = b->tokens * 4,
        .batch = 16,
        .seq = b->tokens,
        .width = 16384 / b->shrink,
        .heads = 32,
        .head_dim = 128 / b->shrink,
        .vocab = 50368 / b->shrink,
        .experts = 8,
        .top_k = 2,
    };
    size_t bytes = b->table->scratch_bytes(&limits);
    TRY(b->table->memory->tensors_create(bytes, &b->scratch));
    b->ctx.scratch = arena_take(&b->scratch, bytes);
    b->ctx.scratch_bytes = bytes;
    return ERR_OK;
}

enum err bench_create(bool cpu, bool json, struct bench *out)
{
    enum err rc = ERR_OK;
    struct bench b = {
        .ctx = { .threads = 1 },
        .dtype = cpu ? DTYPE_F32 : DTYPE_BF16,
        .shrink = cpu ? 8 : 1,
        .tokens = cpu ? 256 : 16384,
        .json = json,
    };
    memset(out, 0, sizeof *out);
    TRY_OUT(kernels_find(cpu ? "cpu" : "cuda", "auto", &b.table));
    TRY_OUT(b.table->memory->use(0));
    TRY_OUT(b.table->memory->stream_create(false, &b.ctx.stream));
    TRY_OUT(scratch_create(&b));
    TRY_OUT(b.table->memory->tensors_create(cpu ? OPERANDS_REHEARSAL : OPERANDS,
                                            &b.operands));
    TRY_OUT(bench_fill(&b));
out:
    *out = b;
    return rc;
}

void bench_destroy(struct bench *b)
{
    if (b->table == NULL)
        return;
    b->table->memory->tensors_destroy(&b->operands);
    b->table->memory->tensors_destroy(&b->scratch);
    b->table->memory->stream_destroy(b->ctx.stream);
}

/* Two bf16 numbers of 0.5 to 2 in size, which are a fp32 one of that size. */
static void fill_block(uint32_t *block, size_t words)
{
    uint64_t key = rng_u64(17, 1, 0);
    for (size_t i = 0; i < words; i++) {
        uint64_t bits = rng_u64(key, 2, i);
        block[i] = ((uint32_t)bits & 0x80ff80ffu) | 0x3f003f00u;
    }
}

enum err bench_fill(struct bench *b)
{
    const struct kernel_memory *memory = b->table->memory;
    struct arena host = { 0 };
    enum err rc = ERR_OK;
    TRY_OUT(memory->host_create(BLOCK, &host));
    fill_block((void *)host.base, BLOCK / sizeof(uint32_t));
    for (size_t at = 0; at < b->operands.capacity; at += BLOCK)
        TRY_OUT(memory->upload(b->ctx.stream, BLOCK, host.base,
                               b->operands.base + at));
    TRY_OUT(memory->wait(b->ctx.stream));
out:
    memory->host_destroy(&host);
    return rc;
}

void bench_begin(struct bench *b)
{
    b->operands.used = 0;
}

void *bench_take(struct bench *b, int64_t elements, size_t element_bytes)
{
    return arena_take(&b->operands, (size_t)elements * element_bytes);
}

enum err bench_upload(struct bench *b, size_t bytes, const void *host,
                      void *tensor)
{
    TRY(b->table->memory->upload(b->ctx.stream, bytes, host, tensor));
    return b->table->memory->wait(b->ctx.stream);
}

enum err bench_time(struct bench *b, enum err (*run)(void *), void *argument,
                    double *us)
{
    if (b->table->memory->device)
        return cuda_device_time(b->ctx.stream, run, argument, us);
    double begin = clock_now();
    TRY(run(argument));
    *us = (clock_now() - begin) * 1e6;
    return ERR_OK;
}

enum err bench_lacks(const char *op)
{
    return err_set(ERR_UNSUPPORTED, "the table has no %s yet", op);
}

void bench_row(struct bench *b, const char *op, const char *shape, double us,
               enum bench_unit unit, double amount, double goal)
{
    double rate = amount / us * (unit == BENCH_GBS ? 1e-3 : 1e-6);
    double share = rate / (unit == BENCH_GBS ? b->copy_gbs : b->gemm_tflops);
    const char *name = unit == BENCH_GBS ? "GB/s" : "TFLOP/s";
    goal = b->table->memory->device ? goal : 0;
    bool ok = share >= goal;
    b->rows++;
    b->shorts += !ok;
    if (b->json)
        printf("{\"op\": \"%s\", \"shape\": \"%s\", \"us\": %.2f, \"rate\": "
               "%.2f, \"unit\": \"%s\", \"share\": %.4f, \"goal\": %.2f, "
               "\"ok\": %s}\n",
               op, shape, us, rate, name, share, goal, ok ? "true" : "false");
    else
        printf("%-26s %-26s %10.1f %8.1f %-7s %6.2f %5.2f %s\n", op, shape, us,
               rate, name, share, goal, ok ? "ok" : "short");
    fflush(stdout);
}

void bench_failed(struct bench *b, const char *op, const char *shape,
                  enum err rc)
{
    bool lacks = rc == ERR_UNSUPPORTED;
    char text[512];
    snprintf(text, sizeof text, "%s", err_text());
    for (char *c = text; *c != '\0'; c++)
        if (*c == '"' || *c == '\\')
            *c = '\'';
    b->skipped += lacks;
    b->failed += !lacks;
    if (b->json)
        printf("{\"op\": \"%s\", \"shape\": \"%s\", \"%s\": \"%s\"}\n", op,
               shape, lacks ? "skipped" : "failed", text);
    else
        printf("%-26s %-26s %s: %s\n", op, shape, lacks ? "skipped" : "FAILED",
               text);
    fflush(stdout);
}

void bench_run(struct bench *b, const char *op, const char *shape,
               enum err (*run)(void *), void *argument, enum bench_unit unit,
               double amount, double goal)
{
    double us = 0;
    enum err rc = bench_time(b, run, argument, &us);
    if (rc == ERR_OK)
        bench_row(b, op, shape, us, unit, amount, goal);
    else
        bench_failed(b, op, shape, rc);
}
