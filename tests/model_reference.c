#include "tests/model_reference.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/activation_reference.h"
#include "tests/model_reference_impl.h"
#include "tests/rope_reference.h"

/* --- rows --- */

static double bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static double rounded(struct run *run, double x)
{
    struct model_reference_rounding *rounding = run->reference->rounding;
    if (!model_norm_is_low(run->config->norm))
        return x;
    if (rounding == NULL)
        return bf16(x);
    int64_t i = run->rounded++;
    if (rounding->replay) {
        assert(i < rounding->count);
        return x + rounding->offset[i];
    }
    if ((i & (i + 1)) == 0) { /* full: twice as many */
        rounding->offset = checked(
            realloc(rounding->offset, (size_t)(2 * i + 2) * sizeof(double)));
    }
    rounding->offset[i] = bf16(x) - x;
    rounding->count = i + 1;
    return bf16(x);
}

/* y may be x; beta may be NULL. */
static void norm(struct run *run, int64_t width, const double *x,
                 const double *gamma, const double *beta, double *y)
{
    double mean = 0.0, squares = 0.0;
    for (int64_t i = 0; i < width; i++) {
        y[i] = rounded(run, x[i]);
        mean += y[i] / (double)width;
    }
    if (model_norm_is_rms(run->config->norm))
        mean = 0.0;
    for (int64_t i = 0; i < width; i++)
        squares += (y[i] - mean) * (y[i] - mean) / (double)width;
    for (int64_t i = 0; i < width; i++) {
        double z =
            (y[i] - mean) / sqrt(squares + run->config->norm_eps) *
            (rounded(run, gamma[i]) + (run->config->norm_plus_one ? 1 : 0));
        y[i] = rounded(run, beta != NULL ? z + rounded(run, beta[i]) : z);
    }
}

/* The norm of a half of a block where it has it here, or x itself; y may be
 * x. */
static void stream_norm(struct run *run, enum model_norm_place place, int block,
                        enum param_role role, const double *x, double *y)
{
    bool around = run->config->norm_place == NORM_AROUND;
    if (around && place == NORM_AFTER)
        role = role == PARAM_NORM_1_WEIGHT ? PARAM_AFTER_1_WEIGHT
                                           : PARAM_AFTER_2_WEIGHT;
    if (around || run->config->norm_place == place)
        norm(run, run->d, x, tensor(run, block, role),
             tensor(run, block, role + 1), y);
    else
        memmove(y, x, (size_t)run->d * sizeof *y);
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* y[out] = w[out, in] x + b; b may be NULL. */
static void linear(const double *x, const double *w, const double *b,
                   int64_t out, int64_t in, double *y)
{
    for (int64_t o = 0; o < out; o++)
        y[o] = (b != NULL ? b[o] : 0.0) + dot(w + o * in, x, in);
}

/* What the adapter of a layer adds to y[out], given x[in] of a token. */
static void adapt(const struct run *run, int layer, int64_t token,
                  enum lora_layer which, const double *x, double *y)
{
    const struct lora_options *lora = &run->reference->lora;
    const double *a = tensor(run, layer + 1, param_lora_a(which));
    const double *b = tensor(run, layer + 1, param_lora_b(which));
    struct lora_shape shape;
    if (a == NULL)
        return;
    lora_shape(run->config, which, &shape);
    char part[48];
    snprintf(part, sizeof part, "/%s", shape.name);
    uint64_t stream = stream_of(run, "lora", layer, part, token);
    double *dropped = zeros(shape.in);
    for (int64_t i = 0; i < shape.in; i++)
        dropped[i] = x[i] * dropout(run, lora->dropout, stream,
                                    token / run->leaf->seq_len,
                                    within(run, token) * shape.in + i);
    for (int64_t r = 0; r < lora->rank; r++) {
        double low = lora->alpha / (double)lora->rank *
                     dot(a + r * shape.in, dropped, shape.in);
        for (int64_t o = 0; o < shape.out; o++)
            y[o] += b[o * lora->rank + r] * low;
    }
    free(dropped);
}

static double activation(const struct run *run, double x)
{
    return activation_value(model_activation_op(run->config->activation), x);
}

/* --- attention --- */

static void clip(struct run *run, double *x, int64_t n)
{
    double limit = run->config->clip_qkv;
    for (int64_t i = 0; limit > 0.0 && i < n; i++) {
        choose(run, fabs(x[i]) > limit);
        x[i] = fmin(fmax(x[i], -limit), limit);
    }
}

static void qk_norm(struct run *run, int block, double *qkv)
{
    const struct model_config *c = run->config;
    int64_t width = run->head_dim;
    int64_t keys = c->n_heads;
    const double *gamma = tensor(run, block, PARAM_Q_NORM_WEIGHT);
    const double *beta = tensor(run, block, PARAM_Q_NORM_BIAS);
    const double *key_gamma = tensor(run, block, PARAM_K_NORM_WEIGHT);
    const double *key_beta = tensor(run, block, PARAM_K_NORM_BIAS);
    if (c->qk_norm == QK_NORM_FULL) {
        norm(run, keys * width, qkv, gamma, beta, qkv);
        norm(run, c->n_kv_heads * width, qkv + keys * width, key_gamma,
             key_beta, qkv + keys * width);
    }
    for (int64_t h = 0; c->qk_norm == QK_NORM_HEAD && h < keys + c->n_kv_heads;
         h++)
        norm(run, width, qkv + h * width, h < keys ? gamma : key_gamma,
             h < keys ? beta : key_beta, qkv + h * width);
}

static bool is_windowed(const struct model_config *c, int layer)
{
    return c->window > 0 &&
           (c->window_interval == 0 ||
            layer % c->window_interval != c->window_interval - 1);
}

/* Queries and keys turn, values do not. */
static void rope(const struct run *run, int layer, int64_t t, double *qkv)
{
    struct model_config own = *run->config;
    const struct model_config *c = &own;
    int64_t half = run->head_dim / 2;
    if (c->window_rope_theta > 0 && is_windowed(c, layer)) {
        own.rope_theta = c->window_rope_theta;
        own.rope_scaling = ROPE_SCALING_NONE;
    }
    if (c->positions != POSITIONS_ROPE ||
        (c->no_rope_interval > 0 &&
         layer % c->no_rope_interval == c->no_rope_interval - 1))
        return;
    for (int64_t h = 0; h < c->n_heads + c->n_kv_heads; h++) {
        double *x = qkv + h * run->head_dim;
        for (int64_t j = 0; j < half; j++) {
            double angle = (double)(rope_reference_angle(c, j) * t);
            double longer = (double)rope_reference_length(c);
            double a = longer * x[j], b = longer * x[j + half];
            x[j] = a * cos(angle) - b * sin(angle);
            x[j + half] = b * cos(angle) + a * sin(angle);
        }
    }
}

/* out[head_dim] of one query; row: the first token of its sample. */
static void attend(const struct run *run, int layer, int64_t head, double slope,
                   int64_t query, const double *qkv, double *out)
{
    const struct model_config *c = run->config;
    const int32_t *ids = run->leaf->sequence_ids;
    int64_t seq = run->leaf->seq_len, hd = run->head_dim;
    int64_t row = query / seq * seq;
    int64_t kv = head / (c->n_heads / c->n_kv_heads);
    double total = 0.0;
    for (int64_t i = 0; i < hd; i++)
        out[i] = 0.0;
    for (int64_t key = row; key <= query; key++) {
        const double *q = qkv + query * run->qkv_width + head * hd;
        const double *k = qkv + key * run->qkv_width + (c->n_heads + kv) * hd;
        const double *v = k + c->n_kv_heads * hd;
        int64_t element = (head * run->length + within(run, query)) *
                              ((run->length + 3) / 4 * 4) +
                          within(run, key);
        if ((ids != NULL && ids[query] != ids[key]) ||
            (is_windowed(c, layer) && query - key >= c->window))
            continue;
        double scale =
            c->attention_scale > 0 ? c->attention_scale : 1 / sqrt((double)hd);
        double p = exp(dot(q, k, hd) * scale + slope * (double)(key - query));
        total += p;
        if (c->dropout_attention > 0.0)
            p *= dropout(run, c->dropout_attention,
                         stream_of_pair(run, layer, query, key), row / seq,
                         element);
        for (int64_t i = 0; i < hd; i++)
            out[i] += p * v[i];
    }
    for (int64_t i = 0; i < hd; i++)
        out[i] /= total;
}

/* branch[n, d] */
static void attention(struct run *run, int layer, const double *x,
                      double *branch)
{
    const struct model_config *c = run->config;
    int block = layer + 1;
    int64_t queries = c->n_heads * run->head_dim;
    double *qkv = zeros(run->n * run->qkv_width);
    double *row = zeros(run->d + queries);
    float *slopes = checked(calloc((size_t)c->n_heads, sizeof *slopes));
    if (c->positions == POSITIONS_ALIBI)
        model_config_alibi_slopes(c, slopes);
    for (int64_t i = 0; i < run->n; i++) {
        double *at = qkv + i * run->qkv_width;
        stream_norm(run, NORM_BEFORE, block, PARAM_NORM_1_WEIGHT,
                    x + i * run->d, row);
        linear(row, tensor(run, block, PARAM_WQKV_WEIGHT),
               tensor(run, block, PARAM_WQKV_BIAS), run->qkv_width, run->d, at);
        adapt(run, layer, i, LORA_Q, row, at);
        adapt(run, layer, i, LORA_K, row, at + queries);
        adapt(run, layer, i, LORA_V, row,
              at + queries + c->n_kv_heads * run->head_dim);
        clip(run, at, run->qkv_width);
        qk_norm(run, block, at);
        rope(run, layer, i % run->leaf->seq_len, at);
    }
    for (int64_t i = 0; i < run->n; i++) {
        for (int64_t h = 0; h < c->n_heads; h++)
            attend(run, layer, h, (double)slopes[h], i, qkv,
                   row + h * run->head_dim);
        linear(row, tensor(run, block, PARAM_OUT_WEIGHT),
               tensor(run, block, PARAM_OUT_BIAS), run->d, queries,
               branch + i * run->d);
        adapt(run, layer, i, LORA_OUT, row, branch + i * run->d);
        stream_norm(run, NORM_AFTER, block, PARAM_NORM_1_WEIGHT,
                    branch + i * run->d, branch + i * run->d);
    }
    free(qkv);
    free(row);
    free(slopes);
}

/* --- the feed-forward branch --- */

/* hidden[f]; gate and the biases may be NULL. */
static void hidden_layer(const struct run *run, const double *h,
                         const double *gate, const double *gate_bias,
                         const double *up, const double *up_bias,
                         double *hidden)
{
    int64_t d = run->d;
    for (int64_t i = 0; i < run->config->ffn_width; i++) {
        double u = dot(up + i * d, h, d) + (up_bias != NULL ? up_bias[i] : 0.0);
        double g = u;
        if (gate != NULL)
            g = dot(gate + i * d, h, d) +
                (gate_bias != NULL ? gate_bias[i] : 0.0);
        hidden[i] = activation(run, g) * (gate != NULL ? u : 1.0);
    }
}

/* A copy of the bias, which may be NULL, with what the adapter adds. */
static double *adapted(const struct run *run, int layer, int64_t token,
                       enum lora_layer which, const double *bias,
                       const double *h)
{
    int64_t f = run->config->ffn_width;
    double *sum = zeros(f);
    for (int64_t i = 0; bias != NULL && i < f; i++)
        sum[i] = bias[i];
    adapt(run, layer, token, which, h, sum);
    return sum;
}

static void mlp(const struct run *run, int layer, int64_t token,
                const double *h, double *hidden, double *y)
{
    int block = layer + 1;
    double *gate = adapted(run, layer, token, LORA_GATE,
                           tensor(run, block, PARAM_GATE_BIAS), h);
    double *up = adapted(run, layer, token, LORA_UP,
                         tensor(run, block, PARAM_UP_BIAS), h);
    hidden_layer(run, h, tensor(run, block, PARAM_GATE_WEIGHT), gate,
                 tensor(run, block, PARAM_UP_WEIGHT), up, hidden);
    linear(hidden, tensor(run, block, PARAM_DOWN_WEIGHT),
           tensor(run, block, PARAM_DOWN_BIAS), run->d, run->config->ffn_width,
           y);
    adapt(run, layer, token, LORA_DOWN, hidden, y);
    free(gate);
    free(up);
}

/* p[experts] */
static void router(const struct run *run, int layer, int64_t token,
                   const double *h, double *p)
{
    const struct model_config *c = run->config;
    uint64_t stream = stream_of(run, "jitter", layer, "", token);
    double *in = zeros(run->d);
    double total = 0.0;
    for (int64_t i = 0; i < run->d; i++) {
        in[i] = h[i];
        if (run->reference->training && c->router_jitter > 0.0)
            in[i] *= 1.0 - c->router_jitter +
                     2.0 * c->router_jitter *
                         uniform(run, stream, token / run->leaf->seq_len,
                                 within(run, token) * run->d + i);
    }
    linear(in, tensor(run, layer + 1, PARAM_ROUTER), NULL, c->experts, run->d,
           p);
    for (int64_t e = 0; e < c->experts; e++)
        total += exp(p[e]);
    for (int64_t e = 0; e < c->experts; e++)
        p[e] = exp(p[e]) / total;
    free(in);
}

static void add_expert(const struct run *run, int block, int64_t expert,
                       double weight, const double *h, double *hidden,
                       double *y)
{
    int64_t f = run->config->ffn_width, d = run->d;
    const double *gate = tensor(run, block, PARAM_EXPERTS_GATE);
    const double *up = tensor(run, block, PARAM_EXPERTS_UP) + expert * f * d;
    const double *down =
        tensor(run, block, PARAM_EXPERTS_DOWN) + expert * f * d;
    hidden_layer(run, h, gate != NULL ? gate + expert * f * d : NULL, NULL, up,
                 NULL, hidden);
    for (int64_t j = 0; j < f; j++)
        for (int64_t i = 0; i < d; i++)
            y[i] += weight * hidden[j] * down[j * d + i];
}

/* One token: adds to its chunk's counts[experts] and sums[experts]. */
static void mixture(struct run *run, int layer, int64_t token, const double *h,
                    double *hidden, int64_t *counts, double *sums, double *y)
{
    const struct model_config *c = run->config;
    double *p = zeros(c->experts), *left = zeros(c->experts);
    int64_t *chosen = checked(calloc((size_t)c->experts_top_k, sizeof *chosen));
    double length = 0.0;
    router(run, layer, token, h, p);
    memcpy(left, p, (size_t)c->experts * sizeof *p);
    for (int64_t j = 0; j < c->experts_top_k; j++) {
        int64_t best = 0;
        for (int64_t e = 1; e < c->experts; e++)
            best = left[e] > left[best] ? e : best;
        left[best] = -1.0;
        chosen[j] = best;
        length += pow(p[best], c->router_normalize);
        counts[best]++;
        choose(run, best);
    }
    length = c->router_normalize > 0.0 ? pow(length, 1.0 / c->router_normalize)
                                       : 1.0;
    for (int64_t e = 0; e < c->experts; e++)
        sums[e] += p[e];
    for (int64_t i = 0; i < run->d; i++)
        y[i] = 0.0;
    for (int64_t j = 0; j < c->experts_top_k; j++)
        add_expert(run, layer + 1, chosen[j], p[chosen[j]] / length, h, hidden,
                   y);
    free(p);
    free(left);
    free(chosen);
}

/* The loss of each chunk is by its own counts and sums, and by its tokens that
 * bear loss. */
static void balance(struct run *run, int layer, const int64_t *counts,
                    const double *sums)
{
    const struct model_config *c = run->config;
    int64_t chunks = run->reference->chunks;
    int64_t *all = run->reference->counts;
    double n = (double)(run->n / chunks);
    double *bearing = zeros(chunks);
    for (int64_t i = 0; i < run->n; i++)
        bearing[chunk_of(run, i)] += run->leaf->labels[i] >= 0;
    for (int64_t e = 0; e < c->experts; e++) {
        if (all != NULL)
            all[layer * c->experts + e] = 0;
        for (int64_t i = 0; i < chunks; i++) {
            int64_t at = i * c->experts + e;
            run->loss.balance +=
                (double)c->experts * c->balance_weight /
                ((double)(c->n_layers * c->experts_top_k) * n) *
                (double)counts[at] * sums[at] / n * bearing[i];
            if (all != NULL)
                all[layer * c->experts + e] += counts[at];
        }
    }
    free(bearing);
}

static void ffn(struct run *run, int layer, const double *x, double *branch)
{
    const struct model_config *c = run->config;
    int64_t slots = run->reference->chunks * c->experts;
    double *row = zeros(run->d), *hidden = zeros(c->ffn_width);
    double *sums = zeros(slots + 1);
    int64_t *counts = checked(calloc((size_t)slots + 1, sizeof *counts));
    for (int64_t i = 0; i < run->n; i++) {
        double *y = branch + i * run->d;
        stream_norm(run, NORM_BEFORE, layer + 1, PARAM_NORM_2_WEIGHT,
                    x + i * run->d, row);
        if (c->experts > 0)
            mixture(run, layer, i, row, hidden,
                    counts + chunk_of(run, i) * c->experts,
                    sums + chunk_of(run, i) * c->experts, y);
        else
            mlp(run, layer, i, row, hidden, y);
        stream_norm(run, NORM_AFTER, layer + 1, PARAM_NORM_2_WEIGHT, y, y);
    }
    balance(run, layer, counts, sums);
    free(row);
    free(hidden);
    free(sums);
    free(counts);
}

/* --- the whole --- */

static void add_branch(const struct run *run, int layer, const char *part,
                       const double *branch, double *x)
{
    const struct model_config *c = run->config;
    for (int64_t i = 0; i < run->n; i++) {
        uint64_t stream = stream_of(run, "dropout", layer, part, i);
        for (int64_t j = 0; j < run->d; j++)
            x[i * run->d + j] +=
                c->residual_scale * branch[i * run->d + j] *
                dropout(run, c->dropout_residual, stream,
                        i / run->leaf->seq_len, within(run, i) * run->d + j);
    }
}

static void embed(const struct run *run, double *x)
{
    const double *wte = tensor(run, 0, PARAM_WTE);
    const double *wpe = tensor(run, 0, PARAM_WPE);
    int64_t seq = run->leaf->seq_len, d = run->d;
    for (int64_t i = 0; i < run->n; i++) {
        uint64_t stream = stream_in(run, "dropout/embedding", i);
        for (int64_t j = 0; j < d; j++) {
            double sum = wte[run->leaf->tokens[i] * d + j];
            if (run->config->positions == POSITIONS_LEARNED)
                sum += wpe[i % seq * d + j];
            x[i * d + j] = run->config->embedding_scale * sum *
                           dropout(run, run->config->dropout_embedding, stream,
                                   i / seq, within(run, i) * d + j);
        }
    }
}

static void head(struct run *run, const double *x)
{
    const struct model_config *c = run->config;
    int64_t last = c->n_layers + 1;
    const double *w =
        c->tied ? tensor(run, 0, PARAM_WTE) : tensor(run, last, PARAM_LM_HEAD);
    double *row = zeros(run->d), *logits = zeros(c->vocab_size);
    for (int64_t i = 0; i < run->n; i++) {
        int32_t label = run->leaf->labels[i];
        double total = 0.0;
        if (label < 0)
            continue;
        norm(run, run->d, x + i * run->d,
             tensor(run, last, PARAM_NORM_F_WEIGHT),
             tensor(run, last, PARAM_NORM_F_BIAS), row);
        linear(row, w, NULL, c->vocab_size, run->d, logits);
        for (int64_t v = 0; v < c->vocab_size; v++)
            total += exp(c->logit_scale * logits[v]);
        run->loss.cross_entropy += log(total) - c->logit_scale * logits[label];
    }
    free(row);
    free(logits);
}

struct model_reference_loss
model_reference_run(const struct model_reference *reference,
                    const double *weights)
{
    const struct model_config *c = reference->config;
    struct run run = { .reference = reference,
                       .config = c,
                       .leaf = reference->leaf,
                       .weights = weights,
                       .n = reference->leaf->samples * reference->leaf->seq_len,
                       .d = c->d_model,
                       .length = reference->leaf->seq_len / reference->chunks,
                       .head_dim = c->head_dim > 0 ? c->head_dim
                                                   : c->d_model / c->n_heads };
    run.qkv_width = (c->n_heads + 2 * c->n_kv_heads) * run.head_dim;
    double *x = zeros(run.n * run.d), *branch = zeros(run.n * run.d);
    embed(&run, x);
    for (int layer = 0; layer < c->n_layers; layer++) {
        attention(&run, layer, x, branch);
        add_branch(&run, layer, "/attention", branch, x);
        ffn(&run, layer, x, branch);
        add_branch(&run, layer, "/ffn", branch, x);
    }
    head(&run, x);
    free(x);
    free(branch);
    return run.loss;
}
