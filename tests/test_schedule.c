/* Learning-rate multipliers against hand-computed values. */
#include <stddef.h>

#include "src/train/schedule.h"
#include "tests/tap.h"

static const struct {
    struct schedule schedule;
    int64_t step;
    double want;
    const char *what;
} cases[] = {
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 0, 0.0, "warm-up starts at 0" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 50, 0.5, "half way in warm-up" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 100, 1.0, "the peak" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 550, 0.55, "cosine, half way" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 },
      325,
      0.868198051533946,
      "cosine, a quarter" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 1000, 0.1, "cosine, the end" },
    { { SCHEDULE_COSINE, 100, 1000, 0.1 }, 5000, 0.1, "beyond the end" },
    { { SCHEDULE_COSINE, 0, 10, 0.0 }, 0, 1.0, "without warm-up" },
    { { SCHEDULE_COSINE, 10, 5, 0.1 },
      20,
      1.0,
      "an end before the warm-up's: tau is 0" },
    { { SCHEDULE_LINEAR, 0, 100, 0.2 }, 50, 0.6, "linear, half way" },
    { { SCHEDULE_LINEAR, 0, 100, 0.2 }, 100, 0.2, "linear, the end" },
    { { SCHEDULE_CONSTANT, 4, 100, 0.2 }, 2, 0.5, "constant, warm-up" },
    { { SCHEDULE_CONSTANT, 4, 100, 0.2 }, 99, 1.0, "constant" },
};

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_close(schedule_multiplier(&cases[i].schedule, cases[i].step),
                     cases[i].want, 1e-12, "%s", cases[i].what);
    return tap_done();
}
