/* Timelines: how spans nest and are added, who absorbs, what threads and
 * devices do, what finds no room, and that one which is off costs no clock. */
#include "src/base/timeline.h"

#include <pthread.h>

#include "src/base/clock.h"
#include "tests/tap.h"

#define ROOM 64
#define OP TIMELINE_KINDS_OWN
#define EVALUATION (TIMELINE_KINDS_OWN + 1)
#define KINDS (TIMELINE_KINDS_OWN + 2)

static struct timeline_kind kinds[KINDS];

static struct timeline *make(size_t room)
{
    struct timeline *timeline = NULL;
    timeline_kinds(kinds);
    kinds[OP] = (struct timeline_kind){ "gemm", TIMELINE_OP };
    kinds[EVALUATION] =
        (struct timeline_kind){ "evaluation", TIMELINE_ABSORBS };
    if (timeline_create(kinds, KINDS, room, &timeline) != ERR_OK)
        tap_ok(false, "create: %s", err_text());
    return timeline;
}

static void op(struct timeline *timeline, double flop)
{
    struct timeline_span span;
    struct timeline_detail detail = { .dims = "n", .dim = { 7 }, .flop = flop };
    timeline_begin(timeline, &span, OP);
    clock_sleep(1e-4);
    timeline_end(&span, &detail);
}

/* A step with two microbatches of three ops each, and something between. */
static void step(struct timeline *timeline)
{
    struct timeline_span outer, inner;
    timeline_begin(timeline, &outer, TIMELINE_STEP);
    for (int m = 0; m < 2; m++) {
        timeline_begin(timeline, &inner, TIMELINE_MICROBATCH);
        for (int i = 0; i < 3; i++)
            op(timeline, 10.0);
        timeline_end(&inner, NULL);
        clock_sleep(1e-4);
    }
    timeline_end(&outer, NULL);
}

static int marks_open, marks_begun;
static char marks_first[32];

static void mark_begin(const char *name)
{
    if (marks_begun++ == 0)
        snprintf(marks_first, sizeof marks_first, "%s", name);
    marks_open++;
}

static void mark_end(void)
{
    marks_open--;
}

/* Ops have no name of their own, so a step has its own and its microbatches'. */
static void test_marks(void)
{
    static const struct timeline_marks marks = { mark_begin, mark_end };
    timeline_marks = &marks;
    step(NULL);
    timeline_marks = NULL;
    step(NULL);
    tap_ok(marks_open == 0 && marks_begun == 3 &&
               strcmp(marks_first, "step") == 0,
           "who looks on hears of named spans, without a timeline");
    struct timeline_span outer, inner;
    timeline_marks = &marks;
    timeline_begin(NULL, &outer, TIMELINE_UPDATE);
    timeline_begin(NULL, &inner, TIMELINE_LOADER);
    int open = marks_open;
    timeline_end(&outer, NULL);
    tap_ok(open == 2 && marks_open == 0, "an error's ends with what is around");
    timeline_begin(NULL, &outer, TIMELINE_UPDATE);
    timeline_begin(NULL, &inner, TIMELINE_LOADER);
    timeline_unmark(0);
    tap_ok(marks_open == 0, "or all end where a run goes back");
    timeline_marks = NULL;
}

static void test_nesting(void)
{
    struct timeline *timeline = make(ROOM);
    const struct timeline_sum *sums = timeline->host;
    int64_t ops = 0;
    bool inside = true;
    timeline_start(timeline);
    step(timeline);
    timeline_stop(timeline);
    tap_is_int((long long)timeline->count, 9, "a span for each end");
    tap_is_int(sums[OP].count, 6, "and the ops are counted");
    tap_is_close(sums[OP].flop, 60.0, 0.0, "with their operations");
    for (size_t i = 0; i < timeline->count; i++) {
        const struct timeline_event *event = &timeline->events[i];
        const struct timeline_event *last = &timeline->events[8];
        inside = inside && event->begin_ns >= last->begin_ns &&
                 event->end_ns <= last->end_ns;
        if (event->kind == OP)
            ops += event->end_ns - event->begin_ns;
    }
    tap_ok(inside, "all within the step, which ends last");
    tap_is_int(sums[OP].ns, ops, "the sum of the ops is their spans'");
    tap_is_int(sums[TIMELINE_MICROBATCH].whole_ns,
               sums[TIMELINE_MICROBATCH].ns + sums[OP].ns,
               "a frame's time is its own and that of what it holds");
    tap_is_int(sums[TIMELINE_STEP].whole_ns,
               sums[TIMELINE_STEP].ns + sums[TIMELINE_MICROBATCH].whole_ns,
               "at every depth");
    tap_is_int(timeline->events[0].detail.dim[0], 7, "what is told of a span");
    timeline_destroy(timeline);
}

static void test_absorbs(void)
{
    struct timeline *timeline = make(ROOM);
    struct timeline_span outer, inner;
    const struct timeline_sum *sums = timeline->host;
    timeline_start(timeline);
    tap_is_int(timeline_counts_as(timeline, OP), OP, "an op counts as itself");
    timeline_begin(timeline, &outer, EVALUATION);
    timeline_begin(timeline, &inner, TIMELINE_MICROBATCH);
    op(timeline, 10.0);
    tap_is_int(timeline_counts_as(timeline, OP), EVALUATION,
               "and in an evaluation as that");
    timeline_end(&inner, NULL);
    timeline_end(&outer, NULL);
    op(timeline, 1.0);
    timeline_stop(timeline);
    tap_is_int(sums[OP].count, 1, "what is absorbed is in no other sum");
    tap_is_int(sums[EVALUATION].ns, sums[EVALUATION].whole_ns,
               "but in that of who absorbs");
    tap_is_int((long long)timeline->count, 4, "all are kept as spans");
    tap_ok(timeline->events[0].absorbed && !timeline->events[3].absorbed,
           "which say so");
    timeline_destroy(timeline);
}

static void *other_thread(void *arg)
{
    struct timeline *timeline = arg;
    int64_t now = timeline_now();
    op(timeline, 5.0);
    timeline_add(timeline, TIMELINE_SAVE, now - 1000, now, NULL);
    return NULL;
}

static void test_lanes(void)
{
    struct timeline *timeline = make(ROOM);
    struct timeline_span span;
    pthread_t thread;
    int stream;
    timeline_start(timeline);
    timeline_begin(timeline, &span, TIMELINE_STEP);
    if (pthread_create(&thread, NULL, other_thread, timeline) == 0)
        pthread_join(thread, NULL);
    op(timeline, 1.0);
    timeline_add_device(timeline, &stream, OP, OP, 100, 350, NULL);
    timeline_add_device(timeline, &stream, OP, EVALUATION, 400, 500, NULL);
    timeline_end(&span, NULL);
    timeline_stop(timeline);
    tap_is_int(timeline->lane_count, 4,
               "a lane for each thread and stream, and what was told later");
    tap_is_str(timeline->lanes[1].name, "gemm",
               "a thread is called after what it does first");
    tap_is_str(timeline->lanes[2].name, "checkpoint write",
               "what is told later after its kind");
    tap_is_str(timeline->lanes[3].name, "device stream 0", "a stream too");
    tap_is_int(timeline->host[OP].count, 1,
               "sums are of the thread that started it");
    tap_is_int(timeline->host[TIMELINE_STEP].whole_ns -
                   timeline->host[TIMELINE_STEP].ns,
               timeline->host[OP].ns, "in whose spans others' are not");
    tap_is_int(timeline->device[OP].ns, 250, "the device's are apart");
    tap_is_int(timeline->device[EVALUATION].ns, 100,
               "and counted as was said when they were enqueued");
    timeline_destroy(timeline);
}

/* More threads than lanes share the last one. */
static void test_many_threads(void)
{
    struct timeline *timeline = make(ROOM);
    timeline_start(timeline);
    for (int i = 0; i < TIMELINE_LANES_MAX + 3; i++)
        timeline_add_device(timeline, (char *)kinds + i, OP, OP, 0, 1, NULL);
    timeline_stop(timeline);
    tap_is_int(timeline->lane_count, TIMELINE_LANES_MAX, "no more lanes");
    tap_is_int(timeline->device[OP].count, TIMELINE_LANES_MAX + 3,
               "and nothing is lost");
    timeline_destroy(timeline);
}

static void test_overflow(void)
{
    struct timeline *timeline = make(4);
    timeline_start(timeline);
    step(timeline);
    timeline_lose(timeline, 2);
    timeline_stop(timeline);
    tap_is_int((long long)timeline->count, 4, "no more than there is room for");
    tap_is_int((long long)timeline->lost, 5 + 2, "the others are counted");
    tap_is_int(timeline->host[OP].count, 6, "and in the sums");
    tap_is_int(timeline->host[TIMELINE_STEP].count, 1, "to the last");
    timeline_destroy(timeline);
}

static void test_on_and_off(void)
{
    struct timeline *timeline = make(ROOM);
    struct timeline_span early, late;
    op(NULL, 1.0);
    op(timeline, 1.0);
    timeline_add(timeline, OP, 0, 1, NULL);
    tap_is_int((long long)timeline->count, 0, "off: nothing is kept");
    timeline_begin(timeline, &early, TIMELINE_STEP);
    timeline_start(timeline);
    timeline_end(&early, NULL);
    tap_is_int((long long)timeline->count, 0, "what began before is not");
    timeline_begin(timeline, &late, TIMELINE_STEP);
    timeline_stop(timeline);
    timeline_end(&late, NULL);
    tap_is_int((long long)timeline->count, 0, "nor what ends behind");
    timeline_start(timeline);
    timeline_begin(timeline, &late, TIMELINE_STEP);
    timeline_start(timeline);
    timeline_end(&late, NULL);
    op(timeline, 1.0);
    tap_is_int((long long)timeline->count, 1,
               "nor what began in a range before this one");
    tap_is_int(timeline->host[TIMELINE_STEP].count, 0, "in no sum either");
    timeline_destroy(timeline);
}

/* Told, not judged. */
static void note_cost(void)
{
    struct timeline *timeline = make(100000);
    struct timeline_span span;
    for (int on = 0; on < 2; on++) {
        if (on)
            timeline_start(timeline);
        int64_t begin = timeline_now();
        for (int i = 0; i < 100000; i++) {
            timeline_begin(timeline, &span, OP);
            timeline_end(&span, NULL);
        }
        tap_note("a span takes %.1f ns of a timeline that is %s",
                 (double)(timeline_now() - begin) / 1e5, on ? "on" : "off");
    }
    timeline_stop(timeline);
    timeline_destroy(timeline);
}

/* Without a timeline, too. */
static void test_here(void)
{
    struct timeline_here here = { 0 };
    struct timeline_span outer, inner, deep[2 * TIMELINE_DEPTH];
    timeline_begin(NULL, &outer, TIMELINE_UPDATE);
    timeline_end(&outer, NULL);
    tap_ok(here.moves == 0, "a thread without a place says nothing");
    timeline_here = &here;
    timeline_begin(NULL, &outer, TIMELINE_UPDATE);
    timeline_begin(NULL, &inner, TIMELINE_LOADER);
    tap_ok(here.depth == 2 && strcmp(here.names[0], "optimizer") == 0 &&
               strcmp(here.names[1], "loader") == 0,
           "a thread is in the spans that are open");
    timeline_end(&outer, NULL);
    tap_ok(here.depth == 0 && here.moves == 3,
           "what an error left open ends with what is around it");
    for (int i = 0; i < 2 * TIMELINE_DEPTH; i++)
        timeline_begin(NULL, &deep[i], TIMELINE_BLOCK);
    tap_ok(here.depth == 2 * TIMELINE_DEPTH, "more than can be named count");
    for (int i = 2 * TIMELINE_DEPTH - 1; i >= 0; i--)
        timeline_end(&deep[i], NULL);
    tap_ok(here.depth == 0, "and end");
    timeline_here = NULL;
}

int main(void)
{
    test_marks();
    test_nesting();
    test_absorbs();
    test_lanes();
    test_many_threads();
    test_overflow();
    test_on_and_off();
    timeline_destroy(NULL);
    note_cost();
    test_here();
    return tap_done();
}
