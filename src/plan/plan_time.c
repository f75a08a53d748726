/* The step time of a plan on GPUs that were named, and of the next best way to run it.
 *
 * Strategy and microbatch are what the run itself would choose under "auto", which goes
 * by bytes (the same list of exchanges, train_exchange.h). All other ways that fit are predicted, too, with blocks computed again and
 * without; the quickest is told: it is what to try where the settings ask for more
 * than they need. Ways that round values or wait for saves are left out, as a step does
 * not show their price. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/new.h"
#include "src/base/units.h"
#include "src/plan/plan.h"
#include "src/train/plan/trainer_backend.h"

/* AdamW reads and writes fp32 weights and both moments, reads the gradient and
 * writes bf16 weights. */
#define UPDATE_BYTES 30.0
#define WAYS_MAX 16
/* Hops of messages in a step for each doubling of the ranks, as counted: 5 under zero3,
 * 7 under ddp, 9 under zero1 (docs/benchmarks.md, Control messages). */
#define CONTROL_ROUNDS 7.0

static double again_share(const struct train_settings *s)
{
    double missing = 0.0;
    (void)train_memory_again(s, &missing);
    return 1.0 - missing;
}

/* The way that settings are, whose strategy is no longer "auto". */
static struct train_memory_way way_of(const struct plan_figures *f,
                                      const struct train_settings *s)
{
    bool zero3 = s->parallel.strategy == REPLICA_ZERO3;
    int degree = (int)s->parallel.shard_degree;
    return (struct train_memory_way){
        .strategy = s->parallel.strategy,
        .shard_degree = !zero3       ? 0
                        : degree > 0 ? degree
                                     : f->ranks,
        .ranks = f->ranks,
        .microbatch = s->train.microbatch,
        .once = s->once,
    };
}

/* Without a batch a step is one microbatch on each rank. */
static void predict(const struct plan_figures *f, const struct params *params,
                    const struct train_settings *s, struct plan_cost *out)
{
    bool ddp = s->parallel.strategy == REPLICA_DDP;
    double trained = (double)f->trained;
    double micro =
        (double)s->train.microbatch / (double)s->parallel.sequence_degree;
    struct train_memory_way way = way_of(f, s);
    struct plan_cost_input in = {
        .model = &s->model,
        .seq_len = (double)s->data.seq_len,
        .microbatch = micro,
        .leaves = train_exchange_leaves(s, s->train.microbatch, f->ranks),
        .again = again_share(s),
        .trained = trained / (double)f->params,
        .fp8 = trainer_backend_fp8(s),
        .node_ranks = f->place.node_ranks,
        .control_rounds = CONTROL_ROUNDS * log2(f->ranks),
        .update_bytes = UPDATE_BYTES * trained / (ddp ? 1.0 : f->ranks),
    };
    train_exchanges(s, &f->place, params, &way, in.exchanges);
    plan_cost(f->gpu, &in, &plan_cost_constants, out);
}

/* What takes the same time is the same way, or none that says anything. */
static enum err find_second(const struct params *params, struct plan_figures *f)
{
    enum err rc = ERR_OK;
    struct train_settings *wide = NULL, *trial = NULL;
    struct train_memory_way ways[WAYS_MAX];
    struct plan_cost cost;
    int count = 0;
    TRY_OUT(new_room(&wide, 1));
    TRY_OUT(new_room(&trial, 1));
    *wide = f->chosen;
    snprintf(wide->memory.checkpoint, sizeof wide->memory.checkpoint, "none");
    if (f->batch_known)
        wide->train.microbatch =
            wide->train.global_batch / wide->parallel.slots;
    TRY_OUT(train_memory_ways(wide, &f->place, (size_t)f->limit_bytes, false,
                              WAYS_MAX, ways, &count));
    for (int i = 0; i < count; i++) {
        train_memory_apply(wide, &ways[i], trial);
        predict(f, params, trial, &cost);
        if (ways[i].packed || ways[i].waiting || cost.step_s == f->step_s ||
            (f->second_known && cost.step_s >= f->second_cost.step_s))
            continue;
        f->second_known = true;
        f->second = ways[i];
        f->second_cost = cost;
    }
out:
    free(trial);
    free(wide);
    return rc;
}

enum err plan_time(struct plan_figures *f)
{
    enum err rc = ERR_OK;
    struct params *params = NULL;
    const struct train_settings *s = &f->chosen;
    double samples = f->batch_known ? (double)s->train.global_batch
                                    : (double)(s->train.microbatch * f->ranks) /
                                          (double)s->parallel.sequence_degree;
    if (trainer_backend_fp8(s) && f->gpu->fp8_flops <= 0)
        return err_set(ERR_USAGE,
                       "train.precision = fp8, and --gpu %s has no 8-bit "
                       "floats: use bf16, or another GPU",
                       f->gpu->name);
    if (trainer_backend_dtype(s) != DTYPE_BF16)
        return ERR_OK;
    TRY_OUT(train_settings_params(s, &params));
    predict(f, params, s, &f->cost);
    f->predicted = true;
    f->step_s = f->cost.step_s;
    f->step_low_s = f->step_s / (1 + PLAN_COST_SPREAD);
    f->step_high_s = f->step_s / (1 - PLAN_COST_SPREAD);
    f->tokens_per_s = samples * (double)s->data.seq_len / f->step_s;
    TRY_OUT(find_second(params, f));
out:
    params_destroy(params);
    return rc;
}

/* --- for people --- */

static void print_way(const char *name, double seconds, const char *strategy,
                      int64_t degree, int64_t microbatch, double again)
{
    char groups[32] = "";
    if (degree > 0)
        snprintf(groups, sizeof groups, " in groups of %d", (int)degree);
    printf("  %-22s %12s  %s%s, microbatch %lld, %.0f %% of blocks computed "
           "again\n",
           name, UNITS_SECONDS(seconds), strategy, groups,
           (long long)microbatch, 100 * again);
}

/* By how much it is worse, or better, and what of it most. */
static void print_second(const struct plan_figures *f)
{
    const struct train_memory_way *way = &f->second;
    double share = f->second_cost.step_s / f->cost.step_s - 1;
    double most = 0;
    int kind = PLAN_PRODUCTS;
    for (int i = 0; i < PLAN_KINDS; i++) {
        double more = (f->second_cost.seconds[i] - f->cost.seconds[i]) *
                      (share < 0 ? -1 : 1);
        kind = more > most ? i : kind;
        most = fmax(most, more);
    }
    print_way("runner-up", f->second_cost.step_s,
              replica_strategy_names[way->strategy],
              way->shard_degree < f->ranks ? way->shard_degree : 0,
              way->microbatch, way->again);
    printf("  %-22s %12s  %.1f %% %s%s\n", "", "", 100 * fabs(share),
           share < 0 ? "quicker, though not chosen, by its " : "slower by its ",
           plan_cost_names[kind]);
}

void plan_time_print(const struct plan_figures *f)
{
    const struct train_settings *s = &f->chosen;
    printf("time of a step (%s, %d in a node)\n", f->gpu->name,
           f->place.node_ranks);
    print_way(f->fits ? "as planned" : "if it did fit", f->cost.step_s,
              replica_strategy_names[s->parallel.strategy],
              s->parallel.shard_degree, s->train.microbatch, again_share(s));
    for (int i = 0; i < PLAN_KINDS; i++) {
        printf("    %-20s %12s%s\n", plan_cost_names[i],
               UNITS_SECONDS(f->cost.seconds[i]),
               i == PLAN_EXCHANGE ? "  beside what arithmetic hides" : "");
    }
    if (f->second_known)
        print_second(f);
    else
        printf("  %-22s %12s\n", "runner-up", "none fits");
}
