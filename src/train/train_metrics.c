#include "src/train/train_metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/train/train_lines.h"

struct train_metrics {
    int fd;
    char path[FSIO_PATH_MAX];
    double step_s_mean; /* of this attempt, for the ETA */
};

enum err train_metrics_create(const char *run_dir, struct train_metrics **out)
{
    enum err rc = ERR_OK;
    struct train_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    metrics->fd = -1;
    TRY(train_lines_open(run_dir, "metrics.jsonl", metrics->path,
                         &metrics->fd));
    *out = metrics;
    metrics = NULL;
out:
    train_metrics_destroy(metrics);
    return rc;
}

void train_metrics_destroy(struct train_metrics *metrics)
{
    if (metrics == NULL)
        return;
    if (metrics->fd >= 0)
        close(metrics->fd);
    free(metrics);
}

/* Of the step, by a formula's FLOPs per sequence; "null": the machine's peak is
 * not known. */
static void format_mfu(const struct trainer *trainer, double flops_per_sequence,
                       char out[32])
{
    const struct train_settings *s = &trainer->settings;
    snprintf(out, 32, "null");
    if (s->hardware.peak_flops > 0.0)
        snprintf(out, 32, "%.4g",
                 flops_per_sequence * (double)s->train.global_batch /
                     trainer->step_s /
                     (s->hardware.peak_flops * trainer->ranks));
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Tokens per expert, of all blocks, relative to an even share: 1 is even. Sorts
 * the counts. Empty without experts. */
static void format_experts(const struct trainer *trainer, char *out,
                           size_t size)
{
    const struct train_settings *s = &trainer->settings;
    int64_t *counts = trainer->expert_counts;
    size_t count = (size_t)(s->model.n_layers * s->model.experts);
    double mean = 0.0, variance = 0.0;
    out[0] = '\0';
    if (count == 0)
        return;
    qsort(counts, count, sizeof counts[0], compare);
    for (size_t i = 0; i < count; i++)
        mean += (double)counts[i] / (double)count;
    for (size_t i = 0; i < count; i++)
        variance += ((double)counts[i] - mean) * ((double)counts[i] - mean) /
                    (double)count;
    snprintf(out, size,
             ", \"balance_loss\": %.9g, \"expert_min\": %.4g, "
             "\"expert_median\": %.4g, \"expert_max\": %.4g, "
             "\"expert_std\": %.4g",
             trainer->balance_loss, (double)counts[0] / mean,
             (double)counts[count / 2] / mean, (double)counts[count - 1] / mean,
             sqrt(variance) / mean);
}

static enum err write_line(const struct train_metrics *metrics,
                           const struct trainer *trainer)
{
    char line[768], mfu[32], causal[32], experts[224];
    const struct train_settings *s = &trainer->settings;
    struct model_config config = train_settings_model(s);
    double rate = (double)trainer->rates.tokens_per_step / trainer->step_s;
    format_mfu(trainer,
               model_config_flops_per_sequence(&config, s->data.seq_len), mfu);
    format_mfu(trainer,
               model_config_flops_per_sequence_causal(&config, s->data.seq_len),
               causal);
    format_experts(trainer, experts, sizeof experts);
    int n = snprintf(line, sizeof line,
                     "{\"attempt\": %d, \"step\": %lld, \"tokens\": %lld, "
                     "\"loss\": %.9g, \"lr\": %.9g, \"grad_norm\": %.9g, "
                     "\"step_ms\": %.3f, \"tokens_per_s\": %.1f, "
                     "\"mfu\": %s, \"mfu_causal\": %s%s}\n",
                     trainer->attempt, (long long)trainer->step,
                     (long long)trainer_tokens(trainer), trainer->loss,
                     trainer->lr, trainer->grad_norm, trainer->step_s * 1e3,
                     rate, mfu, causal, experts);
    return train_lines_append(metrics->fd, metrics->path, line, (size_t)n);
}

static void print_progress(const struct train_metrics *metrics,
                           const struct trainer *trainer)
{
    char eta[32] = "?";
    char rate[32];
    char total[32] = "";
    units_count((double)trainer->rates.tokens_per_step / trainer->step_s, rate,
                sizeof rate);
    if (trainer->max_steps >= 0) {
        units_seconds((double)(trainer->max_steps - trainer->step) *
                          metrics->step_s_mean,
                      eta, sizeof eta);
        snprintf(total, sizeof total, "/%lld", (long long)trainer->max_steps);
    } else {
        units_seconds(trainer->settings.train.max_duration.value -
                          trainer->elapsed_s,
                      eta, sizeof eta);
    }
    log_info("step %lld%s loss %.4f lr %.3g norm %.3g %s tok/s eta %s",
             (long long)trainer->step, total, trainer->loss, trainer->lr,
             trainer->grad_norm, rate, eta);
}

static enum err metrics_handle(void *self, enum event event,
                               struct trainer *trainer)
{
    struct train_metrics *metrics = self;
    (void)event;
    if (trainer->rank != 0)
        return ERR_OK;
    metrics->step_s_mean =
        metrics->step_s_mean == 0.0
            ? trainer->step_s
            : 0.9 * metrics->step_s_mean + 0.1 * trainer->step_s;
    if (trainer->step % trainer->settings.log.interval != 0 &&
        !trainer->finished && trainer->stop_signal == 0)
        return ERR_OK;
    print_progress(metrics, trainer);
    return write_line(metrics, trainer);
}

/* Only rank 0 writes, so its failure must reach the others. */
static enum err metrics_agree(void *self, enum event event,
                              struct trainer *trainer)
{
    return comm_agree(trainer->comm, metrics_handle(self, event, trainer));
}

struct listener train_metrics_listener(struct train_metrics *metrics)
{
    return (struct listener){
        .name = "metrics",
        .events = EVENT_BIT(EVENT_BATCH_END),
        .handle = metrics_agree,
        .self = metrics,
    };
}
