/* Learning-rate schedules, by Composer's formulas: linear warm-up evaluated at
 * the current step (step 0 has rate 0), then with tau = (t - W) / (T - W),
 * clipped to 1 (0 if T <= W):
 *   cosine   a = af + (1 - af) (1 + cos(pi tau)) / 2
 *   linear   a = 1 + tau (af - 1)
 *   constant a = 1 */
#ifndef TESSERA_TRAIN_SCHEDULE_H
#define TESSERA_TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

enum schedule_kind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT };
static const char *const schedule_kind_names[] = { "cosine", "linear",
                                                   "constant", NULL };

struct schedule {
    enum schedule_kind kind;
    int64_t warmup; /* W, steps */
    int64_t t_max;  /* T, steps */
    double alpha_final;
};

/* The multiplier a(t) of the peak rate in `step` (0 is the first). */
double schedule_multiplier(const struct schedule *schedule, int64_t step);

#endif
