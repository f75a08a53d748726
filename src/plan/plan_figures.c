/* Works out every figure of tessera-plan from settings, model, memory plan and
 * data set. plan_print.c shows them.
 *
 * Nothing is estimated that a run would know exactly: parameters come from the
 * same tables, memory from the same plan (src/train/plan/train_memory.h), steps
 * from the same conversion of durations, the order's epochs from the order. Time
 * is given, as tokens per second or as a share of the peak, or predicted for a GPU by
 * its name (plan_time.c):
 *
 *   tokens/s = mfu x peak x ranks / (FLOPs of a token)
 *   step     = tokens of a batch / (tokens/s)
 *   training = steps x step, without failures and without saves
 *
 * and the price of failures comes last, by what a save costs and how often a node
 * fails: the interval that loses least, and the goodput that is left
 * (checkpoint/ckpt_interval.h).
 *
 * Figures depend on each other, and what one needs may not be known. There is no
 * case for each: unknown is -1 from the start, each step reads what was known
 * before it, and leaves its own at -1 where that is not enough. So their order in
 * plan_figures() matters. */
#include "src/plan/plan.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint/ckpt_interval.h"
#include "src/base/fsio.h"
#include "src/base/units.h"
#include "src/job/ledger_history.h"
#include "src/model/model.h"
#include "src/parallel/replica.h"
#include "src/train/plan/trainer_backend.h"
#include "src/train/plan/train_memory.h"
#include "src/train/settings/trainer_schedule.h"

/* The rate of the copy that training waits for; docs/benchmarks.md has what
 * machines reach. */
#define COPY_BYTES_PER_S 4e9
/* From a failure that is known to the next attempt's first step, where the run
 * has no ledger; as tessera-ckpt interval. */
#define RESTART_S 300.0
/* How failures show, in shares of 419 on 16,384 GPUs in 54 days (Llama 3,
 * arXiv:2407.21783, table 5; which cause shows how is an estimate), and until
 * they do: srun ends the step 10 s after a process has ended (--wait), and the
 * others were gone 2 s later; a stopped rank is named after parallel.lost_s, 10.0
 * to 10.2 s as measured, one that computes without an end after five steps if
 * that is more, without signs of life after 1.25 of parallel.timeout_s; Slurm takes a
 * node for dead after 300 s (SlurmdTimeout), and 8 s beside are assumed. */
#define ENDS_SHARE (226.0 / 419)
#define ENDS_S 12.0
#define HANGS_SHARE (124.0 / 419)
#define HANGS_END_S 2.0
#define HANGS_STEPS 5
#define HANGS_DEADLINES 1.25
#define NODE_SHARE (63.0 / 419)
#define NODE_S 308.0
/* A call for metadata of a shared file system with other users, assumed: 0.2 ms
 * where it is idle. Calls of a save, as counted: rank 0's in a row, and of each
 * file those of who makes it and removes that of the step that goes, as if a
 * server answered one at a time. */
#define METADATA_S 1e-3
#define METADATA_CALLS 25
#define METADATA_FILE_CALLS 5
#define SECONDS_PER_HOUR 3600.0
#define STEPS_MAX 1e18 /* still whole in an int64_t */
/* A checkpoint's weights and each of its moments, in fp32. */
#define STATE_BYTES 4.0
/* A run that may never have more ranks is told so. */
#define FEW_RANKS 8
#define SLOTS_MAX 65536 /* that are looked for */

/* What trains, computes and is saved are three different counts: adapters train
 * beside frozen weights, a token passes some of the experts, and a checkpoint has
 * the optimizer's moments, too. */
static enum err add_model(struct plan_figures *f)
{
    const struct model_config *config = &f->settings->model;
    struct params *params = NULL;
    TRY(train_settings_params(f->settings, &params));
    struct replica_options options = train_memory_replica(f->settings);
    int64_t seq_len = f->settings->data.seq_len;
    double tokens = (double)seq_len;
    f->trained = params->numel;
    f->saved = params->numel + replica_kept_elements(&options, params);
    for (int i = 0; i < REPLICA_KEPT && options.kept[i].name != NULL; i++)
        f->saved += options.kept[i].saved ? params->numel : 0;
    f->params = model_config_param_count(config);
    f->active_params = model_config_active_count(config);
    f->flops_mfu = model_flops_per_sequence(config, params, seq_len) / tokens;
    f->flops_mfu_causal =
        model_flops_per_sequence_causal(config, params, seq_len) / tokens;
    params_destroy(params);
    return ERR_OK;
}

/* Ranks of the fullest node. */
static int node_ranks(const struct plan_options *o)
{
    return o->nodes > 1 && o->node_ranks > 0 ? o->node_ranks
                                             : (o->ranks - 1) / o->nodes + 1;
}

static int common_divisor(int a, int b)
{
    return b > 0 ? common_divisor(b, a % b) : a;
}

/* What a rank takes, by the run's own plan; where that is too much, what nearby
 * would fit. An "auto" strategy is resolved here as the run will do it. */
static enum err add_memory(const struct plan_options *options,
                           struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    size_t index = 0, text = 0;
    struct run_data *eval = NULL;
    int each = node_ranks(options);
    int last = f->ranks - each * (options->nodes - 1);
    if (f->data != NULL)
        index = run_data_index_bytes(f->data, &text);
    if (f->data != NULL && s->data.eval[0] != '\0' &&
        run_data_open(s, true, NULL, &eval) == ERR_OK)
        index += run_data_index_bytes(eval, &text);
    run_data_close(eval);
    f->place = (struct train_memory_place){
        .threads = f->threads,
        .ranks = f->ranks,
        .node_ranks = each,
        .uneven = last != each ? options->nodes : 0,
        /* of two nodes with one more or less, 1 */
        .group_ranks = last == each || options->node_ranks > 0
                           ? common_divisor(each, last)
                           : 1,
        .order = f->data != NULL ? run_data_order_bytes(f->data, s) : 0,
        .indexes = index,
        .index_text = text,
    };
    TRY(trainer_backend_plan(s, &f->place.kernels));
    f->cuda = strcmp(f->place.kernels->backend, "cuda") == 0;
    f->limit_bytes = s->memory.limit;
    if (options->memory_bytes > 0 &&
        (f->limit_bytes == 0 || options->memory_bytes < f->limit_bytes))
        f->limit_bytes = options->memory_bytes;
    f->chosen = *s;
    TRY(train_memory_strategy(&f->chosen, &f->place, (size_t)f->limit_bytes,
                              f->why, sizeof f->why));
    struct replica_options replica = train_memory_replica(&f->chosen);
    TRY(replica_check(&replica, f->ranks));
    TRY(train_memory_once(&f->chosen, &f->place, (size_t)f->limit_bytes));
    TRY(train_memory_plan(&f->chosen, &f->place, &f->bytes));
    assert(f->place.node_ranks >= 1 && f->place.node_ranks <= f->ranks);
    f->fits = (int64_t)f->bytes.total <= f->limit_bytes;
    if (f->limit_bytes > 0 && !f->fits)
        TRY(train_memory_nearest(s, &f->place, (size_t)f->limit_bytes,
                                 &f->nearest));
    return ERR_OK;
}

/* A data set that is not there yet leaves its numbers open. */
static void add_data(struct plan_figures *f)
{
    struct run_data *data = NULL;
    if (f->settings->data.train[0] == '\0')
        return;
    enum err rc = run_data_open(f->settings, false, NULL, &data);
    for (int i = 0; rc == ERR_OK && i < data->count; i++)
        for (int64_t k = dataset_contents(data->sets[i])->shards - 1;
             rc == ERR_OK && k >= 0; k--)
            rc = dataset_look(data->sets[i], k);
    if (rc != ERR_OK) {
        fprintf(stderr, "tessera-plan: data.train is left out: %s\n",
                err_text());
        run_data_close(data);
        return;
    }
    f->data = data;
    f->samples = (double)run_data_samples(data);
    f->epoch_samples = (double)run_data_epoch(data, f->settings);
    f->data_tokens = 0;
    for (int i = 0; i < data->count; i++)
        f->data_tokens += (double)dataset_sidecar(data->sets[i])->tokens;
}

static struct unit_rates rates_of(const struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    return (struct unit_rates){
        .samples_per_step = s->train.global_batch,
        .tokens_per_step = s->train.global_batch * s->data.seq_len,
        .samples_per_epoch = f->samples > 0 ? (int64_t)f->epoch_samples : 0,
        .max_steps = f->steps > 0 ? (int64_t)fmin(f->steps, STEPS_MAX) : 0,
    };
}

static void add_steps(struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    struct duration duration = trainer_schedule_max_duration(s);
    int64_t steps = 0;
    if (!f->batch_known) {
        if (f->tokens_per_s > 0 && f->tokens > 0)
            f->train_s = f->tokens / f->tokens_per_s;
        return;
    }
    struct unit_rates rates = rates_of(f);
    double tokens_per_step = (double)rates.tokens_per_step;
    assert(tokens_per_step > 0);
    if (f->tokens_per_s > 0)
        f->step_s = tokens_per_step / f->tokens_per_s;
    if (f->tokens > 0)
        f->steps = ceil(f->tokens / tokens_per_step);
    else if (duration.unit == UNIT_SEC && f->step_s > 0)
        f->steps = ceil(duration.value / f->step_s);
    else if (duration.unit != UNIT_SEC && duration.value > 0 &&
             units_steps(duration, &rates, &steps) == ERR_OK)
        f->steps = (double)steps;
    if (f->steps < 0)
        return;
    f->tokens = f->steps * tokens_per_step;
    if (f->samples > 0)
        f->epochs = f->steps * (double)s->train.global_batch / f->epoch_samples;
    if (f->step_s > 0)
        f->train_s = f->steps * f->step_s;
    if (f->data != NULL && s->data.mixture[0] != '\0' &&
        f->steps <= STEPS_MAX &&
        run_data_epochs(f->data, s, (int64_t)f->steps, f->stream_epochs,
                        &f->streams_known) != ERR_OK)
        fprintf(stderr, "tessera-plan: the mixture is left out: %s\n",
                err_text());
}

/* The first folder on the way up from run.dir that is there. */
static void add_free(struct plan_figures *f)
{
    char path[SETTINGS_TEXT_BYTES];
    uint64_t bytes = 0;
    memcpy(path, f->settings->run.dir, sizeof path);
    while (path[0] != '\0') {
        if (fsio_free_bytes(path, &bytes) == ERR_OK) {
            f->free_bytes = (double)bytes;
            return;
        }
        *strrchr(path, '/') = '\0';
    }
}

/* A checkpoint's size, and how many lie there at the same time: those that are
 * kept and the one being written, which is renamed before an old one goes. */
static void add_disk(struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    struct duration interval = s->checkpoint.interval;
    struct unit_rates rates = rates_of(f);
    int64_t every = 0;
    f->checkpoint_bytes = STATE_BYTES * (double)f->saved;
    if (s->checkpoint.keep > 0)
        f->kept = (double)s->checkpoint.keep + s->checkpoint.keep_best + 1;
    if (s->checkpoint.keep > 0 && s->checkpoint.keep_every > 0)
        f->kept =
            f->steps < 0
                ? UNKNOWN
                : f->kept + floor(f->steps / (double)s->checkpoint.keep_every);
    if (s->checkpoint.keep == 0 && f->steps > 0 && interval.unit != UNIT_SEC &&
        interval.value > 0 && units_steps(interval, &rates, &every) == ERR_OK &&
        every > 0)
        f->kept = ceil(f->steps / (double)every) + 1;
    add_free(f);
}

/* Seconds until a failure is known, on average; silent ones, 6 of the 419, are
 * left out. */
static double detection(const struct plan_figures *f)
{
    double lost_s = f->settings->parallel.lost_s;
    double latest_s = HANGS_DEADLINES * f->settings->parallel.timeout_s;
    double hangs_s = lost_s > 0
                         ? fmin(latest_s, fmax(lost_s, HANGS_STEPS * f->step_s))
                         : latest_s;
    return ENDS_SHARE * ENDS_S + HANGS_SHARE * (hangs_s + HANGS_END_S) +
           NODE_SHARE * NODE_S;
}

/* What a failure and a save take beside arithmetic and bytes; a restart as the
 * run's ledger has it, where there was one. */
static void add_terms(struct plan_figures *f)
{
    struct ledger_history ledger;
    double files = (double)f->ranks; /* each rank writes one at most */
    bool run = f->settings->run.dir[0] != '\0';
    f->detect_s = detection(f);
    f->restart_s = RESTART_S;
    f->restart_measured =
        run && ledger_history_read(f->settings->run.dir, &ledger) == ERR_OK &&
        ledger.restart_s >= 0;
    if (f->restart_measured)
        f->restart_s = ledger.restart_s;
    f->metadata_s = METADATA_S * (METADATA_CALLS + files * METADATA_FILE_CALLS);
}

/* Saved behind the training a checkpoint blocks it for a copy in memory; otherwise
 * for as long as it takes to write. Nodes fail independently of each other, so a
 * job of n of them fails n times as often as one. */
static enum err add_interval(const struct plan_options *options,
                             struct plan_figures *f)
{
    struct ckpt_interval best;
    assert(f->checkpoint_bytes > 0);
    if (options->write_bytes_per_s == 0)
        return ERR_OK;
    double write_s = f->checkpoint_bytes / (double)options->write_bytes_per_s;
    add_terms(f);
    write_s += f->metadata_s;
    f->persist_s = f->settings->checkpoint.async ? write_s : 0;
    f->cost_s = f->settings->checkpoint.async
                    ? (double)f->bytes.staging / COPY_BYTES_PER_S
                    : write_s;
    if (options->mtbf_h <= 0)
        return ERR_OK;
    struct ckpt_interval_input input = {
        .cost_s = f->cost_s,
        .persist_s = f->persist_s,
        .mtbf_s = options->mtbf_h * SECONDS_PER_HOUR / options->nodes,
        .restart_s = f->restart_s,
        .detect_s = f->detect_s,
    };
    TRY(ckpt_interval(&input, &best));
    f->mtbf_h = options->mtbf_h;
    f->interval_s = best.recommended_s;
    f->goodput = best.goodput;
    if (f->step_s > 0)
        f->interval_steps = fmax(1, ceil(best.recommended_s / f->step_s));
    return ERR_OK;
}

/* Tokens per second as they are given, or predicted, and the share of the peak. */
static enum err add_speed(const struct plan_options *options,
                          struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    double peak = s->hardware.peak_flops;
    if (peak <= 0 && f->gpu != NULL)
        peak = trainer_backend_fp8(s) ? f->gpu->fp8_flops : f->gpu->bf16_flops;
    if (options->mfu > 0 && peak <= 0)
        return err_set(ERR_USAGE,
                       "--mfu is a share of a rank's peak, which is not known: "
                       "give --gpu, hardware.peak_flops, in FLOP/s (989.5e12 "
                       "for an H100 in bf16), or --rate");
    if (options->rate > 0)
        f->tokens_per_s = options->rate;
    else if (options->mfu > 0)
        f->tokens_per_s = options->mfu * peak * f->ranks / f->flops_mfu;
    else if (f->gpu != NULL)
        TRY(plan_time(f));
    if (f->tokens_per_s > 0 && peak > 0)
        f->mfu = f->tokens_per_s * f->flops_mfu / (peak * f->ranks);
    return ERR_OK;
}

static void add_money(const struct plan_options *options,
                      struct plan_figures *f)
{
    if (f->train_s < 0)
        return;
    f->hours = f->train_s / SECONDS_PER_HOUR;
    if (f->goodput > 0)
        f->hours /= f->goodput;
    if (options->price > 0)
        f->money = f->hours * f->ranks * options->price;
}

/* A run's slots stay, and with them the most ranks that it may ever have. */
static enum err add_slots(struct plan_figures *f)
{
    const struct train_settings *s = f->settings;
    int64_t batch = s->train.global_batch;
    int64_t degree = s->parallel.sequence_degree;
    f->ranks_max = train_memory_ranks_max(s);
    int64_t wanted = f->ranks > FEW_RANKS ? f->ranks : FEW_RANKS;
    if (f->ranks_max >= wanted)
        return ERR_OK;
    assert(degree >= 1);
    wanted = (wanted + degree - 1) / degree;
    for (int64_t n = wanted; n <= batch && n <= SLOTS_MAX; n++)
        /* cppcheck-suppress zerodiv */
        if (batch % n == 0) {
            f->more_slots = n;
            break;
        }
    if (f->ranks <= f->ranks_max)
        return ERR_OK;
    if (f->more_slots > 0)
        return err_set(ERR_USAGE,
                       "%d ranks, but a batch of %lld has %lld slots, so at "
                       "most %d ranks, for the whole run: give "
                       "parallel.slots=%lld",
                       f->ranks, (long long)batch, (long long)s->parallel.slots,
                       f->ranks_max, (long long)f->more_slots);
    return err_set(
        ERR_USAGE,
        "%d ranks, but a batch of %lld has %lld slots, so at most %d ranks, "
        "and no divisor of it is enough: choose a train.global_batch that %lld "
        "divides, and that as parallel.slots",
        f->ranks, (long long)batch, (long long)s->parallel.slots, f->ranks_max,
        (long long)wanted);
}

enum err plan_figures(const struct plan_options *options,
                      const struct train_settings *settings,
                      struct plan_figures *out)
{
    assert(options->ranks > 0 && options->nodes > 0);
    assert(options->nodes <= options->ranks);
    assert(options->rate == 0 || options->mfu == 0);
    struct plan_figures *f = out;
    *f = (struct plan_figures){ .settings = settings,
                                .ranks = options->ranks,
                                .gpu = options->gpu,
                                .batch_known = settings->train.global_batch > 0,
                                .threads = (int)settings->hardware.threads };
    double *const unknown[] = {
        &f->steps,      &f->tokens,         &f->samples,    &f->data_tokens,
        &f->epochs,     &f->tokens_per_s,   &f->step_s,     &f->train_s,
        &f->kept,       &f->free_bytes,     &f->cost_s,     &f->persist_s,
        &f->interval_s, &f->interval_steps, &f->goodput,    &f->detect_s,
        &f->restart_s,  &f->metadata_s,     &f->step_low_s, &f->step_high_s,
        &f->mfu,        &f->hours,          &f->money,
    };
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        *unknown[i] = UNKNOWN;
    if (f->threads == 0)
        f->threads = kernels_threads_default(node_ranks(options));
    if (options->tokens > 0)
        f->tokens = options->tokens;
    TRY(add_slots(f));
    TRY(add_model(f));
    add_data(f);
    TRY(add_memory(options, f));
    TRY(add_speed(options, f));
    add_steps(f);
    add_disk(f);
    TRY(add_interval(options, f));
    add_money(options, f);
    return ERR_OK;
}

void plan_figures_release(struct plan_figures *figures)
{
    run_data_close(figures->data);
    figures->data = NULL;
}
