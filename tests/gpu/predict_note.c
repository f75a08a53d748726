#include "tests/gpu/predict_note.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/kernel_profile.h"

/* What is computed does not matter, only how much. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define F32 4.0
/* Columns that a block of embedding_backward has; each slab looks through the
 * tokens anew. */
#define SLAB 2048

static enum err note(const struct kernel_ctx *ctx, struct note what)
{
    struct notebook *book = ctx->stream;
    for (int i = 0; i < book->count; i++) {
        struct note *old = &book->notes[i];
        if (strcmp(old->op, what.op) == 0 && old->m == what.m &&
            old->n == what.n && old->k == what.k && old->bytes == what.bytes) {
            old->calls++;
            return ERR_OK;
        }
    }
    if (book->count == NOTES_MAX)
        return err_set(ERR_INTERNAL, "more than %d different calls", NOTES_MAX);
    what.calls = 1;
    book->notes[book->count++] = what;
    return ERR_OK;
}

/* An op of [m, n] elements that is bound by its bytes. */
static enum err stream(const struct kernel_ctx *ctx, const char *op, int64_t m,
                       int64_t n, double bytes, int launches)
{
    return note(
        ctx,
        (struct note){
            .op = op, .m = m, .n = n, .bytes = bytes, .launches = launches });
}

/* One of gradients and their sums, which alone are in fp32. */
static enum err sums(const struct kernel_ctx *ctx, const char *op,
                     enum dtype dtype, int64_t n, double bytes)
{
    return note(ctx, (struct note){ .op = op,
                                    .m = n,
                                    .n = 1,
                                    .bytes = bytes,
                                    .gradient = dtype == DTYPE_F32 ? bytes : 0,
                                    .launches = 1 });
}

static double size(enum dtype dtype, int64_t rows, int64_t columns)
{
    return (double)rows * (double)columns * (double)dtype_bytes(dtype);
}

/* --- products and attention --- */

static enum err note_gemm KERNEL_LIKE(gemm)
{
    const struct gemm *g = gemm;
    static const char *const names[] = { "gemm NT", "gemm NN", "gemm TN" };
    double c = size(g->form == GEMM_TN ? DTYPE_F32 : dtype, g->m, g->n) *
               (g->accumulate && !g->begins ? 2.0 : 1.0);
    return note(
        ctx, (struct note){
                 .op = names[g->form],
                 .kind = NOTE_GEMM,
                 .m = g->m,
                 .n = g->n,
                 .k = g->k,
                 .flops = 2.0 * (double)g->m * (double)g->n * (double)g->k,
                 .bytes = size(dtype, g->m, g->k) + size(dtype, g->n, g->k) + c,
                 .gradient = g->form == GEMM_TN ? c : 0,
                 .launches = 1 });
}

/* Of `products` products of scores' size, `q` and `kv` tensors as large as the
 * queries and as keys and values. */
static struct note attention(const char *op, enum note_kind kind,
                             enum dtype dtype, const struct attention *s,
                             double products, double q, double kv)
{
    int64_t rows = s->batch * s->seq;
    return (struct note){
        .op = op,
        .kind = kind,
        .m = s->batch,
        .n = s->heads,
        .k = s->head_dim,
        .own = s->sequence_ids != NULL || s->dropout > 0.0f,
        .flops = products * (double)rows * (double)s->seq * (double)s->heads *
                 (double)s->head_dim,
        .bytes = q * size(dtype, rows, s->heads * s->head_dim) +
                 kv * size(dtype, rows, 2 * s->kv_heads * s->head_dim) +
                 F32 * (double)(rows * s->heads),
    };
}

static enum err note_attention_forward KERNEL_LIKE(attention_forward)
{
    struct note what =
        attention(shape->sequence_ids != NULL ? "attention_forward, documents"
                                              : "attention_forward",
                  NOTE_ATTENTION_FORWARD, dtype, shape, 2.0, 2.0, 1.0);
    what.launches = 1;
    return note(ctx, what);
}

static enum err note_attention_backward KERNEL_LIKE(attention_backward)
{
    struct note what =
        attention(shape->sequence_ids != NULL ? "attention_backward, documents"
                                              : "attention_backward",
                  NOTE_ATTENTION_BACKWARD, dtype, shape, 5.0, 4.0, 2.0);
    what.launches = 3;
    return note(ctx, what);
}

/* --- what is bound by memory --- */

static enum err note_embedding_forward KERNEL_LIKE(embedding_forward)
{
    return stream(ctx, "embedding_forward", n, d,
                  (wpe != NULL ? 3.0 : 2.0) * size(dtype, n, d), 1);
}

/* As if every token were another one, and with the look at all tokens before
 * each. */
static enum err note_embedding_backward KERNEL_LIKE(embedding_backward)
{
    double slabs = (double)((d + SLAB - 1) / SLAB);
    double search = slabs * (double)n * (double)n / 2.0 * 4.0;
    double positions =
        dwpe != NULL
            ? size(dtype, n, d) + 2.0 * size(DTYPE_F32, n < seq ? n : seq, d)
            : 0.0;
    return stream(ctx, "embedding_backward", n, d,
                  size(dtype, n, d) + 2.0 * size(DTYPE_F32, n, d) + search +
                      positions,
                  2);
}

static enum err norm_note(const struct kernel_ctx *ctx, const char *op,
                          enum dtype dtype, const struct norm *norm,
                          double tensors, int launches)
{
    int64_t columns = norm->groups * norm->d;
    return stream(ctx, op, norm->n, columns,
                  tensors * size(dtype, norm->n, columns) +
                      2.0 * F32 * (double)(norm->n * norm->groups),
                  launches);
}

static enum err note_norm_forward KERNEL_LIKE(norm_forward)
{
    return norm_note(ctx, "norm_forward", dtype, norm, 2.0, 1);
}

static enum err note_add_norm_forward KERNEL_LIKE(add_norm_forward)
{
    return norm_note(ctx, "add_norm_forward", dtype, norm, 4.0, 1);
}

static enum err note_norm_backward KERNEL_LIKE(norm_backward)
{
    return norm_note(ctx, "norm_backward", dtype, norm, accumulate ? 4.0 : 3.0,
                     dbeta != NULL ? 3 : 2);
}

static enum err note_activation_forward KERNEL_LIKE(activation_forward)
{
    return stream(ctx, "activation_forward", n, 1, 2.0 * size(dtype, n, 1), 1);
}

static enum err note_activation_backward KERNEL_LIKE(activation_backward)
{
    return stream(ctx, "activation_backward", n, 1, 3.0 * size(dtype, n, 1), 1);
}

static enum err note_glu_forward KERNEL_LIKE(glu_forward)
{
    return stream(ctx, "glu_forward", n, width, 3.0 * size(dtype, n, width), 1);
}

static enum err note_glu_backward KERNEL_LIKE(glu_backward)
{
    return stream(ctx, "glu_backward", n, width, 5.0 * size(dtype, n, width),
                  1);
}

static enum err note_clip_forward KERNEL_LIKE(clip_forward)
{
    return stream(ctx, "clip_forward", n, 1, 2.0 * size(dtype, n, 1), 1);
}

static enum err note_clip_backward KERNEL_LIKE(clip_backward)
{
    return stream(ctx, "clip_backward", n, 1, 3.0 * size(dtype, n, 1), 1);
}

static enum err note_rope KERNEL_LIKE(rope)
{
    return stream(ctx, "rope", n, rotated * head_dim,
                  2.0 * size(dtype, n, rotated * head_dim), 1);
}

static enum err note_dropout KERNEL_LIKE(dropout)
{
    return stream(ctx, "dropout", samples, elements,
                  2.0 * size(dtype, samples, elements), 1);
}

static enum err note_cross_entropy KERNEL_LIKE(cross_entropy)
{
    return stream(ctx, "cross_entropy", n, vocab,
                  (gradient ? 2.0 : 1.0) * size(dtype, n, vocab), 1);
}

static enum err note_bias_backward KERNEL_LIKE(bias_backward)
{
    return stream(ctx, "bias_backward", n, d, size(dtype, n, d), 2);
}

static enum err note_accumulate KERNEL_LIKE(accumulate)
{
    return sums(ctx, "accumulate", dtype, n, 3.0 * size(dtype, n, 1));
}

static enum err note_add KERNEL_LIKE(add)
{
    return stream(ctx, "add", n, 1, 3.0 * size(dtype, n, 1), 1);
}

static enum err note_add_tree KERNEL_LIKE(add_tree)
{
    return sums(ctx, "add_tree", DTYPE_F32, n,
                kernel_work_add_tree(ctx, n, tree, out).bytes);
}

static enum err note_zero KERNEL_LIKE(zero)
{
    return sums(ctx, "zero", dtype, n, size(dtype, n, 1));
}

static enum err note_copy_rows KERNEL_LIKE(copy_rows)
{
    return stream(ctx, "copy_rows", rows, width, 2.0 * size(dtype, rows, width),
                  1);
}

static enum err note_convert KERNEL_LIKE(convert)
{
    return stream(ctx, "convert", n, 1, size(from, n, 1) + size(to, n, 1), 1);
}

static enum err note_sum KERNEL_LIKE(sum)
{
    return stream(ctx, "sum", n, 1, size(DTYPE_F32, n, 1), 2);
}

static enum err note_chunk_sum_squares KERNEL_LIKE(chunk_sum_squares)
{
    return stream(ctx, "chunk_sum_squares", n, 1, size(dtype, n, 1), 1);
}

/* Reads and writes weights and moments, reads gradients. */
#define NOTE_UPDATE(OP, name, ...)                                             \
    static enum err note_##name KERNEL_UPDATE_LIKE(name)                       \
    {                                                                          \
        double bytes = 2.0 * size(DTYPE_F32, n, 1) + size(dtype, n, 1);        \
        for (int i = 0; i < UPDATE_MOMENTS; i++)                               \
            bytes += m[i] != NULL ? 2.0 * size(DTYPE_F32, n, 1) : 0.0;         \
        bytes += step->copy != NULL ? size(DTYPE_BF16, n, 1) : 0.0;            \
        return stream(ctx, #name, n, 1, bytes, 1);                             \
    }
/* clang-format off */
KERNEL_UPDATES(NOTE_UPDATE, )
/* clang-format on */

/* --- memory that is not there --- */

/* Whoever touches it dies. */
static enum err tensors_create(size_t bytes, struct arena *out)
{
    *out = (struct arena){ 0 };
    if (bytes == 0)
        return ERR_OK;
    void *base = mmap(NULL, bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return err_set(ERR_MEMORY,
                       "cannot reserve %zu MiB of addresses: raise ulimit -v",
                       bytes >> 20);
    *out = (struct arena){ .base = base, .capacity = bytes };
    return ERR_OK;
}

static void tensors_destroy(struct arena *arena)
{
    if (arena->base != NULL)
        munmap(arena->base, arena->capacity);
    *arena = (struct arena){ 0 };
}

static enum err upload(void *book, size_t bytes, const void *host, void *tensor)
{
    return ERR_OK;
}

static enum err download(void *book, size_t bytes, const void *tensor,
                         void *host)
{
    memset(host, 0, bytes);
    return ERR_OK;
}

static enum err copy(void *book, size_t bytes, const void *from, void *to)
{
    struct kernel_ctx ctx = { .stream = book };
    return stream(&ctx, "copy", (int64_t)bytes, 1, 2.0 * (double)bytes, 1);
}

static void describe(char *text, size_t bytes)
{
    snprintf(text, bytes, "predicted");
}

static const struct kernels *sizes;

static size_t scratch_bytes(const struct kernel_limits *limits)
{
    return sizes != NULL ? sizes->scratch_bytes(limits) : 0;
}

static struct kernel_memory memory;

static struct kernels table = {
    .backend = "cuda",
    .kernel_set = "predicted",
    .memory = &memory,
    .describe = describe,
    .scratch_bytes = scratch_bytes,
    .gemm = note_gemm,
    .embedding_forward = note_embedding_forward,
    .embedding_backward = note_embedding_backward,
    .norm_forward = note_norm_forward,
    .add_norm_forward = note_add_norm_forward,
    .norm_backward = note_norm_backward,
    .activation_forward = note_activation_forward,
    .activation_backward = note_activation_backward,
    .glu_forward = note_glu_forward,
    .glu_backward = note_glu_backward,
    .clip_forward = note_clip_forward,
    .clip_backward = note_clip_backward,
    .rope = note_rope,
    .dropout = note_dropout,
    .attention_forward = note_attention_forward,
    .attention_backward = note_attention_backward,
    .cross_entropy = note_cross_entropy,
    .bias_backward = note_bias_backward,
    .accumulate = note_accumulate,
    .add = note_add,
    .add_tree = note_add_tree,
    .zero = note_zero,
    .copy_rows = note_copy_rows,
    .convert = note_convert,
    .sum = note_sum,
    .chunk_sum_squares = note_chunk_sum_squares,
#define NOTE_ENTRY(OP, name, ...) .name = note_##name,
    /* clang-format off */
    KERNEL_UPDATES(NOTE_ENTRY, )
    /* clang-format on */
};

const struct kernels *predict_table(const struct kernels *scratch)
{
    sizes = scratch;
    memory = kernel_memory_cpu;
    memory.device = true;
    memory.tensors_create = tensors_create;
    memory.tensors_destroy = tensors_destroy;
    memory.upload = upload;
    memory.download = download;
    memory.copy = copy;
    return &table;
}
