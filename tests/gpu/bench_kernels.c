/* bench_kernels [--json] [--rehearse] [--compare] | --describe: how near the
 * CUDA kernels are to what the GPU can do; --compare: whether products have the
 * numbers that they should, by every algorithm; --describe says only which GPU
 * that is, and which libraries. Both
 * ceilings are measured first, in the same process: a copy of 1 GiB, and the
 * largest bf16 product. Exit status 77: there is no GPU. */
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"
#include "tests/gpu/bench_device.h"

#define NO_GPU 77

struct copy {
    struct bench *b;
    size_t bytes;
};

static enum err run_copy(void *argument)
{
    struct copy *c = argument;
    return c->b->table->memory->copy(c->b->ctx.stream, c->bytes,
                                     c->b->operands.base,
                                     c->b->operands.base + c->bytes);
}

/* Read and written bytes count, as they do in every op. */
enum err bench_ceilings(struct bench *b)
{
    double us;
    struct copy copy = { b, b->operands.capacity / 6 };
    TRY(bench_time(b, run_copy, &copy, &us));
    b->copy_gbs = 2 * (double)copy.bytes / us * 1e-3;
    bench_row(b, "copy", "ceiling", us, BENCH_GBS, 2 * (double)copy.bytes, 0);
    return ERR_OK;
}

static enum err run_all(struct bench *b)
{
    char text[256];
    b->table->describe(text, sizeof text);
    fprintf(stderr, "# %s/%s: %s\n", b->table->backend, b->table->kernel_set,
            text);
    if (!b->json)
        printf("%-26s %-26s %10s %8s %-7s %6s %5s\n", "op", "shape", "us",
               "rate", "", "share", "goal");
    TRY(bench_ceilings(b));
    TRY(bench_products(b));
    TRY(bench_memory_ops(b));
    TRY(bench_attention(b));
    return bench_fp8(b);
}

static enum err describe(void)
{
    const struct kernels *table;
    char text[256];
    TRY(kernels_find("cuda", "auto", &table));
    TRY(table->memory->use(0));
    table->describe(text, sizeof text);
    printf("%s\n", text);
    return ERR_OK;
}

static enum err bench(bool rehearse, bool json, bool compare, int *failed)
{
    struct bench bench;
    enum err rc = bench_create(rehearse, json, &bench);
    if (rc == ERR_OK)
        rc = compare ? bench_products_compare(&bench) : run_all(&bench);
    if (bench.rows > 0)
        fprintf(stderr, "# bench: %d rows, %d short, %d failed, %d skipped\n",
                bench.rows, bench.shorts, bench.failed, bench.skipped);
    *failed = bench.failed;
    bench_destroy(&bench);
    return rc;
}

int main(int argc, char **argv)
{
    bool json = false, rehearse = false, name = false, compare = false;
    int failed = 0;
    log_init("bench", -1, LOG_INFO);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--rehearse") == 0) {
            rehearse = true;
        } else if (strcmp(argv[i], "--compare") == 0) {
            compare = true;
        } else if (strcmp(argv[i], "--describe") == 0) {
            name = true;
        } else {
            fprintf(stderr, "usage: bench_kernels [--json] [--rehearse | "
                            "--describe | --compare]\n");
            return 64;
        }
    enum err rc = name ? describe() : bench(rehearse, json, compare, &failed);
    if (rc == ERR_UNSUPPORTED)
        printf("# no GPU: %s\n", err_text());
    else if (rc != ERR_OK)
        log_error("%s", err_text());
    return rc == ERR_UNSUPPORTED ? NO_GPU : rc != ERR_OK || failed > 0;
}
