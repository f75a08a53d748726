/* A table whose ops run on the GPU and are done when they return. */
#include "tests/gpu/managed.h"

#include <pthread.h>

#include "tests/gpu/managed_again.h"
#include "tests/tap.h"

static const struct kernels *inner;
static void *stream;
static struct kernel_ctx least; /* scratch of the smallest shapes */
static enum err start_rc;
static char start_text[512];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The context on the GPU's stream; says which operand is out of its reach.
 * Tests of ops that need no scratch on a CPU bring none: products on a GPU do
 * need some. */
static enum err begin(const char *op, bool there, const struct kernel_ctx *ctx,
                      const void *const *operands, size_t count,
                      struct kernel_ctx *on)
{
    *on = *ctx;
    on->stream = stream;
    if (ctx->scratch == NULL) {
        on->scratch = least.scratch;
        on->scratch_bytes = least.scratch_bytes;
    }
    if (!there)
        return err_set(ERR_UNSUPPORTED, "op %s: the table lacks it", op);
    if (ctx->scratch != NULL && !managed_holds(ctx->scratch))
        return err_set(ERR_USAGE, "op %s: its scratch is not of check_alloc()",
                       op);
    for (size_t i = 0; i < count; i++)
        if (operands[i] != NULL && !managed_holds(operands[i]))
            return err_set(ERR_USAGE,
                           "pointer %zu is not of check_alloc(), a GPU would "
                           "not reach it",
                           i);
    return ERR_OK;
}

void managed_failed(const char *op)
{
    tap_ok(false, "op %s: %s", op, err_text());
}

static enum err end(const char *op, enum err rc)
{
    enum err later = rc == ERR_OK ? managed_source.wait(stream) : ERR_OK;
    rc = rc == ERR_OK ? later : rc;
    if (rc != ERR_OK && rc != ERR_UNSUPPORTED)
        managed_source.failed(op);
    return rc;
}

#define WRAP(op, parameters, arguments, ...)                                   \
    static enum err wrap_##op KERNEL_PARAMETERS(parameters)                    \
    {                                                                          \
        struct kernel_ctx on;                                                  \
        const void *operands[] = { __VA_ARGS__ };                              \
        struct managed_again again;                                            \
        const size_t operand_count = sizeof operands / sizeof *operands;       \
        enum err rc =                                                          \
            begin(#op, inner->op != NULL, ctx, operands, operand_count, &on);  \
        if (rc != ERR_OK)                                                      \
            return end(#op, rc);                                               \
        managed_again_begin(&again, operands, operand_count);                  \
        do                                                                     \
            rc = end(#op, inner->op(&on, KERNEL_BARE arguments));              \
        while (rc == ERR_OK && managed_again_next(&again, #op));               \
        managed_again_end(&again);                                             \
        return rc;                                                             \
    }
KERNEL_OPS(WRAP)
KERNEL_OPS_FP8(WRAP)

static void describe(char *text, size_t bytes)
{
    inner->describe(text, bytes);
}

static size_t scratch_bytes(const struct kernel_limits *limits)
{
    return inner->scratch_bytes(limits);
}

#define TABLE_ENTRY(op, ...) .op = wrap_##op,

static struct kernels table = {
    .memory = &kernel_memory_cpu,
    .describe = describe,
    .scratch_bytes = scratch_bytes,
    /* clang-format off */
    KERNEL_OPS(TABLE_ENTRY)
    KERNEL_OPS_FP8(TABLE_ENTRY)
    /* clang-format on */
};

static enum err start_source(void)
{
    const struct kernel_limits one = { .threads = 1,
                                       .tokens = 1,
                                       .batch = 1,
                                       .seq = 1,
                                       .width = 1,
                                       .heads = 1,
                                       .head_dim = 1,
                                       .vocab = 1 };
    TRY(managed_source.start(&inner, &stream));
    least.scratch_bytes = inner->scratch_bytes(&one);
    if (least.scratch_bytes == 0)
        return ERR_OK;
    least.scratch = managed_source.allocate(least.scratch_bytes);
    if (least.scratch == NULL)
        return err_set(ERR_MEMORY, "no managed memory: %zu bytes of scratch",
                       least.scratch_bytes);
    return ERR_OK;
}

static void start(void)
{
    start_rc = start_source();
    if (start_rc != ERR_OK) {
        snprintf(start_text, sizeof start_text, "%s", err_text());
        return;
    }
    table.backend = inner->backend;
    table.kernel_set = inner->kernel_set;
    managed_memory_start();
}

const struct kernels *managed_table(void)
{
    pthread_once(&once, start);
    if (start_rc == ERR_OK)
        return &table;
    (void)err_set(start_rc, "%s", start_text);
    return NULL;
}

const struct kernels *const *__real_kernels_all(void);
const struct kernels *const *__wrap_kernels_all(void);

/* The CPU's best table is what bf16 is compared with. */
const struct kernels *const *__wrap_kernels_all(void)
{
    static const struct kernels *tables[3];
    const struct kernels *table_here = managed_table();
    size_t count = 0;
    if (table_here == NULL) {
        tap_skip("no GPU: %s", start_text);
        return tables;
    }
    if (strcmp(table_here->backend, "cpu") != 0)
        tables[count++] = __real_kernels_all()[0];
    tables[count] = table_here;
    return tables;
}
