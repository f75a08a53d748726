/* Learning-rate multipliers against values worked out by hand, and durations of
 * settings as steps. */
#include <stddef.h>

#include "src/train/settings/schedule.h"
#include "src/train/settings/trainer_schedule.h"
#include "src/train/start/start_settings.h"
#include "tests/tap.h"

#define COSINE(...)                                                            \
    {                                                                          \
        .kind = SCHEDULE_COSINE, __VA_ARGS__                                   \
    }
#define LINEAR(...)                                                            \
    {                                                                          \
        .kind = SCHEDULE_LINEAR, .alpha_initial = 1, __VA_ARGS__               \
    }
#define POLYNOMIAL                                                             \
    {                                                                          \
        .kind = SCHEDULE_POLYNOMIAL, .t_max = 100, .power = 2,                 \
        .alpha_final = 0.2                                                     \
    }
#define STEPS(...)                                                             \
    {                                                                          \
        .kind = SCHEDULE_STEP, .gamma = 0.5, .period = 10, __VA_ARGS__         \
    }
#define EXPONENTIAL(...)                                                       \
    {                                                                          \
        .kind = SCHEDULE_EXPONENTIAL, .gamma = 0.25, .period = 10, __VA_ARGS__ \
    }
#define MULTISTEP(...)                                                         \
    {                                                                          \
        .kind = SCHEDULE_MULTISTEP, .gamma = 0.1, .milestones = { 20, 30 },    \
        .milestone_count = 2, __VA_ARGS__                                      \
    }
#define RESTARTS(...)                                                          \
    {                                                                          \
        .kind = SCHEDULE_COSINE_RESTARTS, .period = 10, __VA_ARGS__            \
    }
#define INVERSE                                                                \
    {                                                                          \
        .kind = SCHEDULE_INVERSE_SQRT, .warmup = 10, .t_max = 200,             \
        .t_scale = 10, .cooldown = 40, .alpha_decay = 0.2, .alpha_final = 0.1  \
    }
#define WSD(shape)                                                             \
    {                                                                          \
        .kind = SCHEDULE_WSD, .warmup = 10, .t_max = 100, .cooldown = 16,      \
        .alpha_final = 0.2, .cooldown_shape = COOLDOWN_##shape                 \
    }

/* clang-format off */
static const struct {
    struct schedule schedule;
    int64_t step;
    double want;
    const char *what;
} cases[] = {
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 0, 0.0,
      "warm-up starts at 0" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 50, 0.5,
      "half way in warm-up" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 100, 1.0,
      "the peak" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 550, 0.55,
      "cosine, half way" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 325,
      0.868198051533946, "cosine, a quarter" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 1000, 0.1,
      "cosine, the end" },
    { COSINE(.warmup = 100, .t_max = 1000, .alpha_final = 0.1), 5000, 0.1,
      "beyond the end" },
    { COSINE(.t_max = 10), 0, 1.0, "without warm-up" },
    { COSINE(.warmup = 10, .t_max = 5, .alpha_final = 0.1), 20, 1.0,
      "an end before the warm-up's: tau is 0" },
    { LINEAR(.t_max = 100, .alpha_final = 0.2), 50, 0.6, "linear, half way" },
    { LINEAR(.t_max = 100, .alpha_final = 0.2), 100, 0.2, "linear, the end" },
    { { .kind = SCHEDULE_LINEAR, .alpha_initial = 0.5, .alpha_final = 0.1,
        .t_max = 100, .warmup = 20 }, 60, 0.3, "linear from 0.5" },
    { { .kind = SCHEDULE_LINEAR, .alpha_initial = 0.5, .alpha_final = 0.1,
        .t_max = 100, .warmup = 20 }, 10, 0.25, "to which its warm-up goes" },
    { { .kind = SCHEDULE_CONSTANT, .warmup = 4 }, 2, 0.5, "constant, warm-up" },
    { { .kind = SCHEDULE_CONSTANT, .warmup = 4 }, 99, 1.0, "constant" },
    { POLYNOMIAL, 50, 0.4, "polynomial, half way" },
    { POLYNOMIAL, 100, 0.2, "polynomial, the end" },
    { STEPS(.warmup = 0), 9, 1.0, "step, before the first drop" },
    { STEPS(.warmup = 0), 10, 0.5, "step, the first drop" },
    { STEPS(.warmup = 0), 35, 0.125, "step, three drops" },
    { STEPS(.warmup = 5), 14, 1.0, "step, counted from the warm-up's end" },
    { EXPONENTIAL(.warmup = 0), 5, 0.5, "exponential, half a period" },
    { EXPONENTIAL(.warmup = 5), 15, 0.25, "exponential, a period" },
    { { .kind = SCHEDULE_EXPONENTIAL, .period = 1 }, 0, 1.0, "exponential, 0^0" },
    { MULTISTEP(.warmup = 4), 19, 1.0, "multistep, before the first" },
    { MULTISTEP(.warmup = 4), 20, 0.1, "multistep, at a milestone" },
    { MULTISTEP(.warmup = 4), 99, 0.01, "multistep, both" },
    { RESTARTS(.t_mult = 1), 5, 0.5, "restarts, half a cycle" },
    { RESTARTS(.t_mult = 1), 1000000000010, 1.0, "restarts, much later" },
    { RESTARTS(.t_mult = 1), 1000000000015, 0.5, "restarts, half of that" },
    { RESTARTS(.t_mult = 2), 10, 1.0, "restarts, the second cycle" },
    { RESTARTS(.t_mult = 2), 20, 0.5, "restarts, half of that" },
    { RESTARTS(.t_mult = 2), 50, 0.5, "restarts, half of the third" },
    { RESTARTS(.t_mult = 1.55), 30, 0.88785564535221,
      "restarts, cycles of 10, 15 and 23 whole steps" },
    { RESTARTS(.t_mult = 1.05), 33, 0.793892626146237,
      "restarts, a cycle that is too short to grow" },
    { RESTARTS(.t_mult = 1e6), INT64_MAX / 2, 0.552, "restarts, a long one" },
    { INVERSE, 10, 1.0, "inverse square root, the peak" },
    { INVERSE, 40, 0.6, "inverse square root, a half" },
    { INVERSE, 90, 0.2 + 0.8 / 3, "inverse square root, a third" },
    { INVERSE, 160, 0.4, "inverse square root, its cooldown" },
    { INVERSE, 180, 0.25, "inverse square root, half of that" },
    { INVERSE, 200, 0.1, "inverse square root, the end" },
    { INVERSE, 900, 0.1, "inverse square root, beyond" },
    { WSD(LINEAR), 5, 0.5, "wsd, warm-up" },
    { WSD(LINEAR), 84, 1.0, "wsd, stable" },
    { WSD(LINEAR), 88, 0.8, "wsd, linear" },
    { WSD(SQRT), 88, 0.6, "wsd, square root" },
    { WSD(COSINE), 92, 0.6, "wsd, cosine" },
    { WSD(SQRT), 100, 0.2, "wsd, the end" },
    { { .kind = SCHEDULE_WSD, .t_max = 100 }, 99, 1.0, "wsd, no cooldown" },
};
/* clang-format on */

#define BASE                                                                   \
    "run.dir=/r", "data.train=/d", "train.global_batch=4", "data.seq_len=8"

static enum err load(const char *text, struct train_settings *s)
{
    char words[512];
    char *list[16] = { BASE };
    int count = 4;
    char *rest = NULL;
    snprintf(words, sizeof words, "%s", text);
    for (char *word = strtok_r(words, ";", &rest); word != NULL && count < 16;
         word = strtok_r(NULL, ";", &rest))
        list[count++] = word;
    return start_settings_load(NULL, list, count, s);
}

/* Steps and multipliers of settings, in a data set of 100 samples. */
static const struct {
    const char *settings;
    int64_t max_steps, step;
    double want;
} runs[] = {
    { "train.max_duration=100ba;scheduler.name=linear;scheduler.scale=0.5", 50,
      25, 0.55 },
    { "train.max_duration=100ba;scheduler.name=linear;scheduler.scale=0.29;"
      "scheduler.warmup=10ba",
      29, 10, 1.0 },
    { "train.max_duration=100ba;scheduler.scale=0.5;scheduler.warmup=10ba;"
      "scheduler.scale_warmup=true",
      50, 4, 0.8 },
    { "train.max_duration=100ba;scheduler.scale=0.5;scheduler.t_max=100ba;"
      "scheduler.name=linear;scheduler.alpha_final=0",
      50, 25, 0.5 },
    { "train.max_duration=15ba;scheduler.scale=0.5;scheduler.name=constant", 7,
      3, 1.0 },
    { "train.max_duration=2ep;scheduler.name=multistep;"
      "scheduler.milestones= 10ba\t1ep  40ba;scheduler.gamma=0.5",
      50, 30, 0.25 },
    { "train.max_duration=1h;scheduler.name=step;scheduler.period=5ba;"
      "scheduler.scale=2",
      -1, 10, 0.1 },
    { "train.max_duration=100ba;scheduler.name=inverse_sqrt;"
      "scheduler.warmup=10ba",
      100, 40, 0.5 },
    { "train.max_duration=100ba;scheduler.name=wsd", 100, 90, 0.55 },
};

static void test_runs(struct train_settings *s)
{
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        struct trainer_schedule plan = { 0 };
        enum err rc = load(runs[i].settings, s);
        if (rc == ERR_OK)
            rc = trainer_schedule(s, 100, &plan);
        if (rc == ERR_OK)
            rc = trainer_schedule_check(s, &plan);
        tap_ok(rc == ERR_OK && plan.max_steps == runs[i].max_steps,
               "%lld steps of %s", (long long)plan.max_steps, runs[i].settings);
        if (rc != ERR_OK)
            tap_note("%s", err_text());
        tap_is_close(schedule_multiplier(&plan.schedule, runs[i].step),
                     runs[i].want, 1e-12, "its rate");
    }
}

/* What is refused, and what the text must name. */
static const struct {
    const char *settings, *names;
} wrong[] = {
    { "train.max_duration=10ba;scheduler.name=step", "scheduler.period" },
    { "train.max_duration=10ba;scheduler.name=multistep",
      "scheduler.milestones" },
    { "train.max_duration=10ba;scheduler.name=multistep;"
      "scheduler.milestones=5ba 6bo",
      "6bo" },
    { "train.max_duration=10ba;scheduler.name=multistep;"
      "scheduler.milestones=5sec",
      "speed" },
    { "train.max_duration=1h;scheduler.name=wsd;scheduler.t_max=10ba",
      "scheduler.cooldown" },
    { "train.max_duration=10ba;scheduler.name=inverse_sqrt",
      "scheduler.t_scale" },
    { "train.max_duration=10ba;scheduler.name=inverse_sqrt;"
      "scheduler.warmup=1ba;scheduler.alpha_final=0.1",
      "scheduler.alpha_decay" },
    { "train.max_duration=10ba;scheduler.name=wsd;scheduler.warmup=9ba",
      "scheduler.warmup" },
    { "train.max_duration=10ba;scheduler.scale=0.01", "less than a step" },
    { "train.max_duration=10ba;scheduler.t_max=1sec", "speed" },
};

static void test_wrong(struct train_settings *s)
{
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct trainer_schedule plan = { 0 };
        enum err rc = load(wrong[i].settings, s);
        if (rc == ERR_OK)
            rc = trainer_schedule(s, 100, &plan);
        if (rc == ERR_OK)
            rc = trainer_schedule_check(s, &plan);
        tap_ok(rc == ERR_USAGE && strstr(err_text(), wrong[i].names) != NULL,
               "refused: %s", wrong[i].settings);
        if (rc != ERR_USAGE || strstr(err_text(), wrong[i].names) == NULL)
            tap_note("%s", rc == ERR_OK ? "it was taken" : err_text());
    }
}

struct told {
    const char *key;
    int lines, of_key;
};

static void count_line(void *arg, const char *text)
{
    struct told *told = arg;
    told->lines++;
    told->of_key += strncmp(text, told->key, strlen(told->key)) == 0;
}

/* Whether it is told that the setting changes nothing; *lines: of how many. */
static bool unused(const struct train_settings *s, const char *key, int *lines)
{
    const struct start_idle run = { .settings = s };
    struct told told = { .key = key };
    start_idle(&run, count_line, &told);
    *lines = told.lines;
    return told.of_key == 1;
}

static void test_unused(struct train_settings *s)
{
    int lines = 0;
    tap_ok(load("train.max_duration=9ba;scheduler.gamma=0.5;"
                "scheduler.power=3;scheduler.scale_warmup=true",
                s) == ERR_OK &&
               unused(s, "scheduler.gamma", &lines) &&
               unused(s, "scheduler.power", &lines) &&
               unused(s, "scheduler.scale_warmup", &lines) && lines == 3,
           "what cosine does not use is told");
    tap_ok(load("train.max_duration=9ba;scheduler.name=polynomial;"
                "scheduler.power=3;scheduler.t_max=8ba",
                s) == ERR_OK &&
               !unused(s, "scheduler.power", &lines) && lines == 0,
           "what polynomial uses is not");
    tap_ok(load("train.max_duration=9ba;scheduler.name=inverse_sqrt;"
                "scheduler.warmup=1ba",
                s) == ERR_OK &&
               s->scheduler.alpha_final == 0.0 &&
               !unused(s, "scheduler", &lines) && lines == 0,
           "inverse_sqrt goes to 0");
}

static void test_again(struct train_settings *s)
{
    static struct train_settings old;
    struct trainer_schedule was, is;
    char text[256];
    bool loaded =
        load("train.max_duration=9ba;scheduler.name=polynomial", &old) ==
            ERR_OK &&
        load("train.max_duration=12ba;scheduler.power=3;optimizer.lr=1e-3",
             s) == ERR_OK &&
        trainer_schedule(&old, 100, &was) == ERR_OK &&
        trainer_schedule(s, 100, &is) == ERR_OK;
    trainer_schedule_again(&old, &was, s, &is, text, sizeof text);
    tap_ok(loaded && strcmp(text, " scheduler.name=polynomial "
                                  "scheduler.t_max=9ba scheduler.power=2 "
                                  "optimizer.lr=0.0006") == 0,
           "what gives the curve again:%s", text);
}

int main(void)
{
    static struct train_settings s;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (cases[i].step < INT64_MAX / 4)
            tap_is_close(schedule_multiplier(&cases[i].schedule, cases[i].step),
                         cases[i].want, 1e-12, "%s", cases[i].what);
        else
            tap_ok(schedule_multiplier(&cases[i].schedule, cases[i].step) <= 1,
                   "%s", cases[i].what);
    test_runs(&s);
    test_wrong(&s);
    test_unused(&s);
    test_again(&s);
    return tap_done();
}
