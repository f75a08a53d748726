/* Counts what a step does and divides by what a GPU can.
 *
 * What is taken as known: attention is causal, its backward 2.5 times its forward; a
 * block's values (10 of the model's width, 2 or 3 of its MLP's) are written, read, and
 * read again by backward; a block has some 90 kernels, forward and backward, launched in
 * 3.3 us each (docs/benchmarks.md takes 3); where a norm comes behind a branch, backward
 * makes the branch's last product again (src/model/DESIGN.md); the ranks of a node share
 * its network cards;
 * an agreement goes along a tree of ranks, CONTROL_S from one to the next (assumed). */
#include "src/plan/plan_cost.h"

#include <assert.h>
#include <math.h>

#define VALUE_BYTES 2.0
#define VALUE_PASSES 3.0
#define BLOCK_LAUNCHES_S 3e-4
#define NORM_LAUNCHES_S 1e-5 /* one more, forward and backward */
#define BACKWARD_ATTENTION 2.5
#define CONTROL_S 1e-5

const struct plan_constants plan_cost_constants = {
#define PLAN_CONSTANT_VALUE(name, value, what) .name = value,
    PLAN_CONSTANTS(PLAN_CONSTANT_VALUE)
#undef PLAN_CONSTANT_VALUE
};

struct rates {
    const struct plan_gpu *gpu;
    const struct plan_constants *constants;
};

/* [rows, from] times [from, to]: small ones are those for which memory is slow. */
static double product_s(const struct rates *r, bool fp8, double rows,
                        double from, double to)
{
    const struct plan_gpu *g = r->gpu;
    double rate =
        fp8 ? g->fp8_flops * g->fp8_share : g->bf16_flops * g->bf16_share;
    double bytes = VALUE_BYTES * (rows * from + from * to + rows * to);
    assert(rate > 0);
    return 2.0 * rows * from * to / (rate * r->constants->product_share) +
           r->constants->operand_passes * bytes / g->memory_bytes_per_s;
}

/* The products of one block, once. */
static double block_s(const struct rates *r, const struct plan_cost_input *in,
                      double rows)
{
    const struct model_config *m = in->model;
    double d = (double)m->d_model;
    double q = (double)model_config_queries(m);
    double kv = (double)model_config_kv(m);
    double experts = m->experts > 0 ? (double)m->experts : 1.0;
    double chosen = m->experts > 0 ? (double)m->experts_top_k : 1.0;
    double width = (double)m->ffn_width;
    double each = rows * chosen / experts;
    double up = product_s(r, in->fp8, each, d, width);
    double down = product_s(r, in->fp8, each, width, d);
    return product_s(r, in->fp8, rows, d, q + 2.0 * kv) +
           product_s(r, in->fp8, rows, q, d) +
           experts * (up * (m->ffn == FFN_GLU ? 2.0 : 1.0) + down);
}

/* What backward makes again for norms behind the branches. */
static double branches_s(const struct rates *r,
                         const struct plan_cost_input *in, double rows)
{
    const struct model_config *m = in->model;
    double d = (double)m->d_model;
    if (m->norm_place == NORM_BEFORE)
        return 0.0;
    return product_s(r, in->fp8, rows, (double)model_config_queries(m), d) +
           product_s(r, in->fp8, rows, (double)m->ffn_width, d);
}

/* Within a node and between nodes at the same time, so the slower one counts. */
static double exchange_s(const struct rates *r, const struct train_exchange *x,
                         int node_ranks, double layers)
{
    struct train_exchange_sent sent = train_exchange_sent(x, node_ranks);
    double share = r->constants->link_share;
    return fmax(sent.near / (r->gpu->link_bytes_per_s * share),
                sent.far / (r->gpu->network_bytes_per_s * share)) +
           r->constants->hop_s * log2(x->ranks) * layers;
}

void plan_cost(const struct plan_gpu *gpu, const struct plan_cost_input *input,
               const struct plan_constants *constants, struct plan_cost *out)
{
    const struct plan_cost_input *in = input;
    const struct model_config *m = in->model;
    struct rates r = { gpu, constants };
    double rows = in->microbatch * in->seq_len;
    double layers = (double)m->n_layers;
    double d = (double)m->d_model, vocab = (double)m->vocab_size;
    double mlp = (double)m->ffn_width * (m->ffn == FFN_GLU ? 3.0 : 2.0) *
                 (m->experts > 0 ? (double)m->experts_top_k : 1.0);
    double memory = gpu->memory_bytes_per_s, leaves = in->leaves;
    double more = 1.0 + in->again / 3.0; /* a third forward pass */
    /* the product of a frozen matrix's gradient is not there */
    double passes = 2.0 + in->trained;
    double norms = m->norm_place == NORM_AROUND ? 2.0 : 0.0; /* more */
    double product = layers * ((passes + in->again) * block_s(&r, in, rows) +
                               branches_s(&r, in, rows)) +
                     passes * product_s(&r, false, rows, d, vocab);
    double attention = layers * (1.0 + in->again + BACKWARD_ATTENTION) * 2.0 *
                       rows * in->seq_len *
                       (double)model_config_queries(m) * /* causal */
                       (1.0 + constants->attention_half / in->seq_len) /
                       (gpu->attention_flops * constants->attention_share);
    double values = rows * VALUE_BYTES *
                    (layers * VALUE_PASSES * ((10.0 + norms) * d + mlp) * more +
                     constants->logit_passes * vocab) /
                    memory;
    double launches =
        layers * (BLOCK_LAUNCHES_S + norms * NORM_LAUNCHES_S) * more;
    double leaf_s = product + attention + values + launches;
    double seconds[PLAN_KINDS] = { leaves * product,
                                   leaves * attention,
                                   leaves * values,
                                   leaves * launches,
                                   [PLAN_CONTROL] =
                                       in->control_rounds * CONTROL_S,
                                   [PLAN_UPDATE] = in->update_bytes / memory };
    for (int i = 0; i < TRAIN_EXCHANGES; i++) {
        const struct train_exchange *x = &in->exchanges[i];
        double s = x->times > 0 && x->ranks > 1
                       ? exchange_s(&r, x, in->node_ranks, layers)
                       : 0.0;
        seconds[PLAN_EXCHANGE] +=
            x->times * (s - fmin(s * constants->hidden_share, leaf_s));
    }
    *out = (struct plan_cost){ 0 };
    for (int i = 0; i < PLAN_KINDS; i++) {
        out->seconds[i] = seconds[i];
        out->step_s += seconds[i];
    }
}
