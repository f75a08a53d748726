/* Listener: metrics.jsonl, one JSON object per logged step, and the progress
 * line on stderr. Rank 0 writes.
 *
 * Fields: attempt, step, tokens (positions trained so far), loss (nats per
 * loss-bearing token; null where it is no number), lr, grad_norm (likewise,
 * before clipping), with the digits that make the double again, step_ms, tokens_per_s, mfu
 * (model FLOPs by LLM Foundry's convention / the peak of all ranks), mfu_causal
 * (with half of attention), peak_flops (of a rank) and peak_source: "setting"
 * (hardware.peak_flops) or what the kernels know (kernels.h); all four are null
 * where nobody knows the peak; time (seconds since the epoch, at the step's end),
 * loader_ms (the longest that a rank has waited for samples in the step) and,
 * with several ranks, step_ms_min and step_ms_max, of the ranks' clocks of the step,
 * which has waiting for other ranks in it; work_ms_min, work_ms_median, work_ms_max and
 * slowest_rank are of their own work, without that and without waiting for samples;
 * wait_ms_max and waiting_rank, who has waited longest for others; loader_rank. With data.mixture stream_tokens has the tokens of each data
 * set so far, those that a rollback has left out included. Behind them are
 * train/loss_tokens, the labels of the step, time/remaining (seconds until the
 * end, with evaluations and checkpoints as they were so far) and what other
 * listeners have added to the step's scalars before this one, by its name, null
 * where it is not finite. Append-only; a step that is replayed after a resume
 * appears again with the same loss, and after a rollback with another. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/real.h"
#include "src/data/set/mixture_text.h"
#include "src/data/set/order.h"
#include "src/train/start/start.h"
#include "src/train/start/run_data.h"

struct on_metrics {
    const struct run *run;  /* lent */
    int64_t *expert_counts; /* sorted, of one step; NULL without experts */
    double *work_s;         /* [ranks] likewise */
    struct buffer line;
    int fd;
    char path[FSIO_PATH_MAX];
    double step_s_mean; /* of this attempt, for the ETA, as what follows */
    double last_s;      /* clock_now() at the last step's end; 0: none */
    double between_s;   /* of all steps but the first: evaluations, checkpoints
                           and what else came before them */
    double steps_s;     /* those steps themselves */
    int64_t steps;
};

static void metrics_destroy(void *self)
{
    struct on_metrics *metrics = self;
    fsio_close(metrics->fd);
    free(metrics->expert_counts);
    free(metrics->work_s);
    buffer_free(&metrics->line);
}

static enum err metrics_create(void *self, const struct run *run)
{
    struct on_metrics *metrics = self;
    size_t experts = run->now.record.expert_count;
    metrics->run = run;
    metrics->fd = -1;
    TRY(lines_open(run->settings.run.dir, "metrics.jsonl", metrics->path,
                   &metrics->fd));
    TRY(new_room(&metrics->work_s, (size_t)run->ranks));
    return experts > 0 ? new_room(&metrics->expert_counts, experts) : ERR_OK;
}

/* The step's utilization; null: the machine's peak is not known. */
static void format_mfu(const struct step_record *step, char *out, size_t size)
{
    if (step->peak_flops <= 0.0)
        snprintf(out, size,
                 "\"mfu\": null, \"mfu_causal\": null, \"peak_flops\": null, "
                 "\"peak_source\": null");
    else
        snprintf(out, size,
                 "\"mfu\": %.4g, \"mfu_causal\": %.4g, \"peak_flops\": %.4g, "
                 "\"peak_source\": \"%s\"",
                 step->mfu, step->mfu_causal, step->peak_flops,
                 step->peak_source);
}

/* Tokens per expert, of all blocks, relative to an even share: 1 is even. */
struct spread {
    double min, median, max, std;
};

static struct spread spread_of(const struct on_metrics *metrics,
                               const struct step_record *step)
{
    int64_t *counts = metrics->expert_counts;
    size_t count = step->expert_count;
    double mean = 0.0, variance = 0.0;
    assert(count > 0 && counts != NULL && step->expert_counts != NULL);
    memcpy(counts, step->expert_counts, count * sizeof counts[0]);
    qsort(counts, count, sizeof counts[0], array_order_i64);
    for (size_t i = 0; i < count; i++)
        mean += (double)counts[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        variance += ((double)counts[i] - mean) * ((double)counts[i] - mean) /
                    (double)count;
    return (struct spread){ .min = (double)counts[0] / mean,
                            .median = (double)counts[count / 2] / mean,
                            .max = (double)counts[count - 1] / mean,
                            .std = sqrt(variance) / mean };
}

/* Empty without experts. */
static void format_experts(const struct on_metrics *metrics,
                           const struct step_record *step, char *out,
                           size_t size)
{
    out[0] = '\0';
    if (step->expert_count == 0)
        return;
    char balance[JSONTEXT_NUMBER_BYTES];
    struct spread spread = spread_of(metrics, step);
    jsontext_number(step->balance_loss, balance);
    snprintf(out, size,
             ", \"balance_loss\": %s, \"expert_min\": %.4g, "
             "\"expert_median\": %.4g, \"expert_max\": %.4g, "
             "\"expert_std\": %.4g",
             balance, spread.min, spread.median, spread.max, spread.std);
}

/* When the step ended, and how the ranks' times of it differ. */
static void format_times(const struct on_metrics *metrics,
                         const struct step_record *step, char *out, size_t size)
{
    const struct step_rank *ranks = step->of_rank;
    double shortest_s = INFINITY, longest_s = 0.0, least_s = INFINITY;
    double most_s = -INFINITY, *work_s = metrics->work_s;
    int slowest = 0, waiting = 0, loader = 0;
    assert(step->ranks > 0);
    for (int r = 0; r < step->ranks; r++) {
        work_s[r] = step_record_work_s(&ranks[r]);
        shortest_s = fmin(shortest_s, ranks[r].step_s);
        longest_s = fmax(longest_s, ranks[r].step_s);
        least_s = fmin(least_s, work_s[r]);
        slowest = work_s[r] > most_s ? r : slowest;
        most_s = fmax(most_s, work_s[r]);
        waiting = ranks[r].wait_s > ranks[waiting].wait_s ? r : waiting;
        loader = ranks[r].loader_s > ranks[loader].loader_s ? r : loader;
    }
    snprintf(out, size, ", \"time\": %.3f, \"loader_ms\": %.3f", clock_wall(),
             ranks[loader].loader_s * 1e3);
    if (step->ranks > 1)
        clean_join(out, size, "",
                   ", \"step_ms_min\": %.3f, \"step_ms_max\": %.3f, "
                   "\"work_ms_min\": %.3f, \"work_ms_median\": %.3f, "
                   "\"work_ms_max\": %.3f, \"slowest_rank\": %d, "
                   "\"wait_ms_max\": %.3f, \"waiting_rank\": %d, "
                   "\"loader_rank\": %d",
                   shortest_s * 1e3, longest_s * 1e3, least_s * 1e3,
                   real_median_lower(work_s, step->ranks) * 1e3, most_s * 1e3,
                   slowest, ranks[waiting].wait_s * 1e3, waiting, loader);
}

/* Who computes and sends, where several can: for a device. Else empty. */
static void format_hardware(const struct on_metrics *metrics, char *out,
                            size_t size)
{
    struct kernel_chosen chosen;
    char exchange[64];
    out[0] = '\0';
    if (metrics->run->engine.kernels->chosen == NULL)
        return;
    metrics->run->engine.kernels->chosen(&chosen);
    replica_exchange(metrics->run->engine.replica, exchange, sizeof exchange);
    snprintf(out, size,
             ", \"exchange\": \"%s\", \"attention\": \"%s\", "
             "\"products\": \"%s\"",
             exchange, chosen.attention, chosen.products);
}

/* Positions that came of each data set of a mixture; empty without one, and
 * where the order does not count. Names need no escapes. */
static void format_streams(const struct run *run,
                           const struct step_record *step, char *out,
                           size_t size)
{
    int64_t counts[STREAMS_MAX];
    const struct train_settings *s = &run->settings;
    out[0] = '\0';
    if (s->data.mixture[0] == '\0' ||
        !order_read(run->inputs.order, trainer_rollback_read(run, step->step),
                    counts))
        return;
    for (int i = 0; i < run->inputs.train_count; i++)
        clean_join(out, size, ", ", "%s\"%s\": %lld",
                   i == 0 ? ", \"stream_tokens\": {" : "",
                   run->inputs.sets->text.entries[i].name,
                   (long long)(counts[i] * s->data.seq_len));
    clean_join(out, size, "", "}");
}

/* What other listeners have measured, under its names. */
static enum err add_others(struct buffer *line,
                           const struct tracking_record *others)
{
    char text[TRACKING_NAME_BYTES + 64];
    for (int i = 0; i < others->count; i++) {
        const struct tracking_scalar *scalar = &others->scalars[i];
        char number[JSONTEXT_NUMBER_BYTES];
        jsontext_number(scalar->value, number);
        int bytes =
            snprintf(text, sizeof text, ", \"%s\": %s", scalar->name, number);
        TRY(buffer_add(line, text, (size_t)bytes));
    }
    return buffer_add(line, "}", 2);
}

static enum err write_line(struct on_metrics *metrics,
                           const struct step_record *step)
{
    char streams[STREAMS_MAX * (MIXTURE_NAME_BYTES + 32)];
    char line[1280 + sizeof streams], mfu[160], times[384], experts[224];
    char hardware[192], loss[JSONTEXT_NUMBER_BYTES];
    char norm[JSONTEXT_NUMBER_BYTES], lr[JSONTEXT_NUMBER_BYTES];
    jsontext_number(step->loss, loss);
    jsontext_number(step->grad_norm, norm);
    jsontext_number(step->lr, lr);
    format_mfu(step, mfu, sizeof mfu);
    format_times(metrics, step, times, sizeof times);
    format_experts(metrics, step, experts, sizeof experts);
    format_hardware(metrics, hardware, sizeof hardware);
    format_streams(metrics->run, step, streams, sizeof streams);
    snprintf(line, sizeof line,
             "{\"attempt\": %d, \"step\": %lld, \"tokens\": %lld, "
             "\"loss\": %s, \"lr\": %s, \"grad_norm\": %s, "
             "\"step_ms\": %.3f, \"tokens_per_s\": %.1f, "
             "%s%s%s%s%s",
             step->attempt, (long long)step->step, (long long)step->tokens,
             loss, lr, norm, step->step_s * 1e3, step->tokens_per_s, mfu, times,
             experts, hardware, streams);
    metrics->line.bytes = 0;
    TRY(buffer_add(&metrics->line, line, strlen(line)));
    TRY(add_others(&metrics->line, tracking_list_record(step->scalars)));
    return lines_append(metrics->fd, metrics->path,
                        (const char *)metrics->line.data);
}

static void tell_streams(const struct run *run, const struct step_record *step)
{
    int64_t counts[STREAMS_MAX];
    char name[MIXTURE_NAME_BYTES + 16];
    const struct train_settings *s = &run->settings;
    if (s->data.mixture[0] == '\0' ||
        !order_read(run->inputs.order, trainer_rollback_read(run, step->step),
                    counts))
        return;
    for (int i = 0; i < run->inputs.train_count; i++) {
        snprintf(name, sizeof name, "data/%s/tokens",
                 run->inputs.sets->text.entries[i].name);
        tracking_list_add(step->scalars, name,
                          (double)(counts[i] * s->data.seq_len));
    }
}

/* The line's figures, by the names that trackers have them under. */
static void tell_trackers(const struct on_metrics *metrics,
                          const struct step_record *step)
{
    struct tracking_list *list = step->scalars;
    double samples = (double)metrics->run->settings.train.global_batch;
    double ranks = step->ranks;
    tracking_list_add(list, "train/loss", step->loss);
    tracking_list_add(list, "train/lr", step->lr);
    tracking_list_add(list, "train/grad_norm", step->grad_norm);
    tracking_list_add(list, "train/tokens", (double)step->tokens);
    tracking_list_add(list, "throughput/batches_per_sec", 1.0 / step->step_s);
    tracking_list_add(list, "throughput/samples_per_sec",
                      samples / step->step_s);
    tracking_list_add(list, "throughput/tokens_per_sec", step->tokens_per_s);
    tracking_list_add(list, "throughput/device/tokens_per_sec",
                      step->tokens_per_s / ranks);
    if (step->peak_flops > 0.0) {
        tracking_list_add(list, "throughput/device/mfu", step->mfu);
        tracking_list_add(list, "throughput/device/mfu_causal",
                          step->mfu_causal);
    }
    tracking_list_add(list, "time/step", step->step_s);
    tracking_list_add(list, "time/loader", step->loader_s);
    tracking_list_add(list, "time/train", step->elapsed_s);
    tell_streams(metrics->run, step);
    if (step->expert_count == 0)
        return;
    struct spread spread = spread_of(metrics, step);
    tracking_list_add(list, "train/balance_loss", step->balance_loss);
    tracking_list_add(list, "experts/min", spread.min);
    tracking_list_add(list, "experts/median", spread.median);
    tracking_list_add(list, "experts/max", spread.max);
    tracking_list_add(list, "experts/std", spread.std);
}

/* How long steps take, and what has come between them so far. */
static void take_time(struct on_metrics *metrics,
                      const struct step_record *step)
{
    double now_s = clock_now();
    assert(step->rank == 0 && step->step_s >= 0.0);
    metrics->step_s_mean =
        metrics->step_s_mean == 0.0
            ? step->step_s
            : 0.9 * metrics->step_s_mean + 0.1 * step->step_s;
    if (metrics->last_s > 0.0) {
        metrics->between_s += fmax(now_s - metrics->last_s - step->step_s, 0.0);
        metrics->steps_s += step->step_s;
        metrics->steps++;
    }
    metrics->last_s = now_s;
}

/* Seconds until the run is at its end, with as much between steps as so far. */
static double remaining_s(const struct on_metrics *metrics,
                          const struct step_record *step)
{
    double between_s =
        metrics->steps > 0 ? metrics->between_s / (double)metrics->steps : 0.0;
    if (step->max_steps >= 0)
        return (double)(step->max_steps - step->step) *
               (metrics->step_s_mean + between_s);
    double left_s =
        trainer_schedule_max_duration(&metrics->run->settings).value -
        step->elapsed_s;
    double more =
        metrics->steps > 0 ? metrics->between_s / metrics->steps_s : 0.0;
    return fmax(left_s, 0.0) * (1.0 + more);
}

static void print_progress(const struct on_metrics *metrics,
                           const struct step_record *step)
{
    char eta[32];
    char rate[32];
    char total[32] = "";
    units_count(step->tokens_per_s, rate, sizeof rate);
    units_seconds(remaining_s(metrics, step), eta, sizeof eta);
    if (step->max_steps >= 0)
        snprintf(total, sizeof total, "/%lld", (long long)step->max_steps);
    log_info("step %lld%s loss %.4f lr %.3g norm %.3g %s tok/s eta %s",
             (long long)step->step, total, step->loss, step->lr,
             step->grad_norm, rate, eta);
}

static enum err metrics_handle(void *self, enum event event,
                               const struct step_record *step,
                               struct asks *asks)
{
    struct on_metrics *metrics = self;
    (void)event;
    (void)asks;
    take_time(metrics, step);
    if (!step_record_logs(step))
        return ERR_OK;
    tracking_list_add(step->scalars, "train/loss_tokens",
                      (double)step->loss_tokens);
    tracking_list_add(step->scalars, "time/remaining",
                      remaining_s(metrics, step));
    print_progress(metrics, step);
    TRY(write_line(metrics, step));
    tell_trackers(metrics, step);
    return ERR_OK;
}

const struct listener_ops on_metrics_ops = { LISTENER_OF(struct on_metrics),
                                             .create = metrics_create,
                                             .destroy = metrics_destroy,
                                             .handle = metrics_handle };
