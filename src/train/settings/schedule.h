/* Learning-rate schedules: the multiplier a(t) of the peak rate as a function
 * of the step t alone, by the formulas of Composer, LLM Foundry and, for wsd,
 * llm.c and torchtitan. Each begins with a linear warm-up of W steps, a = t / W,
 * evaluated at the current step (step 0 has rate 0); of linear it rises to
 * ai, as Composer's code does, whose documentation says t / W. Then, with T = t_max,
 * tau = (t - W) / (T - W), clipped to 1 (0 if T <= W), and n = t - W, it is what
 * the formula of its row says.
 *
 * A row is S(NAME, name, formula, uses). uses: the settings of the group
 * "scheduler" that it goes by, with blanks between; name, warmup and scale have
 * a meaning for all. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCHEDULES(S)                                                           \
    S(COSINE, cosine, "af + (1 - af) (1 + cos(pi tau)) / 2",                   \
      "t_max alpha_final")                                                     \
    S(LINEAR, linear, "ai + tau (af - ai), behind a warm-up to ai",            \
      "t_max alpha_initial alpha_final")                                       \
    S(CONSTANT, constant, "1", "")                                             \
    S(POLYNOMIAL, polynomial, "af + (1 - af) (1 - tau)^power",                 \
      "t_max alpha_final power")                                               \
    S(STEP, step, "gamma^floor(n / period)", "gamma period")                   \
    S(EXPONENTIAL, exponential, "gamma^(n / period)", "gamma period")          \
    S(MULTISTEP, multistep,                                                    \
      "gamma^k, k milestones passed; they count from the run's first step",    \
      "gamma milestones")                                                      \
    S(COSINE_RESTARTS, cosine_restarts,                                        \
      "cosine from 1 to af over a cycle; the first takes period, each after "  \
      "it t_mult times as long, in whole steps",                               \
      "period t_mult alpha_final")                                             \
    S(INVERSE_SQRT, inverse_sqrt,                                              \
      "ad + (1 - ad) / sqrt((n + t_scale) / t_scale); over the last cooldown " \
      "steps before T from there linearly to af",                              \
      "t_max t_scale alpha_decay cooldown alpha_final")                        \
    S(WSD, wsd,                                                                \
      "1; over the last cooldown steps before T, r = 0 to 1 of them: "         \
      "af + (1 - af) c, where c is 1 - r (linear), 1 - sqrt(r) (sqrt) or "     \
      "(1 + cos(pi r)) / 2 (cosine)",                                          \
      "t_max cooldown cooldown_shape alpha_final")

#define SCHEDULE_KIND(NAME, ...) SCHEDULE_##NAME,
enum schedule_kind { SCHEDULES(SCHEDULE_KIND) };
#define SCHEDULE_NAME(NAME, name, ...) #name,
static const char *const schedule_kind_names[] = { SCHEDULES(SCHEDULE_NAME)
                                                       NULL };

enum cooldown_shape { COOLDOWN_LINEAR, COOLDOWN_SQRT, COOLDOWN_COSINE };
static const char *const cooldown_shape_names[] = { "linear", "sqrt", "cosine",
                                                    NULL };

#define SCHEDULE_MILESTONES 64

/* Durations are steps. What the kind does not use may be anything. */
struct schedule {
    enum schedule_kind kind;
    int64_t warmup; /* W */
    int64_t t_max;  /* T */
    double alpha_final;
    double alpha_initial;
    double alpha_decay;
    double power;
    double gamma;
    int64_t period;  /* at least 1 */
    double t_mult;   /* at least 1 */
    int64_t t_scale; /* at least 1 */
    int64_t cooldown;
    enum cooldown_shape cooldown_shape;
    int64_t milestones[SCHEDULE_MILESTONES];
    int milestone_count;
};

/* Whether the kind goes by scheduler.FIELD. */
bool schedule_uses(enum schedule_kind kind, const char *field);

/* The multiplier a(t) of the peak rate in `step` (0 is the first). */
double schedule_multiplier(const struct schedule *schedule, int64_t step);
