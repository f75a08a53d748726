/* Products touch nothing beside their operands and scratch: masked loads and
 * stores, which sanitizers don't see, end at pages that nobody may touch. And
 * each element is its chain of fused multiply-adds, bit by bit, whatever the
 * scratch was before. */
#include <sys/mman.h>

#include "tests/kernel_check.h"

#define PRODUCTS 200
#define GROUPED 80
#define GROUPS 5
#define ROOM ((size_t)1 << 20) /* of an operand */
#define FLOATS ((int64_t)(ROOM / sizeof(float)))

/* Memory between two pages that nobody may touch. */
struct pages {
    char *begin, *end;
};

static struct pages pages_create(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t room = (bytes + page - 1) / page * page;
    char *p = mmap(NULL, room + 2 * page, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + page, room, PROT_READ | PROT_WRITE) < 0)
        abort();
    return (struct pages){ p + page, p + page + room };
}

/* n floats at one of the ends. */
static float *pages_put(struct pages pages, bool at_end, int64_t n)
{
    return at_end ? (float *)pages.end - n : (float *)pages.begin;
}

/* The number of a draw is its index. */
struct draws {
    uint64_t seed;
    int64_t count;
};

static int64_t draw(struct draws *draws, int64_t from, int64_t to)
{
    double x = (check_uniform(draws->seed, draws->count++) + 1) / 2;
    return from + (int64_t)(x * (double)(to - from + 1));
}

/* Around the lanes of a vector, the rows and columns of a tile, and blocks of
 * the inner dimension. */
static int64_t draw_size(struct draws *draws)
{
    int64_t most = draw(draws, 0, 9);
    return draw(draws, 1, most == 0 ? 300 : most < 5 ? 70 : 20);
}

static int64_t draw_depth(struct draws *draws)
{
    static const int64_t edges[] = { 255,  256,  257,  511,  513,
                                     1023, 1024, 1025, 1040, 2049 };
    int64_t which = draw(draws, 0, 29);
    return which < 10 ? edges[which] : draw(draws, 1, 40);
}

/* C as it should be, and what it was. */
static float want[FLOATS], before[FLOATS];

static void chains(const struct gemm *g, const float *c0, float *c)
{
    const float *a = g->a, *b = g->b, *bias = g->bias;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            float chain = 0;
            for (int64_t l = 0; l < g->k; l++)
                chain = fmaf(
                    a[g->form == GEMM_TN ? l * g->m + i : i * g->k + l],
                    b[g->form == GEMM_NT ? j * g->k + l : l * g->n + j], chain);
            if (g->accumulate)
                chain = c0[i * g->n + j] + chain;
            if (bias != NULL)
                chain += bias[j];
            c[i * g->n + j] = chain;
        }
}

static void chains_of_groups(const struct grouped_gemm *g)
{
    const float *a = g->a, *b = g->b;
    for (int64_t i = 0; i < g->groups; i++) {
        int64_t first = g->offsets[i], rows = g->offsets[i + 1] - first;
        bool inner = g->form == GEMM_TN;
        int64_t at = inner ? i * g->m * g->n : first * g->n;
        struct gemm one = { .form = g->form,
                            .m = inner ? g->m : rows,
                            .n = g->n,
                            .k = inner ? rows : g->k,
                            .a = a + first * (inner ? g->m : g->k),
                            .b = b + (inner ? first * g->n : i * g->n * g->k),
                            .accumulate = g->accumulate };
        if (rows == 0 && g->accumulate)
            memcpy(want + at, before + at,
                   (size_t)(one.m * one.n) * sizeof *want);
        else
            chains(&one, before + at, want + at);
    }
}

struct memory {
    struct pages a, b, c, bias, scratch;
};

static void fill(float *x, int64_t n, struct draws *draws)
{
    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)check_uniform(draws->seed, draws->count++);
        if (i % 37 == 5)
            x[i] = i % 2 == 0 ? -0.0f : 1e-41f;
    }
}

/* Every table's product is `want`. */
static bool all_equal(const struct memory *memory, int64_t size,
                      const struct gemm *one, const struct grouped_gemm *groups,
                      struct draws *draws)
{
    float *c = one != NULL ? one->c : groups->c;
    bool same = true;
    for (int k = 0; kernels_all()[k] != NULL; k++) {
        const struct kernels *table = kernels_all()[k];
        struct kernel_limits limits = { .threads = (int)draw(draws, 1, 3) };
        size_t bytes = table->scratch_bytes(&limits);
        struct kernel_ctx ctx = { .threads = limits.threads,
                                  .scratch = memory->scratch.end - bytes,
                                  .scratch_bytes = bytes };
        if (table->memory->device)
            continue;
        for (int64_t i = 0; i < (int64_t)(bytes / sizeof *c); i += 3)
            ((float *)ctx.scratch)[i] = check_nan();
        memcpy(c, before, (size_t)size * sizeof *c);
        enum err rc = one != NULL
                          ? table->gemm(&ctx, DTYPE_F32, one)
                          : table->grouped_gemm(&ctx, DTYPE_F32, groups);
        if (rc != ERR_OK || !check_same(c, want, size)) {
            tap_note("%s, %d threads", table->kernel_set, limits.threads);
            same = false;
        }
    }
    return same;
}

static struct gemm any(struct draws *draws)
{
    return (struct gemm){ .form = (enum gemm_form)draw(draws, 0, 2),
                          .m = draw_size(draws),
                          .n = draw_size(draws),
                          .k = draw_depth(draws),
                          .accumulate = draw(draws, 0, 1) };
}

/* The most rows and columns whose sums wait in scratch. */
static struct gemm whole_scratch(int form)
{
    return (struct gemm){ .form = (enum gemm_form)form,
                          .m = 280,
                          .n = 256,
                          .k = 257,
                          .accumulate = true };
}

static bool product_fits(const struct memory *memory, struct draws *draws,
                         struct gemm g)
{
    bool at_end = draw(draws, 0, 1);
    float *a = pages_put(memory->a, at_end, g.m * g.k);
    float *b = pages_put(memory->b, at_end, g.n * g.k);
    float *bias = pages_put(memory->bias, at_end, g.n);
    fill(a, g.m * g.k, draws);
    fill(b, g.n * g.k, draws);
    fill(bias, g.n, draws);
    fill(before, g.m * g.n, draws);
    g.a = a;
    g.b = b;
    g.c = pages_put(memory->c, at_end, g.m * g.n);
    g.bias = g.accumulate || draw(draws, 0, 1) ? NULL : bias;
    chains(&g, before, want);
    bool same = all_equal(memory, g.m * g.n, &g, NULL, draws);
    if (!same)
        tap_note("form %d, [%lld, %lld, %lld]%s%s", (int)g.form, (long long)g.m,
                 (long long)g.n, (long long)g.k, g.accumulate ? " added" : "",
                 g.bias != NULL ? " with bias" : "");
    return same;
}

static bool groups_fit(const struct memory *memory, struct draws *draws)
{
    int64_t offsets[GROUPS + 1] = { 0 };
    struct grouped_gemm g = { .form = (enum gemm_form)draw(draws, 0, 2),
                              .groups = (int)draw(draws, 1, GROUPS),
                              .offsets = offsets,
                              .m = draw(draws, 1, 70),
                              .n = draw(draws, 1, 70),
                              .k = draw(draws, 1, 300),
                              .accumulate = draw(draws, 0, 1) };
    bool at_end = draw(draws, 0, 1), inner = g.form == GEMM_TN;
    for (int i = 0; i < g.groups; i++)
        offsets[i + 1] =
            offsets[i] + (draw(draws, 0, 2) == 0 ? 0 : draw(draws, 1, 40));
    int64_t rows = offsets[g.groups];
    int64_t a_size = rows * (inner ? g.m : g.k);
    int64_t b_size = g.n * (inner ? rows : g.groups * g.k);
    int64_t c_size = g.n * (inner ? g.groups * g.m : rows);
    float *a = pages_put(memory->a, at_end, a_size);
    float *b = pages_put(memory->b, at_end, b_size);
    fill(a, a_size, draws);
    fill(b, b_size, draws);
    fill(before, c_size, draws);
    g.a = a;
    g.b = b;
    g.c = pages_put(memory->c, at_end, c_size);
    chains_of_groups(&g);
    bool same = all_equal(memory, c_size, NULL, &g, draws);
    if (!same)
        tap_note("form %d, %d groups of %lld rows, m %lld, n %lld, k %lld%s",
                 (int)g.form, g.groups, (long long)rows, (long long)g.m,
                 (long long)g.n, (long long)g.k, g.accumulate ? " added" : "");
    return same;
}

int main(void)
{
    const struct kernel_limits most = { .threads = 3 };
    size_t scratch = 0;
    for (int k = 0; kernels_all()[k] != NULL; k++) {
        size_t bytes = kernels_all()[k]->scratch_bytes(&most);
        scratch = bytes > scratch ? bytes : scratch;
    }
    struct memory memory = { .a = pages_create(4 * ROOM),
                             .b = pages_create(4 * ROOM),
                             .c = pages_create(4 * ROOM),
                             .bias = pages_create(ROOM),
                             .scratch = pages_create(scratch) };
    struct draws draws = { .seed = 41 };
    int products = 0, groups = 0;
    for (int i = 0; i < PRODUCTS; i++)
        products += product_fits(&memory, &draws,
                                 i < 3 ? whole_scratch(i) : any(&draws));
    for (int i = 0; i < GROUPED; i++)
        groups += groups_fit(&memory, &draws);
    tap_is_int(products, PRODUCTS, "products");
    tap_is_int(groups, GROUPED, "products of groups");
    return tap_done();
}
