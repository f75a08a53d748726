/* Listener: metrics.jsonl, one JSON object per logged step, and the progress
 * line on stderr. Rank 0 writes.
 *
 * Fields: attempt, step, tokens (positions so far), loss (nats per loss-bearing
 * token, %.9g), lr, grad_norm (before clipping), step_ms, tokens_per_s, mfu
 * (model FLOPs by LLM Foundry's convention / the peak of all ranks), mfu_causal
 * (with half of attention), peak_flops (of a rank) and peak_source: "setting"
 * (hardware.peak_flops) or what the kernels know (kernels.h); all four are null
 * where nobody knows the peak. Append-only; a step that is replayed after a
 * resume appears again with the same loss. */
#ifndef TESSERA_TRAIN_TRAIN_METRICS_H
#define TESSERA_TRAIN_TRAIN_METRICS_H

#include "src/base/err.h"
#include "src/train/trainer.h"

struct train_metrics;

/* Opens RUN/metrics.jsonl for appending. Finds the peak, and looks whether
 * products reach a fair part of it (train_products.h): before training, for it
 * is measured. */
enum err train_metrics_create(const struct trainer *trainer,
                              struct train_metrics **out);
void train_metrics_destroy(struct train_metrics *metrics);
struct listener train_metrics_listener(struct train_metrics *metrics);

#endif
