/* The reader of run directories on files made by hand: steps that were done
 * again, torn and foreign lines, files that grow, and an account of time that
 * adds up to the wall time exactly. */
#include <stdarg.h>

#include "src/base/fsio.h"
#include "src/report/line_tail.h"
#include "src/report/run_history.h"
#include "tests/tap.h"

static char dir[FSIO_PATH_MAX];

static void put(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put(const char *name, const char *format, ...)
{
    char path[FSIO_PATH_MAX];
    va_list arguments;
    fsio_path(path, "%s/%s", dir, name);
    FILE *file = fopen(path, "a");
    va_start(arguments, format);
    if (file == NULL || vfprintf(file, format, arguments) < 0 ||
        fclose(file) != 0)
        abort();
    va_end(arguments);
}

static void begin(const char *name)
{
    static char root[FSIO_PATH_MAX];
    if (root[0] == '\0') {
        const char *tmp = getenv("TMPDIR");
        fsio_path(root, "%s/test_report.%d", tmp != NULL ? tmp : "/tmp",
                  (int)getpid());
    }
    if (name == NULL) {
        fsio_remove_tree(root);
        return;
    }
    fsio_path(dir, "%s/%s", root, name);
    fsio_mkdirs(dir);
}

/* Times are seconds after this. */
#define EPOCH 1800000000

static void put_step(int attempt, long step, double loss, double time_s,
                     double step_ms)
{
    put("metrics.jsonl",
        "{\"attempt\": %d, \"step\": %ld, \"tokens\": %ld, \"loss\": %.9g, "
        "\"lr\": 0.001, \"grad_norm\": 1, \"step_ms\": %.3f, "
        "\"tokens_per_s\": 10, \"mfu\": null, \"time\": %.3f, \"loader_ms\": "
        "100}\n",
        attempt, step, step * 10, loss, step_ms, EPOCH + time_s);
}

static void put_event(const char *event, int attempt, double time_s,
                      const char *more)
{
    put("ledger.jsonl",
        "{\"event\": \"%s\", \"time\": %.3f, \"attempt\": %d%s}\n", event,
        EPOCH + time_s, attempt, more);
}

static struct run_history *read_run(void)
{
    struct run_history *history = NULL;
    if (run_history_create(dir, &history) != ERR_OK)
        tap_note("%s", err_text());
    return history;
}

static int64_t sum(const int64_t us[RUN_TIMES])
{
    int64_t total = 0;
    for (int k = 0; k < RUN_TIMES; k++)
        total += us[k];
    return total;
}

/* Two attempts; the second begins behind step 2 again and ends in order. */
static void make_two(void)
{
    put_event("start", 1, 0, ", \"ranks\": 2, \"hosts\": [\"a\", \"b\"]");
    put_event("hardware", 1, 4,
              ", \"step\": 0, \"devices\": \"\", "
              "\"threads\": 3, \"memory_planned\": 1000");
    put_step(1, 1, 5.0, 6, 1000);
    put_step(1, 2, 4.0, 7, 1000);
    put_event("commit", 1, 7.5,
              ", \"step\": 2, \"bytes\": 77, \"seconds\": "
              "0.25, \"stage_s\": 0.5");
    put_step(1, 3, 99.0, 8.5, 1000);
    put_step(1, 4, 98.0, 9.5, 1000);
    put_event("restart", 1, 20, ", \"code\": 137, \"reason\": \"killed\"");
    put_event("check", 2, 26, ", \"phase\": \"quick\", \"seconds\": 5");
    put_event("check", 2, 28, ", \"phase\": \"quick\", \"seconds\": 1.5");
    put_event("exclude", 2, 21, ", \"node\": \"b\", \"reason\": \"ECC\"");
    put_event("start", 2, 30, ", \"ranks\": 1, \"hosts\": [\"a\"]");
    put_event("hardware", 2, 31,
              ", \"step\": 2, \"devices\": \"\", "
              "\"threads\": 4, \"memory_planned\": 2000");
    put_step(2, 3, 3.0, 34, 1000);
    put("eval.jsonl", "{\"attempt\": 2, \"step\": 3, \"eval_loss\": 2.5, "
                      "\"tokens\": 5, \"seconds\": 0.75}\n");
    put_step(2, 4, 2.0, 36, 1000);
    put_event("commit", 2, 37,
              ", \"step\": 4, \"bytes\": 78, \"seconds\": "
              "0.5, \"stage_s\": 0.25");
    put_event("memory", 2, 37, ", \"planned\": 2000, \"peak\": 1500");
    put_event("stop", 2, 38,
              ", \"step\": 4, \"code\": 0, \"reason\": "
              "\"max_duration reached\"");
}

static void check_two(const struct run_history *h)
{
    tap_is_int((long long)h->recent_count, 4, "four steps count");
    tap_is_close(h->recent[2].of[RUN_LOSS], 3.0, 0, "the last values win");
    tap_is_close(h->recent[3].of[RUN_LOSS], 2.0, 0, "... of each step");
    tap_is_int(h->replayed_steps, 2, "two steps were done again");
    tap_is_int(h->last_step, 4, "the last step");
    tap_is_int((long long)h->attempt_count, 2, "two attempts");
    tap_is_int(h->end_us - h->begin_us, 38000000, "wall time");
    tap_is_int(sum(h->time_us), 38000000, "the account adds up to it");
    tap_is_int(h->time_us[RUN_TIME_WASTED], 1800000,
               "two steps' training is lost");
    tap_is_int(h->time_us[RUN_TIME_TRAINING], 3600000, "four are left");
    tap_is_int(h->time_us[RUN_TIME_DATA], 600000, "waiting for samples");
    tap_is_int(h->time_us[RUN_TIME_INITIALIZATION], 8000000,
               "up to the first steps");
    tap_is_int(h->time_us[RUN_TIME_DETECTION], 10500000,
               "from the last sign of life to the decision");
    tap_is_int(h->time_us[RUN_TIME_CHECKS], 6500000, "two checks");
    tap_is_int(h->time_us[RUN_TIME_LAUNCH], 3500000, "to the next start");
    tap_is_int(h->time_us[RUN_TIME_CHECKPOINT], 1250000,
               "copies, and all of the last save");
    tap_is_int(h->time_us[RUN_TIME_EVALUATION], 750000, "evaluation");
    tap_is_close(run_history_goodput(h), 3.6 / 38, 1e-12, "goodput");
    tap_is_close(h->device_hours, (2 * 3 * 9.5 + 4 * 8) / 3600, 1e-12,
                 "core hours");
    tap_is_int(h->attempts[0].code, 137, "the first was killed");
    tap_is_str(h->attempts[0].reason, "killed", "... it says");
    tap_is_int(h->attempts[1].from_step, 2, "the second goes on behind 2");
    tap_is_int(h->attempts[1].memory_planned, 2000, "planned memory");
    tap_is_int(h->attempts[1].memory_peak, 1500, "and what was taken");
    tap_is_int((long long)h->event_count, 4, "restart, checks and drain");
    tap_is_str(h->events[3].node, "b", "the drained node");
    tap_is_int(h->commit_total, 2, "two commits");
    tap_is_int(h->skipped_lines, 0, "no line was passed over");
    tap_ok(h->eval_count == 1 && h->evals[0].loss == 2.5 &&
               h->evals[0].time_us == (EPOCH + 34LL) * 1000000,
           "one evaluation, in the time of its step");
}

static void test_two(void)
{
    begin("two");
    make_two();
    struct run_history *h = read_run();
    if (tap_ok(h != NULL, "a run of two attempts is read"))
        check_two(h);
    run_history_destroy(h);
}

/* With log.interval = 10: evaluations at `evals`, saves a second after each,
 * 100 steps of 0.1 s. A step ends before the evaluation at it begins. */
static struct run_history *read_sampled(const char *name, const int *evals,
                                        int count, double eval_s)
{
    double t = 2;
    begin(name);
    put_event("start", 1, 0, ", \"ranks\": 1");
    put_event("hardware", 1, 1, ", \"step\": 0");
    for (int step = 0; step <= 100; step++) {
        t += step > 0 ? 0.1 : 0;
        if (step > 0 && step % 10 == 0)
            put("metrics.jsonl",
                "{\"attempt\": 1, \"step\": %d, \"loss\": 1, \"step_ms\": 100, "
                "\"time\": %.3f}\n",
                step, EPOCH + t);
        for (int e = 0; e < count; e++) {
            if (evals[e] != step)
                continue;
            t += eval_s;
            put("eval.jsonl",
                "{\"attempt\": 1, \"step\": %d, \"eval_loss\": 2, "
                "\"seconds\": %.3f}\n",
                step, eval_s);
            if (step == 0)
                continue;
            char more[96];
            snprintf(more, sizeof more,
                     ", \"step\": %d, \"seconds\": 0.5, \"stage_s\": 0.25",
                     step);
            t += 0.25;
            put_event("commit", 1, t, more);
        }
    }
    t += evals[count - 1] == 100 ? 0.5 : 0;
    put_event("stop", 1, t, ", \"code\": 0, \"reason\": \"done\"");
    return read_run();
}

static void test_sampled(void)
{
    static const struct {
        const char *name;
        double eval_s;
        int count, evals[4];
    } cases[] = {
        { "at the end", 6, 1, { 100 } },
        { "before the first step", 6, 1, { 0 } },
        { "before the first logged step", 6, 2, { 0, 5 } },
        { "everywhere", 1.5, 4, { 0, 5, 50, 100 } },
        { "between logged steps", 3, 2, { 33, 77 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "sampled%zu", i);
        struct run_history *h =
            read_sampled(name, cases[i].evals, cases[i].count, cases[i].eval_s);
        tap_is_int(h->time_us[RUN_TIME_TRAINING], 10000000,
                   "sampled: training with evaluations %s", cases[i].name);
        tap_is_int(h->time_us[RUN_TIME_INITIALIZATION], 2000000,
                   "sampled: ... initialization");
        tap_is_int(h->time_us[RUN_TIME_EVALUATION],
                   (int64_t)(cases[i].eval_s * 1e6) * cases[i].count,
                   "sampled: ... and evaluation");
        tap_is_int(h->time_us[RUN_TIME_OTHER], 0, "sampled: ... and no rest");
        run_history_destroy(h);
    }
    int evals[101];
    for (int i = 0; i <= 100; i++)
        evals[i] = i;
    struct run_history *h = read_sampled("sampled", evals, 101, 0.5);
    tap_is_int(h->time_us[RUN_TIME_TRAINING], 10000000,
               "sampled: training with 101 evaluations");
    tap_is_int(sum(h->time_us), h->end_us - h->begin_us,
               "sampled: times add up");
    run_history_destroy(h);
}

/* A job that waited, one whose checks say more than there was, one that nobody
 * watched: the time between is divided without rest. */
static void test_between(void)
{
    begin("between");
    put_event("start", 1, 0, "");
    put_event("stop", 1, 10, ", \"code\": 85, \"reason\": \"time\"");
    put_event("requeue", 1, 12, ", \"code\": 85, \"reason\": \"time\"");
    put_event("check", 2, 100, ", \"phase\": \"job\", \"seconds\": 8");
    put_event("start", 2, 103, "");
    put_event("restart", 2, 104, ", \"code\": 1, \"reason\": \"?\"");
    put_event("check", 3, 106, ", \"phase\": \"quick\", \"seconds\": 9e9");
    put_event("start", 3, 107, "");
    put_event("stop", 3, 108, ", \"code\": 85, \"reason\": \"time\"");
    put_event("start", 4, 110, "");
    struct run_history *h = read_run();
    tap_is_int(sum(h->time_us), 110000000, "between: no rest");
    tap_is_int(h->time_us[RUN_TIME_DETECTION], 3000000, "two decisions");
    tap_is_int(h->time_us[RUN_TIME_QUEUE], 80000000, "to the first check");
    tap_is_int(h->time_us[RUN_TIME_CHECKS], 11000000, "no more than it was");
    tap_is_int(h->time_us[RUN_TIME_LAUNCH], 3000000, "of the first");
    tap_is_int(h->time_us[RUN_TIME_BETWEEN], 2000000, "nobody told");
    run_history_destroy(h);
}

/* Times and counts without measure: no share is below zero. */
static void test_absurd(void)
{
    begin("absurd");
    put_event("start", 1, 0, "");
    for (int step = 10; step <= 40; step += 10)
        put("metrics.jsonl",
            "{\"attempt\": 1, \"step\": %d, \"step_ms\": %s, \"time\": %s}\n",
            step, step == 10 ? "1e-3" : "1e9", step == 20 ? "9e10" : "1");
    put("metrics.jsonl", "{\"attempt\": 2, \"step\": 1, \"step_ms\": 1}\n");
    put("eval.jsonl", "{\"attempt\": 1, \"step\": 20, \"eval_loss\": 2, "
                      "\"seconds\": 9e10}\n");
    struct run_history *h = read_run();
    bool good = sum(h->time_us) == h->end_us - h->begin_us;
    for (int k = 0; k < RUN_TIMES; k++)
        good = good && h->time_us[k] >= 0;
    tap_ok(good, "absurd: times add up, and none is below zero");
    run_history_destroy(h);
}

/* Nobody knows how long it took. */
static void test_no_start(void)
{
    begin("nostart");
    put_event("commit", 1, 5, ", \"step\": 1, \"seconds\": 1");
    struct run_history *h = read_run();
    tap_ok(h->attempts[0].start_us == 0 && h->attempts[0].end_us == 0,
           "an attempt without a start has no end");
    tap_is_int(h->end_us, 0, "... nor has its run");
    run_history_destroy(h);
}

static void test_lines(void)
{
    static const char *const bad[] = {
        "{\"attempt\": 1, \"st",
        "",
        "null",
        "[1, 2]",
        "{\"attempt\": 1, \"step\": 2, \"loss\": 3} trailing",
        "{\"attempt\": 1, \"step\": -1}",
        "{\"attempt\": 1, \"step\": 1.5}",
        "{\"attempt\": 1, \"step\": 1e300}",
        "{\"attempt\": 0, \"step\": 1}",
        "{\"attempt\": 99999999, \"step\": 1}",
        "{\"attempt\": \"1\", \"step\": 1}",
        "{\"step\": 1}",
        "\x80\xff{}",
    };
    begin("lines");
    put_event("start", 1, 0, "");
    put("ledger.jsonl", "{\"event\": \"comm\nnot JSON\n{\"event\": 5}\n");
    put_step(1, 1, 1, 1, 10);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        put("metrics.jsonl", "%s\n", bad[i]);
    put("metrics.jsonl",
        "{\"other\": {\"step\": [7, \"}\", {}]}, \"attempt\": 1, \"step\": 2, "
        "\"loss\": nan, \"grad_norm\": 1e999, \"step_ms\": 5}\n");
    put("metrics.jsonl", "{\"attempt\": 1, \"step\": 3");
    struct run_history *h = read_run();
    tap_is_int((long long)h->recent_count, 2, "lines: the good ones count");
    /* an empty line is none */
    tap_is_int(h->skipped_lines, 12 + 3 + 1, "lines: the others are counted");
    tap_ok(isnan(h->recent[1].of[RUN_LOSS]) &&
               isnan(h->recent[1].of[RUN_GRAD_NORM]),
           "lines: what is no number is none");
    put("metrics.jsonl", ", \"loss\": 7, \"step_ms\": 5}\n");
    tap_ok(run_history_update(h) == ERR_OK && h->recent_count == 3 &&
               h->recent[2].of[RUN_LOSS] == 7,
           "lines: one that is completed later counts then");
    put_step(1, 4, 8, 9, 10);
    tap_ok(run_history_update(h) == ERR_OK && h->last_step == 4,
           "lines: what is added is read on");
    char path[FSIO_PATH_MAX], new_path[FSIO_PATH_MAX];
    put("new.cfg", "train: {\n    max_duration = \"50ba\";\n};\n");
    fsio_path(new_path, "%s/new.cfg", dir);
    fsio_path(path, "%s/config.cfg", dir);
    if (rename(new_path, path) != 0)
        abort();
    tap_ok(run_history_update(h) == ERR_OK && h->setting_count == 1 &&
               strcmp(h->settings[0].value, "\"50ba\"") == 0,
           "settings: those of the newest attempt");
    put("new.cfg", "train: {\n    max_duration = \"120ba\";\n};\n");
    if (rename(new_path, path) != 0)
        abort();
    tap_ok(run_history_update(h) == ERR_OK && h->setting_count == 1 &&
               strcmp(h->settings[0].value, "\"120ba\"") == 0,
           "settings: and of the next one");
    fsio_path(path, "%s/metrics.jsonl", dir);
    if (truncate(path, 10) != 0)
        abort();
    tap_ok(run_history_update(h) == ERR_DATA,
           "lines: a file that has become shorter is an error");
    run_history_destroy(h);
}

/* More steps than are kept one by one: a spike of one step is seen, and a run
 * that goes far back takes what it does again out of the buckets. */
static void test_many(void)
{
    const long steps = 60000, again = 30000;
    int64_t there = 0;
    double most = 0;
    begin("many");
    for (long i = 1; i <= steps; i++)
        put_step(1, i, i == 20001 ? 1.9e7 : 3, (double)i, 1000);
    for (long i = again + 1; i <= again + 10; i++)
        put_step(2, i, 2, (double)(steps + 100 + i - again), 1000);
    struct run_history *h = read_run();
    struct run_bucket *list = NULL;
    size_t count = 0;
    tap_ok(run_history_buckets(h, 500, &list, &count) == ERR_OK && count <= 500,
           "many: at most 500 buckets");
    for (size_t i = 0; i < count; i++) {
        there += list[i].steps;
        most = fmax(most, list[i].of[RUN_LOSS].max);
    }
    tap_is_close(most, 1.9e7, 0, "many: a spike of one step is seen");
    tap_is_int(h->last_step, again + 10, "many: the last step");
    tap_ok(llabs(there - (again + 10)) <= 40, "many: %lld steps are left",
           (long long)there);
    tap_is_int(there + h->replayed_steps, steps + 10, "many: none is lost");
    tap_is_int(sum(h->time_us), h->end_us - h->begin_us, "many: times add up");
    tap_is_close(list[count - 1].of[RUN_LOSS].min, 2, 0,
                 "many: the last attempt's values are there");
    free(list);
    run_history_destroy(h);
}

/* Back to the beginning after two long attempts: each has lost its own steps. */
static void test_far_back(void)
{
    const long steps = 5000;
    begin("far");
    for (int a = 1; a <= 3; a++) {
        long from = a == 2 ? steps : 0, to = a == 3 ? 10 : from + steps;
        char more[32];
        snprintf(more, sizeof more, ", \"step\": %ld", from);
        put_event("start", a, 6000 * a, "");
        put_event("hardware", a, 6000 * a, more);
        for (long i = from + 1; i <= to; i++)
            put_step(a, i, 3, (double)(6000 * a + i - from), 1000);
    }
    struct run_history *h = read_run();
    for (int a = 0; a < 2; a++) {
        tap_is_int(h->attempts[a].wasted_steps, steps,
                   "far back: attempt %d has lost its steps", a + 1);
        tap_is_int(h->attempts[a].time_us[RUN_TIME_WASTED], steps * 900000,
                   "far back: ... and their time");
        tap_is_int(h->attempts[a].time_us[RUN_TIME_TRAINING], 0,
                   "far back: ... all of it");
    }
    tap_is_int(h->replayed_steps, 2 * steps, "far back: steps done again");
    tap_is_int(h->time_us[RUN_TIME_TRAINING], 10 * 900000,
               "far back: training");
    run_history_destroy(h);
}

/* Random files: nothing breaks, and times add up. */
static void test_random(void)
{
    static const char *const words[] = {
        "start", "stop", "commit", "hardware", "restart", "exclude", "memory",
    };
    unsigned seed = 18;
    bool exact = true;
    for (int round = 0; round < 40; round++) {
        char name[32];
        snprintf(name, sizeof name, "random%d", round);
        begin(name);
        for (int i = 0; i < 200; i++) {
            int attempt = rand_r(&seed) % 6;
            double at = rand_r(&seed) % 5000;
            char more[96];
            snprintf(more, sizeof more,
                     ", \"step\": %d, \"stage_s\": %d, \"seconds\": %d",
                     rand_r(&seed) % 50, rand_r(&seed) % 9, rand_r(&seed) % 99);
            put_event(words[rand_r(&seed) % 7], attempt, at, more);
            put_step(attempt, rand_r(&seed) % 50, 1, rand_r(&seed) % 5000,
                     rand_r(&seed) % 100000);
        }
        struct run_history *h = read_run();
        exact =
            exact && h != NULL && sum(h->time_us) == h->end_us - h->begin_us;
        for (int k = 0; h != NULL && k < RUN_TIMES; k++)
            exact = exact && h->time_us[k] >= 0;
        for (size_t i = 1; h != NULL && i < h->recent_count; i++)
            exact = exact && h->recent[i].step > h->recent[i - 1].step;
        run_history_destroy(h);
    }
    tap_ok(exact, "random: times add up exactly, steps are in order");
}

static void test_none(void)
{
    struct run_history *h = NULL;
    begin("none");
    tap_ok(run_history_create(dir, &h) == ERR_DATA && h == NULL,
           "an empty folder is no run: %s", err_text());
    tap_ok(run_history_create("/nowhere/at all", &h) != ERR_OK,
           "nor is none: %s", err_text());
    begin("pipe/metrics.jsonl");
    begin("pipe");
    tap_ok(run_history_create(dir, &h) == ERR_DATA, "nor one of folders: %s",
           err_text());
}

static void test_numbers(void)
{
    static const char *const keys[] = { "a", "b" };
    static const struct {
        const char *line;
        bool good;
        double a;
    } cases[] = {
        { "{\"a\": 1}", true, 1 },
        { " { \"b\" : 2 , \"a\" : -1.5e3 } ", true, -1500 },
        { "{}", true, NAN },
        { "{\"a\": null}", true, NAN },
        { "{\"a\": \"1\"}", true, NAN },
        { "{\"a\\\"\": 1, \"aa\": 2}", true, NAN },
        { "{\"c\": {\"a\": 1}, \"d\": [[1]], \"a\": 3}", true, 3 },
        { "{\"a\": 0x10}", true, NAN },
        { "{\"a\": 1", false, 0 },
        { "{\"a\": }", false, 0 },
        { "{\"a\": \"", false, 0 },
        { "{\"a\": [}", false, 0 },
        { "{\"a\" 1}", false, 0 },
        { "{\"a\": 1 \"b\": 2}", false, 0 },
        { "\\", false, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        /* without an end behind it, so that reading on is seen */
        size_t bytes = strlen(cases[i].line);
        char *line = malloc(bytes);
        double values[2];
        memcpy(line, cases[i].line, bytes);
        bool good = line_tail_numbers(line, bytes, keys, 2, values);
        tap_ok(good == cases[i].good &&
                   (!good || values[0] == cases[i].a ||
                    (isnan(values[0]) && isnan(cases[i].a))),
               "numbers of %s", cases[i].line);
        free(line);
    }
}

int main(void)
{
    test_two();
    test_sampled();
    test_between();
    test_absurd();
    test_no_start();
    test_lines();
    test_many();
    test_far_back();
    test_random();
    test_none();
    test_numbers();
    begin(NULL);
    return tap_done();
}
