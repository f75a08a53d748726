/* When what was done: spans of one process's threads, and of what computes for
 * it, in memory of fixed size, and their sums by kind. It is on for some time
 * (timeline_start() to timeline_stop()) and costs a test of a pointer otherwise.
 *
 * A span has a kind, of a list that the timeline is made with: first those
 * below, then what its maker adds. Spans of a thread nest. The sums are of the
 * thread that has started the timeline, and of devices: of each kind how often,
 * how long with what lies in it, and how long without. A span of a kind that
 * `absorbs` has all that lies in it for itself, such as the products of an
 * evaluation. Spans that find no room are counted and in the sums, but not
 * kept.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC. Any thread may add spans, if none
 * outlives its lane's; the others are the starting thread's functions.
 *
 * The same spans say where a thread is, without a timeline too, if it has given itself
 * a place: names of those that are open, for another thread to read at any time. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* KIND(NAME, name, place, about): the kinds of every timeline. */
#define TIMELINE_KINDS(KIND)                                                   \
    KIND(STEP, "step", TIMELINE_FRAME, "a step, all of it")                    \
    KIND(MICROBATCH, "microbatch", TIMELINE_FRAME, "forward and backward")     \
    KIND(BLOCK, "block", TIMELINE_FRAME, "one layer of these")                 \
    KIND(GRADIENTS, "gradients", TIMELINE_FRAME,                               \
         "their sum over ranks, their norm, what the step's record has")       \
    KIND(UPDATE, "optimizer", TIMELINE_FRAME, "the update of the weights")     \
    KIND(LOADER, "loader", TIMELINE_WORK,                                      \
         "waiting for a microbatch's samples")                                 \
    KIND(EXCHANGE, "exchange", TIMELINE_WORK,                                  \
         "sending tensors and waiting for those of other ranks")               \
    KIND(AGREE, "agreement", TIMELINE_WORK,                                    \
         "waiting for other ranks: numbers and barriers")                      \
    KIND(LAUNCH, "launch", TIMELINE_WORK, "enqueuing an op on a device")       \
    KIND(WAIT, "device wait", TIMELINE_WORK, "the host waits for the device")  \
    KIND(READ, "read ahead", TIMELINE_WORK, "a thread reads a microbatch")     \
    KIND(SAVE, "checkpoint write", TIMELINE_WORK,                              \
         "a thread writes a checkpoint")

enum timeline_place {
    TIMELINE_FRAME, /* holds others; what is only its own has no kind */
    TIMELINE_WORK,
    TIMELINE_OP,     /* of the op table */
    TIMELINE_ABSORBS /* work whose spans count as it */
};

struct timeline_kind {
    const char *name;
    enum timeline_place place;
};

#define TIMELINE_ENUM(NAME, ...) TIMELINE_##NAME,
enum { TIMELINE_KINDS(TIMELINE_ENUM) TIMELINE_KINDS_OWN };

#define TIMELINE_KINDS_MAX 128
#define TIMELINE_LANES_MAX 16
#define TIMELINE_DIMS 4

/* What is known of a span besides. Zeros: nothing. */
struct timeline_detail {
    const char *label; /* in place of the kind's name; lives on */
    const char *dims;  /* names of `dim`, "m n k"; lives on; NULL: none */
    int64_t dim[TIMELINE_DIMS];
    double flop, bytes;
};

struct timeline_event {
    int64_t begin_ns, end_ns;
    int16_t kind, lane;
    bool absorbed; /* counts as another kind */
    struct timeline_detail detail;
};

struct timeline_sum {
    int64_t count;
    int64_t ns;       /* without what lies in it */
    int64_t whole_ns; /* with it */
    double flop, bytes;
};

/* What one thread does, one stream of a device, or what is told of a kind when
 * it has ended. */
struct timeline_lane {
    const void *key; /* a stream, a kind's name; NULL: a thread */
    char name[32];
    unsigned long thread;
    /* of the span that is open, if any: */
    int64_t inner_ns; /* of those in it that have ended */
    int absorbing;    /* kind of the outermost that absorbs; -1: none */
};

struct timeline {
    atomic_bool on;
    unsigned starts; /* a span does not outlive what it began in */
    const struct timeline_kind *kinds;
    int kind_count;
    size_t count, room, lost;
    struct timeline_event *events; /* in the order of their ends */
    struct timeline_lane lanes[TIMELINE_LANES_MAX]; /* the first started it */
    int lane_count, streams;
    /* of the first lane, and of devices */
    struct timeline_sum host[TIMELINE_KINDS_MAX], device[TIMELINE_KINDS_MAX];
    pthread_mutex_t mutex; /* of the array, the lanes and the counts */
};

#define TIMELINE_DEPTH 6
/* The thread's own stores, which another one reads; what does not fit is not named. */
struct timeline_here {
    atomic_uint moves;
    atomic_int depth;
    _Atomic(const char *) names[TIMELINE_DEPTH]; /* they live on */
};
extern _Thread_local struct timeline_here *timeline_here; /* NULL: none */
extern const char *const timeline_names[TIMELINE_KINDS_OWN];

/* Who looks on from outside, as Nsight does, hears of the spans with a name as they
 * begin and end, on their threads. NULL: nobody does. Set before other threads are. */
struct timeline_marks {
    void (*begin)(const char *name);
    void (*end)(void);
};
extern const struct timeline_marks *timeline_marks;
extern _Thread_local int timeline_marked; /* have begun and not ended */

/* An open span, on its thread's stack. */
struct timeline_span {
    struct timeline *timeline; /* NULL: none is on */
    int depth;
    int marked; /* had begun before */
    unsigned start;
    int kind, outer_absorbing;
    int64_t begin_ns, outer_ns;
};

/* kinds: [count] the kinds above and those that follow; borrowed. Memory for so
 * many spans is taken here, and touched as it fills. */
enum err timeline_create(const struct timeline_kind *kinds, int count,
                         size_t events, struct timeline **out);
void timeline_destroy(struct timeline *timeline);
/* The kinds above, into the list's beginning. */
void timeline_kinds(struct timeline_kind kinds[TIMELINE_KINDS_OWN]);

/* Forgets what there was and begins. */
void timeline_start(struct timeline *timeline);
/* From now on nothing is added, and all may be read. */
void timeline_stop(struct timeline *timeline);

int64_t timeline_now(void);

static inline bool timeline_on(struct timeline *timeline)
{
    return timeline != NULL &&
           atomic_load_explicit(&timeline->on, memory_order_relaxed);
}

void timeline_open(struct timeline *timeline, struct timeline_span *span,
                   int kind);
void timeline_close(struct timeline_span *span,
                    const struct timeline_detail *detail);

/* Ends what an error has left open, too. */
static inline void timeline_unmark(int marked)
{
    for (; timeline_marked > marked; timeline_marked--)
        timeline_marks->end();
}

/* The thread is at this from now on, until it is back at the depth that this returns;
 * that is also the way out of whatever an error has left open. */
static inline void timeline_leave(int depth)
{
    struct timeline_here *place = timeline_here;
    if (place == NULL)
        return;
    unsigned moves = atomic_load_explicit(&place->moves, memory_order_relaxed);
    atomic_store_explicit(&place->depth, depth, memory_order_release);
    atomic_store_explicit(&place->moves, moves + 1, memory_order_relaxed);
}

static inline int timeline_enter(const char *name)
{
    struct timeline_here *place = timeline_here;
    if (place == NULL)
        return 0;
    int depth = atomic_load_explicit(&place->depth, memory_order_relaxed);
    if (depth < TIMELINE_DEPTH)
        atomic_store_explicit(&place->names[depth], name, memory_order_relaxed);
    timeline_leave(depth + 1);
    return depth;
}

/* Around what is to be a span; timeline may be NULL. */
static inline void timeline_begin_named(struct timeline *timeline,
                                        struct timeline_span *span, int kind,
                                        const char *name)
{
    int depth = timeline_enter(name);
    span->timeline = NULL;
    span->marked = timeline_marked;
    if (timeline_marks != NULL && name != NULL) {
        timeline_marks->begin(name);
        timeline_marked++;
    }
    if (timeline_on(timeline))
        timeline_open(timeline, span, kind);
    span->depth = depth;
}

static inline void timeline_begin(struct timeline *timeline,
                                  struct timeline_span *span, int kind)
{
    timeline_begin_named(timeline, span, kind,
                         kind < TIMELINE_KINDS_OWN ? timeline_names[kind]
                                                   : NULL);
}

static inline void timeline_end(struct timeline_span *span,
                                const struct timeline_detail *detail)
{
    timeline_leave(span->depth);
    timeline_unmark(span->marked);
    if (span->timeline != NULL)
        timeline_close(span, detail);
}

/* A span that has ended, in a lane of its kind and in no sum. */
void timeline_add(struct timeline *timeline, int kind, int64_t begin_ns,
                  int64_t end_ns, const struct timeline_detail *detail);

/* The kind that what is enqueued now will count as: its own, or that of who
 * absorbs it. Of the starting thread. */
int timeline_counts_as(const struct timeline *timeline, int kind);
/* What a stream of a device did. */
void timeline_add_device(struct timeline *timeline, const void *stream,
                         int kind, int counts_as, int64_t begin_ns,
                         int64_t end_ns, const struct timeline_detail *detail);
/* Spans that nobody could measure or keep. */
void timeline_lose(struct timeline *timeline, size_t count);
