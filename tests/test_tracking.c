/* Records by name, and what brings them to sinks: queues that are full, sinks
 * that fail, hang or go back. The sinks here are played. */
#include "src/tracking/tracking.h"

#include "src/base/clock.h"
#include "src/base/log.h"
#include "tests/tap.h"

/* --- names and lists ------------------------------------------------------------ */

static void test_names(void)
{
    static const struct {
        const char *name, *clean;
    } cases[] = {
        { "train/loss", "train/loss" },
        { "norm/grad/blocks.0.ffn-up_proj", "norm/grad/blocks.0.ffn-up_proj" },
        { "", "_" },
        { "a//b", "a/_/b" },
        { "/etc/passwd", "_/etc/passwd" },
        { "../../x", "_/_/x" },
        { "a/..", "a/_" },
        { "a/.../b", "a/_/b" },
        { "a/..b", "a/..b" },
        { "eval/two words,\"x\"\n", "eval/two_words__x__" },
        { "caf\xc3\xa9", "caf__" },
        { "a/", "a/_" },
    };
    char clean[TRACKING_NAME_BYTES], name[1000];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        bool same = tracking_name_clean(cases[i].name, clean);
        tap_is_str(clean, cases[i].clean, "the name of \"%.20s\"",
                   i < 9 ? cases[i].name : "odd bytes");
        tap_ok(same == (strcmp(clean, cases[i].name) == 0), "is told so");
    }
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    tap_ok(!tracking_name_clean(name, clean) &&
               strlen(clean) == TRACKING_NAME_BYTES - 2,
           "a long name is cut");
    memset(name, '.', sizeof name - 1);
    tap_ok(!tracking_name_clean(name, clean) && strcmp(clean, "_") == 0,
           "one of dots is none, however long");
}

static double value_of(const struct tracking_list *list, const char *name)
{
    const struct tracking_record *record = tracking_list_record(list);
    for (int i = 0; i < record->count; i++)
        if (strcmp(record->scalars[i].name, name) == 0)
            return record->scalars[i].value;
    return NAN;
}

static void test_list(void)
{
    struct tracking_list *list = NULL;
    char name[32];
    bool right = true;
    tracking_list_add(NULL, "train/loss", 1.0);
    tracking_list_text(NULL, "samples/0", "x", 1);
    tracking_list_clear(NULL);
    tap_ok(tracking_list_create(&list) == ERR_OK, "a list; no list is fine");
    for (int round = 0; round < 3; round++) {
        tracking_list_clear(list);
        for (int i = 0; i < 3000; i++) {
            snprintf(name, sizeof name, "norm/%d", (i * 7) % 3000);
            tracking_list_add(list, name, round * 10000 + (i * 7) % 3000);
        }
        right = right && tracking_list_record(list)->count == 3000 &&
                value_of(list, "norm/2999") == round * 10000 + 2999;
    }
    tap_ok(right, "thousands of names, again for each step");
    tap_is_int(tracking_map_count(tracking_list_names(list)), 3000,
               "each is kept once");
    tracking_list_add(list, "norm/5", -1);
    tap_ok(tracking_list_record(list)->count == 3000 &&
               value_of(list, "norm/5") == -1,
           "a name that is there gets the new value");
    tracking_list_clear(list);
    tracking_list_add(list, "b", 2);
    tap_ok(tracking_list_record(list)->count == 1 && value_of(list, "b") == 2 &&
               isnan(value_of(list, "norm/5")),
           "a cleared list has what comes then");
    char *text = malloc(100000);
    memset(text, 'a', 100000);
    memcpy(text + TRACKING_TEXT_BYTES - 1, "\xc3\xa9", 2);
    tracking_list_text(list, "samples/0", text, 100000);
    tap_is_int((long long)tracking_list_record(list)->texts[0].bytes,
               TRACKING_TEXT_BYTES - 1,
               "a long text is cut, not amid a character");
    for (int i = 1; i < TRACKING_TEXTS_MAX + 3; i++)
        tracking_list_text(list, "samples/1", text, 10);
    tap_ok(tracking_list_record(list)->text_count == TRACKING_TEXTS_MAX &&
               tracking_list_left_out(list) == 3,
           "what does not fit is counted");
    free(text);
    tracking_list_destroy(list);
}

/* --- played sinks ---------------------------------------------------------------- */

#define SEEN_MAX 4096

static struct played {
    int64_t steps[SEEN_MAX]; /* written, in their order */
    atomic_int count;
    int64_t begins[16];
    int begin_count;
    atomic_int opens, turns, writes; /* turns: writes that have begun */
    int open_fails, write_fails;     /* the first so many */
    int writes_before;               /* those that fail */
    int64_t refused;                 /* a step that will never do; 0: none */
    double hang_s;                   /* of each write */
    atomic_bool shut;                /* so long no sink opens */
    enum tracking_end end;
    bool finished;
    atomic_bool closed;
} played[2];

static bool play_wanted(const struct tracking_settings *settings)
{
    (void)settings;
    return true;
}

static struct played *self_of(void *self)
{
    return *(struct played **)self;
}

static enum err play_open(struct played *p, void *self)
{
    *(struct played **)self = p;
    p->closed = false;
    for (int i = 0; i < 6000 && p->shut; i++)
        usleep(10000);
    return p->opens++ < p->open_fails ? err_set(ERR_IO, "no server") : ERR_OK;
}

static enum err open_first(void *self, const struct tracking_options *options)
{
    (void)options;
    return play_open(&played[0], self);
}

static enum err open_second(void *self, const struct tracking_options *options)
{
    (void)options;
    return play_open(&played[1], self);
}

static enum err play_begin(void *self, int64_t step)
{
    struct played *p = self_of(self);
    p->begins[p->begin_count++ % 16] = step;
    while (p->count > 0 && p->steps[p->count - 1] > step)
        p->count--;
    return ERR_OK;
}

static enum err
play_write(void *self, const struct tracking_record *const *records, int count)
{
    struct played *p = self_of(self);
    p->turns++;
    for (double slept = 0; slept < p->hang_s; slept += 0.01)
        usleep(10000);
    int write = p->writes++ - p->writes_before;
    if (write >= 0 && write < p->write_fails)
        return err_set(ERR_IO, "lost the connection");
    for (int i = 0; i < count; i++)
        if (p->refused != 0 && records[i]->step == p->refused)
            return err_set(ERR_DATA, "do not want that");
    for (int i = 0; i < count && p->count < SEEN_MAX; i++)
        p->steps[p->count++] = records[i]->step;
    return ERR_OK;
}

static enum err play_finish(void *self, enum tracking_end end)
{
    self_of(self)->finished = true;
    self_of(self)->end = end;
    return ERR_OK;
}

static void play_close(void *self)
{
    if (self_of(self) != NULL)
        self_of(self)->closed = true;
}

#define PLAYED(name_, open_)                                                   \
    {                                                                          \
        .name = name_, .bytes = sizeof(struct played *),                       \
        .wanted = play_wanted, .open = open_, .begin = play_begin,             \
        .write = play_write, .finish = play_finish, .close = play_close        \
    }
static const struct tracking_sink_ops first = PLAYED("first", open_first);
static const struct tracking_sink_ops second = PLAYED("second", open_second);
static const struct tracking_sink_ops *const both[] = { &first, &second, NULL };

static struct tracking_list *list;
static struct tracking_lost lost[TRACKING_SINKS_MAX];

/* Of a run that begins behind `step`. */
static struct tracking *start(int queue, int64_t step)
{
    struct tracking *tracking = NULL;
    struct tracking_options *options = calloc(1, sizeof *options);
    options->settings.queue = queue;
    if (tracking_create(options, tracking_list_names(list), both, &tracking) !=
        ERR_OK)
        tap_ok(false, "create: %s", err_text());
    free(options);
    tracking_begin(tracking, step);
    return tracking;
}

static void push(struct tracking *tracking, int64_t step)
{
    tracking_list_clear(list);
    tracking_list_add(list, "train/loss", 1.0 / (double)(step + 1));
    struct tracking_record record = *tracking_list_record(list);
    record.step = step;
    record.time_s = 1e9 + (double)step;
    tracking_push(tracking, &record);
}

static void push_all(struct tracking *tracking, int64_t from, int64_t to)
{
    for (int64_t step = from; step <= to; step++)
        push(tracking, step);
}

/* So long at most. */
static void await(atomic_int *count, int least)
{
    for (int i = 0; i < 1000 && atomic_load(count) < least; i++)
        usleep(5000);
}

static bool has_steps(const struct played *p, int64_t from, int64_t to)
{
    bool right = p->count == to - from + 1;
    for (int i = 0; right && i < p->count; i++)
        right = p->steps[i] == from + i;
    return right;
}

static void test_all_arrive(void)
{
    struct tracking *tracking = start(4096, 0);
    push_all(tracking, 1, 1000);
    tap_is_int(tracking_end(tracking, TRACKING_GOES_ON, 10, lost), 0,
               "nothing is lost");
    tap_ok(has_steps(&played[0], 1, 1000) && has_steps(&played[1], 1, 1000),
           "every record arrives at every sink, in order, once");
    tap_ok(played[0].begin_count == 1 && played[0].begins[0] == 0 &&
               played[0].finished && played[0].end == TRACKING_GOES_ON &&
               played[0].closed,
           "a sink begins once, and hears of the end");
}

static void test_nothing_sent(void)
{
    struct tracking *tracking = start(16, 5);
    tap_ok(tracking_end(tracking, TRACKING_FINISHED, 10, lost) == 0 &&
               played[0].opens == 0,
           "a run that reports nothing opens nothing");
}

static void test_goes_back(void)
{
    struct tracking *tracking = start(256, 10);
    push_all(tracking, 11, 30);
    tracking_begin(tracking, 20);
    push_all(tracking, 21, 40);
    tap_is_int(tracking_end(tracking, TRACKING_FINISHED, 10, lost), 0,
               "a run that goes back loses nothing");
    tap_ok(has_steps(&played[0], 11, 40) && played[0].begin_count == 2 &&
               played[0].begins[0] == 10 && played[0].begins[1] == 20,
           "sinks are told from where steps come again");
}

static void test_failing(void)
{
    played[0].open_fails = 1;
    played[1].write_fails = 1;
    played[0].shut = true;
    struct tracking *tracking = start(256, 0);
    push_all(tracking, 1, 100);
    tap_ok(played[0].opens == 0, "a failing sink does not hold up a run");
    played[0].shut = false;
    await(&played[0].opens, 2);
    await(&played[1].writes, 2);
    tap_is_int(tracking_end(tracking, TRACKING_FINISHED, 10, lost), 0,
               "what fails at first loses nothing");
    tap_ok(has_steps(&played[0], 1, 100) && has_steps(&played[1], 1, 100),
           "it gets the same records again");
    tap_ok(played[0].opens == 2 && played[0].begin_count == 1 &&
               played[1].opens == 2 && played[1].begin_count == 2 &&
               played[1].begins[1] == 0,
           "after a failure it is opened and begins again");
}

/* A write fails when the sink has a part of the turn. */
static void test_failing_later(void)
{
    played[0].writes_before = 1;
    played[0].write_fails = 2;
    struct tracking *tracking = start(256, 5);
    push(tracking, 6);
    await(&played[0].count, 1);
    push_all(tracking, 7, 100);
    await(&played[0].writes, 4);
    tap_is_int(tracking_end(tracking, TRACKING_FINISHED, 10, lost), 0,
               "writes that fail amid a run lose nothing");
    tap_ok(has_steps(&played[0], 6, 100) && played[0].finished,
           "and what was there before stays");
    tap_ok(played[0].opens == 3 && played[0].begin_count == 3 &&
               played[0].begins[1] == 6 && played[0].begins[2] == 6,
           "the sink begins again behind it");
    tap_ok(played[1].opens == 1 && played[1].begin_count == 1,
           "one that does not fail stays open");
}

static void test_failing_for_good(void)
{
    played[0].open_fails = 1000;
    played[1].refused = 7;
    struct tracking *tracking = start(50, 0);
    for (int64_t step = 1; step <= 100; step++) {
        push(tracking, step);
        if (step == 1)
            await(&played[0].opens, 1);
        await(&played[1].count, step < 7 ? (int)step : 0);
        if (step == 7)
            usleep(100000);
    }
    double began = clock_now();
    int count = tracking_end(tracking, TRACKING_FAILED, 60, lost);
    tap_ok(count == 2 && strcmp(lost[0].sink, "first") == 0 &&
               lost[0].records == 100 &&
               strcmp(lost[0].reason, "no server") == 0,
           "a sink that never works tells how many records it has not got");
    tap_ok(clock_now() - began < 50, "and is not waited for");
    tap_ok(strcmp(lost[1].reason, "do not want that") == 0 &&
               lost[1].records + played[1].count == 100 && lost[1].records < 95,
           "what a sink refuses for good is lost, and the rest comes");
    tap_ok(!played[0].finished && played[0].closed, "it is closed");
}

static void test_slow(void)
{
    played[0].hang_s = 60;
    struct tracking *tracking = start(10, 3);
    push_all(tracking, 4, 5);
    await(&played[0].turns, 1);
    /* in the queue, and lost before it is taken */
    tracking_begin(tracking, 2);
    push(tracking, 3);
    tracking_begin(tracking, 4);
    for (int64_t step = 5; step <= 204; step++) {
        push(tracking, step);
        if (step % 8 == 0)
            usleep(2000);
    }
    played[0].hang_s = 0.3;
    int count = tracking_end(tracking, TRACKING_FINISHED, 10, lost);
    const struct played *slow = &played[0];
    tap_ok(count >= 1 && strcmp(lost[0].sink, "first") == 0 &&
               lost[0].records > 100 &&
               strcmp(lost[0].reason, "it is slower than the run") == 0,
           "a slow sink loses records, the oldest");
    tap_ok(slow->count >= 10 && slow->steps[slow->count - 1] == 204,
           "and has the newest");
    tap_ok(slow->begin_count == 2 && slow->begins[1] == 2,
           "with the begin that came before what is lost");
}

static void test_hanging(void)
{
    played[1].hang_s = 20;
    struct tracking *tracking = start(64, 0);
    push_all(tracking, 1, 20);
    await(&played[0].count, 20);
    double began = clock_now();
    int count = tracking_end(tracking, TRACKING_FINISHED, 2, lost);
    double took = clock_now() - began;
    tap_ok(took < 20, "a sink that hangs is left behind");
    tap_note("after %.2f s", took);
    tap_ok(count == 1 && strcmp(lost[0].sink, "second") == 0 &&
               lost[0].records == 20 && strcmp(lost[0].reason, "it hangs") == 0,
           "with all that it has not got");
    tap_ok(has_steps(&played[0], 1, 20) && played[0].finished,
           "the others are not held up");
    played[1].hang_s = 0;
    for (int i = 0; i < 6000 && !played[1].closed; i++)
        usleep(10000);
    tap_ok(played[1].closed && played[1].count <= 20,
           "what it does later hurts nobody");
}

/* What the thread that trains pays. */
static void test_cost(void)
{
    char name[32];
    for (int names = 20; names <= 2000; names *= 100) {
        double worst = 0, sum = 0;
        struct tracking *tracking = start(4096, 0);
        for (int64_t step = 1; step <= 500; step++) {
            double began = clock_now();
            tracking_list_clear(list);
            for (int i = 0; i < names; i++) {
                snprintf(name, sizeof name, "norm/grad/tensor.%d", i);
                tracking_list_add(list, name, i);
            }
            struct tracking_record record = *tracking_list_record(list);
            record.step = step;
            tracking_push(tracking, &record);
            double took = clock_now() - began;
            sum += took;
            worst = took > worst ? took : worst;
            usleep(200);
        }
        tracking_end(tracking, TRACKING_FINISHED, 10, lost);
        tap_note("%d names to two sinks: %.1f us a step, %.0f us the longest",
                 names, sum / 500 * 1e6, worst * 1e6);
    }
}

static void (*const tests[])(void) = {
    test_all_arrive, test_nothing_sent,  test_goes_back,
    test_failing,    test_failing_later, test_failing_for_good,
    test_slow,       test_hanging,       test_cost,
};

int main(void)
{
    log_init("test", -1, LOG_ERROR);
    test_names();
    test_list();
    if (tracking_list_create(&list) != ERR_OK)
        return 1;
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        memset(played, 0, sizeof played);
        tests[i]();
    }
    tracking_list_destroy(list);
    return tap_done();
}
