/* checkpoint.interval = "auto": when saves are due, from their costs and from a
 * ledger. */
#include "src/train/state/on_checkpoint_parts.h"

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "tests/tap.h"

#define FAR_STEPS 1000000000000

/* `nodes` hosts, `attempts` of an hour each; all but the last have died. */
static enum err write_ledger(const char *dir, int nodes, int attempts)
{
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/ledger.jsonl", dir) != ERR_OK)
        return ERR_INTERNAL;
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return err_errno("%s", path);
    for (int i = 0; i < attempts; i++) {
        double start_s = 1e9 + 3600.0 * i;
        fprintf(file, "{\"event\": \"start\", \"time\": %.1f, \"hosts\": [",
                start_s);
        for (int node = 0; node < nodes; node++)
            fprintf(file, "%s\"node%d\"", node == 0 ? "" : ", ", node);
        fprintf(file, "]}\n{\"event\": \"commit\", \"time\": %.1f}\n",
                start_s + 3600);
    }
    return fclose(file) == 0 ? ERR_OK : err_errno("%s", path);
}

/* The first step from `from` on at which a save is due; FAR_STEPS: none. */
static int64_t first_due(const struct on_checkpoint_interval *interval,
                         int64_t from)
{
    int64_t low = from, high = FAR_STEPS;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (on_checkpoint_interval_due(interval, middle))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct save {
    enum ckpt_phase phase;
    double stage_s, stall_s, save_s;
};

/* Steps from a save at step 100 to the next. */
static int64_t after_save(struct on_checkpoint_interval *interval,
                          struct save save)
{
    struct ckpt_progress progress = { .phase = save.phase,
                                      .step = 100,
                                      .stage_s = save.stage_s,
                                      .total_s = save.save_s };
    on_checkpoint_interval_started(interval);
    on_checkpoint_interval_ended(interval, &progress, save.stall_s);
    return first_due(interval, 100) - 100;
}

static struct on_checkpoint_interval *make(const char *dir, double step_s)
{
    struct on_checkpoint_interval *interval = NULL;
    if (on_checkpoint_interval_create(dir, &interval) != ERR_OK)
        abort();
    on_checkpoint_interval_begin(interval, 0);
    for (int i = 0; i < 20; i++)
        on_checkpoint_interval_step(interval, i == 7 ? 100 * step_s : step_s);
    return interval;
}

/* What Young's formula says, which for small costs is exact enough. */
static void test_lengths(const char *dir)
{
    static const struct {
        const char *name;
        int nodes, attempts;
        double step_s;
        struct save save;
        double want_s; /* exact to 1 % and a step */
    } table[] = {
        { "no failure: 6001 hours", 1, 1, 0.5, TUPLE(CKPT_COMMITTED, 1, 1, 2),
          6572.8 },
        { "the stall is larger than the copy", 1, 1, 0.5,
          TUPLE(CKPT_COMMITTED, 1, 4, 8), 13145.6 },
        { "not staged: all of it is the cost", 1, 1, 0.5,
          TUPLE(CKPT_COMMITTED, 0, 0, 4), 13145.6 },
        { "four nodes", 4, 1, 0.5, TUPLE(CKPT_COMMITTED, 1, 1, 2), 3286.9 },
        { "99 failures: 61 hours", 1, 100, 0.5, TUPLE(CKPT_COMMITTED, 1, 1, 2),
          662.6 },
        { "a long save: 1.1 times it", 1, 1, 0.5,
          TUPLE(CKPT_COMMITTED, 1, 1, 20000), 22000 },
        { "a costly save: 10 times it", 1000, 100, 0.5,
          TUPLE(CKPT_COMMITTED, 100, 100, 100), 1000 },
        { "steps longer than the interval", 1, 1, 1e5,
          TUPLE(CKPT_COMMITTED, 1, 1, 2), 1e5 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (write_ledger(dir, table[i].nodes, table[i].attempts) != ERR_OK)
            abort();
        struct on_checkpoint_interval *interval = make(dir, table[i].step_s);
        double got_s =
            (double)after_save(interval, table[i].save) * table[i].step_s;
        tap_ok(fabs(got_s - table[i].want_s) <=
                   0.01 * table[i].want_s + table[i].step_s,
               "%s: %g s, got %g s", table[i].name, table[i].want_s, got_s);
        on_checkpoint_interval_destroy(interval);
    }
}

static void test_order(const char *dir)
{
    if (write_ledger(dir, 1, 1) != ERR_OK)
        abort();
    struct on_checkpoint_interval *interval = make(dir, 0.5);
    on_checkpoint_interval_begin(interval, 40);
    int64_t first = 40 + ON_CHECKPOINT_INTERVAL_FIRST_STEPS;
    tap_is_int(first_due(interval, 0), first, "the first save is soon");
    on_checkpoint_interval_started(interval);
    tap_is_int(first_due(interval, 0), FAR_STEPS,
               "none while one is in flight");
    tap_is_int(after_save(interval, (struct save){ CKPT_FAILED, 9, 9, 9 }),
               ON_CHECKPOINT_INTERVAL_FIRST_STEPS,
               "a failed save tells no cost");
    int64_t once =
        after_save(interval, (struct save){ CKPT_COMMITTED, 1, 1, 2 });
    for (int i = 0; i < 3; i++)
        (void)after_save(interval, (struct save){ CKPT_COMMITTED, 1, 1, 2 });
    tap_is_int(
        after_save(interval, (struct save){ CKPT_COMMITTED, 50, 50, 9e5 }),
        once, "one slow save among others changes nothing");
    tap_is_int(after_save(interval, (struct save){ CKPT_FAILED, 9, 9, 9 }),
               once, "nor does a failed one");
    for (int i = 0; i < 15; i++)
        (void)after_save(interval, (struct save){ CKPT_COMMITTED, 4, 4, 8 });
    int64_t slower =
        after_save(interval, (struct save){ CKPT_COMMITTED, 4, 4, 8 });
    tap_ok(llabs(slower - 2 * once) <= once / 100,
           "saves that have become slower: %lld, then %lld steps",
           (long long)once, (long long)slower);
    on_checkpoint_interval_destroy(interval);
}

static void test_failures(const char *dir)
{
    struct on_checkpoint_interval *interval = NULL;
    char path[FSIO_PATH_MAX];
    if (fsio_path(path, "%s/none", dir) != ERR_OK)
        abort();
    interval = make(path, 0.5);
    tap_ok(after_save(interval, (struct save){ CKPT_COMMITTED, 1, 1, 2 }) >
               ON_CHECKPOINT_INTERVAL_FIRST_STEPS,
           "without a ledger no failures are known");
    on_checkpoint_interval_destroy(interval);
    interval = make(dir, 0.5);
    tap_ok(
        after_save(interval, (struct save){ CKPT_COMMITTED, INFINITY, 1, 2 }) ==
            ON_CHECKPOINT_INTERVAL_FIRST_STEPS,
        "a cost that is no number changes nothing");
    on_checkpoint_interval_destroy(interval);
    struct ckpt_progress progress = { .phase = CKPT_COMMITTED };
    on_checkpoint_interval_begin(NULL, 0);
    on_checkpoint_interval_step(NULL, 1);
    on_checkpoint_interval_started(NULL);
    on_checkpoint_interval_ended(NULL, &progress, 1);
    on_checkpoint_interval_destroy(NULL);
    tap_ok(!on_checkpoint_interval_due(NULL, FAR_STEPS), "NULL: never due");
}

int main(void)
{
    const char *dir = tap_folder();
    log_set_level(LOG_ERROR);
    test_lengths(dir);
    test_order(dir);
    test_failures(dir);
    return tap_done();
}
