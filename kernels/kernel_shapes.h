/* What ops are asked for: shapes, operands and numbers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"

/* Chunk of flat arenas: blocks of parameters are padded to it, shards are cut
 * at its multiples, and norms are summed per chunk. Elements. */
#define KERNEL_CHUNK 16384

struct kernel_profile; /* kernel_profile.h */

struct kernel_ctx {
    int threads;   /* >= 1; CPU threads of this rank */
    void *stream;  /* backend stream; NULL on CPU */
    void *scratch; /* lent; at least scratch_bytes(limits) bytes */
    size_t scratch_bytes;
    /* who is told of ops by a table that tells (kernels.h: profiled); NULL:
     * nobody */
    struct kernel_profile *profile;
};

/* The largest shapes that a model will ask for; sizes scratch. */
struct kernel_limits {
    int threads;
    int64_t tokens; /* rows of one leaf: batch * seq */
    int64_t batch;  /* sequences of one leaf */
    int64_t seq;    /* tokens per sequence */
    int64_t width;  /* widest row of norm and bias */
    int64_t heads;  /* of queries */
    int64_t kv_heads;
    int64_t head_dim;
    int64_t vocab;
    int64_t experts; /* 0: no mixture of experts */
    int64_t top_k;
    int64_t positions; /* of a cache's slot; 0: no cache */
};

enum gemm_form {
    GEMM_NT, /* C[m,n] = A[m,k] B[n,k]^T : Y = X W^T */
    GEMM_NN, /* C[m,n] = A[m,k] B[k,n]   : dX = dY W */
    GEMM_TN  /* C[m,n] = A[k,m]^T B[k,n] : dW = dY^T X */
};

struct gemm {
    enum gemm_form form;
    int64_t m, n, k;
    const void *a;
    const void *b;
    void *c;
    bool accumulate;  /* C += instead of C = */
    const void *bias; /* [n], added to every row of C; NULL: none; not with
                         accumulate */
    /* With accumulate: what C holds counts as +0 (on CUDA as a zero of either
     * sign), whatever it is, so that C need not be zeroed. */
    bool begins;
};
/* What every product says; what else it says follows. */
#define GEMM_OF(form_, m_, n_, k_, a_, b_, c_)                                 \
    .form = (form_), .m = (m_), .n = (n_), .k = (k_), .a = (a_), .b = (b_),    \
    .c = (c_)

/* A sum of up to 16 tensors in an order of its own: value by value comes onto a
 * stack, and after value i the stack's last two become their sum, left plus
 * right, folds[i] times; at the end one is left. Between two values no more than
 * ADD_TREE_DEEP are there: as many as wait in a binary tree of 16 leaves. */
#define ADD_TREE_VALUES 16
#define ADD_TREE_DEEP 4

struct add_tree {
    int count;
    const void *values[ADD_TREE_VALUES]; /* fp32, NULL from `count` on, ... */
    bool bf16[ADD_TREE_VALUES];          /* ... or bf16 */
    uint8_t folds[ADD_TREE_VALUES];
};

/* 8-bit floats of the Open Compute Project (2023), in which operands of
 * products may be (Micikevicius et al. 2022). */
enum fp8 {
    FP8_E4M3, /* up to 448, no infinities: weights and activations */
    FP8_E5M2  /* up to 57344: gradients */
};

/* C[m,n] = A[m,k] B[n,k]^T * *unscale_a * *unscale_b + bias, A and B in 8 bits:
 * k is a multiple of 16, so is n. Not both are FP8_E5M2. */
struct gemm_fp8 {
    int64_t m, n, k;
    enum fp8 a_type, b_type;
    enum dtype c_type; /* DTYPE_BF16 or DTYPE_F32 */
    const void *a;
    const void *b;
    void *c;
    const float *unscale_a, *unscale_b; /* [1] */
    bool accumulate;                    /* C += instead of C =; of fp32 only */
    const void *bias; /* [n] in bf16, added to every row of C; NULL: none; with
                         a C in bf16 only */
    /* Sums may be rounded to fewer bits on their way (Hopper's fast
     * accumulation): for forward, not for gradients. */
    bool fast;
};
#define GEMM_FP8_OF(m_, n_, k_, a_kind, b_kind, c_kind, a_, b_, c_)            \
    .m = (m_), .n = (n_), .k = (k_), .a_type = (a_kind), .b_type = (b_kind),   \
    .c_type = (c_kind), .a = (a_), .b = (b_), .c = (c_)

/* Each expert's own rows: group g has rows [offsets[g], offsets[g+1]) of the
 * tensors that have `offsets[groups]` rows in all; possibly none. */
struct grouped_gemm {
    enum gemm_form form;
    int groups;
    const int64_t *offsets; /* [groups + 1], offsets[0] = 0 */
    /* NT: c[row,n] = a[row,k] b_g[n,k]^T with b_g = b + g n k
     * NN: c[row,n] = a[row,k] b_g[k,n]   with b_g = b + g k n
     * TN: c_g[m,n] = a[rows,m]^T b[rows,n] with c_g = c + g m n */
    int64_t m; /* TN only */
    int64_t n;
    int64_t k; /* NT and NN only */
    const void *a;
    const void *b;
    void *c;
    bool accumulate;
    bool begins; /* as in struct gemm; also for groups without rows */
};
#define GEMM_GROUPED_OF(form_, groups_, offsets_, n_, k_, a_, b_, c_)          \
    .form = (form_), .groups = (groups_), .offsets = (offsets_), .n = (n_),    \
    .k = (k_), .a = (a_), .b = (b_), .c = (c_)

/* A matrix [n, k] that few rows at a time are multiplied by, C = A B^T, so that
 * reading it takes longest: `groups` of them (experts), each cut into panels of
 * KERNEL_PANEL rows, the last one filled up with rows of 0. A panel lies by
 * columns, [k][KERNEL_PANEL], begins at a multiple of 64 bytes, and panels
 * follow each other. */
#define KERNEL_PANEL 32

enum panel_type {
    PANEL_F32,
    PANEL_BF16, /* rounded to nearest even */
    /* Whole numbers: a row's elements times 127 / its largest magnitude, rounded
     * to nearest even. Behind all panels are the rows' scales in fp32, largest
     * magnitude / 127, by which a product is multiplied. A row of magnitudes
     * below 2^-120 has scale 0, one with a NaN or Inf NaN. */
    PANEL_INT8
};

struct panels {
    enum panel_type type;
    int groups;
    int64_t n, k; /* of each */
};

/* c[row, n] = a[row, k] B_g[n, k]^T + bias: fp32 but for B. */
struct panels_product {
    struct panels shape;
    const void *panels;
    /* Rows of a and c: `m` of group 0; or with `offsets` those of each group, as
     * in struct grouped_gemm, of which there are m in all. */
    int64_t m;
    const int64_t *offsets;
    const float *a;
    float *c;
    const float *bias; /* [n]; NULL: none; not with offsets */
};

enum norm_kind {
    NORM_LAYER, /* Ba, Kiros and Hinton 2016 */
    NORM_RMS    /* Zhang and Sennrich 2019: no mean, no beta */
};

/* n rows of `groups` * `d` elements, each group of d normalised apart; rows of
 * x, y, dy and dx are `stride` elements apart. gamma and beta have d elements
 * if shared, groups * d otherwise. */
struct norm {
    enum norm_kind kind;
    int64_t n, groups, d, stride;
    bool shared;   /* gamma and beta, by the groups; true when groups is 1 */
    bool plus_one; /* 1 + gamma takes gamma's place (Gemma) */
    float eps;
    /* x, gamma and beta are rounded to bf16 on their way in and y on its way
     * out, statistics are fp32 of the rounded x; gradients pass the rounding as
     * if it were not there (PyTorch's layer_norm under bf16 autocast). */
    bool low_precision;
};

/* GELU_TANH: GELU with a tanh that is near to the normal distribution's
 * integral, x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. */
enum activation { ACTIVATION_GELU, ACTIVATION_SILU, ACTIVATION_GELU_TANH };

/* Which random numbers: element e of sample s (numbered over the whole run) of
 * the tensor `stream` draws word e % 4 of the Philox block with key
 * rng_u64(seed, stream, s) and counter e / 4. Nothing depends on how samples
 * are grouped, on ranks or threads. */
struct random_place {
    uint64_t seed;
    uint64_t stream;      /* rng_stream(tensor's name) */
    int64_t first_sample; /* of the op's first row of samples */
};

/* What a token's probabilities are to be. Zeros: the label's is 1. */
struct target {
    /* So much of it is spread over the whole vocabulary, the label's share
     * included (Szegedy et al. 2016, as PyTorch has it): in [0, 1). */
    float smoothing;
    /* Times the square of log sum exp(scale * logit) is added to the loss
     * (Chowdhery et al. 2022). */
    float z;
};

struct attention {
    int64_t batch, seq, heads, kv_heads, head_dim; /* kv_heads divides heads */
    int64_t window; /* keys that a query sees, itself the last; 0: all */
    float scale;    /* multiplies q k^T, usually 1/sqrt(head_dim) */
    /* [heads]: slope * (key - query) is added to the scaled score (Press, Smith
     * and Lewis 2021); NULL: none */
    const float *alibi_slopes;
    /* [batch, seq] document number of each token, tokens attend only within
     * their document; NULL: each row is one document */
    const int32_t *sequence_ids;
    /* Probabilities are dropped with this probability, < 1, namely where their
     * random word is below dropout * 2^32, and the others divided by
     * 1 - dropout; element (head * seq + query) * round_up(seq, 4) + key of its
     * sample. 0: none */
    float dropout;
    struct random_place random;
};

/* A pair of the chunks, of equal length, that sequences are cut into: the
 * queries of one against the keys of the same or of an earlier one (ring
 * attention: Liu, Zaharia and Abbeel 2023). */
struct attention_chunk {
    /* seq is the chunks' length and sequence_ids are the queries'. Dropout
     * counts queries and keys within their chunks, so every pair of chunks
     * needs a random stream of its own. */
    struct attention shape;
    /* The queries' first position minus the keys', a multiple of seq. 0: the
     * same chunk, with the causal mask; otherwise every key lies before every
     * query. */
    int64_t distance;
    const int32_t *key_ids; /* [batch, seq] sequence_ids of the keys; NULL if
                               those of the queries are */
    int64_t dq_stride; /* of backward: from one token's dq to the next one's */
};

/* Attention of rows over all that their slots' caches hold. */
struct attention_cached {
    int64_t rows, heads, kv_heads, head_dim; /* kv_heads divides heads */
    int64_t window; /* as in struct attention, like alibi_slopes */
    float scale;
    const float *alibi_slopes;
    /* [rows] each row's slot and position in it. No two rows have both the
     * same. */
    const int32_t *slots, *positions;
    int64_t capacity; /* positions of a slot, a multiple of KERNEL_CACHE_KEYS */
    /* Where keys and values lie: [slots, kv_heads, capacity / KERNEL_CACHE_KEYS,
     * head_dim, KERNEL_CACHE_KEYS] and [slots, kv_heads, capacity, head_dim].
     */
    float *keys, *values;
};

#define KERNEL_CACHE_KEYS 16

/* Most experts that one token goes to. */
#define KERNEL_TOP_K_MAX 16

/* Dropless top-k routing of n tokens, possibly none. */
struct route {
    int64_t n;
    int experts;
    int top_k;       /* at most experts and KERNEL_TOP_K_MAX */
    float normalize; /* p of the L_p norm that weights are divided by, at least
                        1; 0: no */
};

/* A tensor in fewer bits. */
enum packing {
    PACKING_NONE,
    PACKING_BF16, /* rounded to nearest even */
    /* The fp32 scales of all rows, each its row's largest magnitude / 127, then
     * the rows of int8, rounded to nearest even. A row of zeros (magnitudes
     * below 2^-120) has scale 0, one with a NaN or Inf unpacks to NaN. */
    PACKING_INT8
};
