/* The listener that writes metrics.jsonl and the progress line: losses, rates
 * and utilization (MFU) of each logged step. */
#include "src/train/train_metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/lines.h"
#include "src/base/log.h"
#include "src/train/train_backend.h"
#include "src/train/train_products.h"

struct train_metrics {
    int fd;
    char path[FSIO_PATH_MAX];
    double step_s_mean; /* of this attempt, for the ETA */
    double peak_flops;  /* of a rank; 0: not known */
    const char *peak_source;
};

static void find_peak(struct train_metrics *metrics,
                      const struct trainer *trainer)
{
    const struct train_settings *s = &trainer->settings;
    const struct kernels *kernels = trainer->kernels;
    char rate[32];
    metrics->peak_flops = s->hardware.peak_flops;
    metrics->peak_source = "setting";
    if (metrics->peak_flops > 0.0)
        return;
    /* The processor's, whatever the kernel set makes of it. */
    if (strcmp(kernels->backend, "cpu") == 0 &&
        kernels_find("cpu", "auto", &kernels) != ERR_OK)
        return;
    if (kernels->peak_flops != NULL)
        metrics->peak_flops =
            kernels->peak_flops(&trainer->ctx, train_backend_dtype(s),
                                train_backend_fp8(s), &metrics->peak_source);
    units_count(metrics->peak_flops, rate, sizeof rate);
    if (metrics->peak_flops > 0.0)
        log_info("mfu is of %s FLOP/s per rank (%s)", rate,
                 metrics->peak_source);
    else
        log_info("mfu is not known: give hardware.peak_flops");
}

enum err train_metrics_create(const struct trainer *trainer,
                              struct train_metrics **out)
{
    enum err rc = ERR_OK;
    struct train_metrics *metrics = calloc(1, sizeof *metrics);
    if (metrics == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    metrics->fd = -1;
    TRY_OUT(lines_open(trainer->settings.run.dir, "metrics.jsonl",
                       metrics->path, &metrics->fd));
    find_peak(metrics, trainer);
    TRY_OUT(train_products_check(trainer));
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

/* The step's utilization by the formulas' FLOPs per sequence; null: the
 * machine's peak is not known. */
static void format_mfu(const struct train_metrics *metrics,
                       const struct trainer *trainer, char *out, size_t size)
{
    const struct train_settings *s = &trainer->settings;
    struct model_config config = train_settings_model(s);
    double peak = metrics->peak_flops * trainer->ranks;
    double sequences_per_s = (double)s->train.global_batch / trainer->step_s;
    if (peak <= 0.0)
        snprintf(out, size,
                 "\"mfu\": null, \"mfu_causal\": null, \"peak_flops\": null, "
                 "\"peak_source\": null");
    else
        snprintf(
            out, size,
            "\"mfu\": %.4g, \"mfu_causal\": %.4g, \"peak_flops\": %.4g, "
            "\"peak_source\": \"%s\"",
            model_config_flops_per_sequence(&config, s->data.seq_len) *
                sequences_per_s / peak,
            model_config_flops_per_sequence_causal(&config, s->data.seq_len) *
                sequences_per_s / peak,
            metrics->peak_flops, metrics->peak_source);
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

/* Who computes and sends, where several can: for a device. Else empty. */
static void format_hardware(const struct trainer *trainer, char *out,
                            size_t size)
{
    struct kernel_chosen chosen;
    char exchange[64];
    out[0] = '\0';
    if (trainer->kernels->chosen == NULL)
        return;
    trainer->kernels->chosen(&chosen);
    replica_exchange(trainer->replica, exchange, sizeof exchange);
    snprintf(out, size,
             ", \"exchange\": \"%s\", \"attention\": \"%s\", "
             "\"products\": \"%s\"",
             exchange, chosen.attention, chosen.products);
}

static enum err write_line(const struct train_metrics *metrics,
                           const struct trainer *trainer)
{
    char line[1024], mfu[160], experts[224], hardware[192];
    double rate = (double)trainer->rates.tokens_per_step / trainer->step_s;
    format_mfu(metrics, trainer, mfu, sizeof mfu);
    format_experts(trainer, experts, sizeof experts);
    format_hardware(trainer, hardware, sizeof hardware);
    snprintf(line, sizeof line,
             "{\"attempt\": %d, \"step\": %lld, \"tokens\": %lld, "
             "\"loss\": %.9g, \"lr\": %.9g, \"grad_norm\": %.9g, "
             "\"step_ms\": %.3f, \"tokens_per_s\": %.1f, "
             "%s%s%s}",
             trainer->attempt, (long long)trainer->step,
             (long long)trainer_tokens(trainer), trainer->loss, trainer->lr,
             trainer->grad_norm, trainer->step_s * 1e3, rate, mfu, experts,
             hardware);
    return lines_append(metrics->fd, metrics->path, line);
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
