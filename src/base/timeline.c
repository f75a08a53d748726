/* Spans into an array, and their sums.
 *
 * A span's own time is its whole time less that of the spans in it. No tree is
 * kept for that: each lane has one number, the time of what has ended within
 * the span that is open. An opening span saves it on its own stack and sets it
 * to 0; a closing one takes it from its whole time, and puts back what it saved
 * plus its whole time, which is what its parent sees. Whether an outer span
 * absorbs this one is passed down and restored the same way. */
#include "src/base/timeline.h"
#include "src/base/new.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMELINE_ROW(NAME, name, place, about) { name, place },
#define TIMELINE_NAME(NAME, name, place, about) name,

_Thread_local struct timeline_here *timeline_here;
const struct timeline_marks *timeline_marks;
_Thread_local int timeline_marked;
const char *const timeline_names[TIMELINE_KINDS_OWN] = { TIMELINE_KINDS(
    TIMELINE_NAME) };

void timeline_kinds(struct timeline_kind kinds[TIMELINE_KINDS_OWN])
{
    static const struct timeline_kind own[] = { TIMELINE_KINDS(TIMELINE_ROW) };
    memcpy(kinds, own, sizeof own);
}

int64_t timeline_now(void)
{
    struct timespec t = { 0 };
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

enum err timeline_create(const struct timeline_kind *kinds, int count,
                         size_t events, struct timeline **out)
{
    assert(count >= TIMELINE_KINDS_OWN && count <= TIMELINE_KINDS_MAX);
    struct timeline *timeline = NULL;
    *out = NULL;
    TRY(new_zeroed(&timeline, 1));
    timeline->kinds = kinds;
    timeline->kind_count = count;
    timeline->room = events;
    pthread_mutex_init(&timeline->mutex, NULL);
    enum err rc = new_zeroed(&timeline->events, events);
    return new_or_none(rc, timeline, out, timeline_destroy);
}

void timeline_destroy(struct timeline *timeline)
{
    if (timeline == NULL)
        return;
    pthread_mutex_destroy(&timeline->mutex);
    free(timeline->events);
    free(timeline);
}

/* --- lanes; the lock is held --- */

static struct timeline_lane *lane_add(struct timeline *timeline,
                                      const void *key, const char *name)
{
    /* what comes after the last one shares it */
    int at = timeline->lane_count < TIMELINE_LANES_MAX ? timeline->lane_count++
                                                       : TIMELINE_LANES_MAX - 1;
    struct timeline_lane *lane = &timeline->lanes[at];
    *lane = (struct timeline_lane){ .key = key,
                                    .thread = (unsigned long)pthread_self(),
                                    .absorbing = -1 };
    snprintf(lane->name, sizeof lane->name, "%s", name);
    return lane;
}

static struct timeline_lane *lane_of_thread(struct timeline *timeline,
                                            const char *name)
{
    for (int i = 0; i < timeline->lane_count; i++)
        if (timeline->lanes[i].key == NULL &&
            timeline->lanes[i].thread == (unsigned long)pthread_self())
            return &timeline->lanes[i];
    return lane_add(timeline, NULL, name);
}

static struct timeline_lane *lane_with_key(struct timeline *timeline,
                                           const void *key, const char *name)
{
    for (int i = 0; i < timeline->lane_count; i++)
        if (timeline->lanes[i].key == key)
            return &timeline->lanes[i];
    return lane_add(timeline, key, name);
}

/* stream: not NULL, as those of devices that train are not. */
static struct timeline_lane *lane_of_device(struct timeline *timeline,
                                            const void *stream)
{
    char name[32];
    int number = timeline->streams;
    assert(stream != NULL);
    snprintf(name, sizeof name, "device stream %d", number);
    int before = timeline->lane_count;
    struct timeline_lane *lane = lane_with_key(timeline, stream, name);
    timeline->streams += timeline->lane_count - before;
    return lane;
}

static void put(struct timeline *timeline, const struct timeline_lane *lane,
                int kind, bool absorbed, int64_t begin_ns, int64_t end_ns,
                const struct timeline_detail *detail)
{
    static const struct timeline_detail nothing;
    assert(kind >= 0 && kind < timeline->kind_count);
    if (timeline->count == timeline->room) {
        timeline->lost++;
        return;
    }
    timeline->events[timeline->count++] = (struct timeline_event){
        .begin_ns = begin_ns,
        .end_ns = end_ns,
        .kind = (int16_t)kind,
        .lane = (int16_t)(lane - timeline->lanes),
        .absorbed = absorbed,
        .detail = detail != NULL ? *detail : nothing,
    };
}

/* --- on and off --- */

void timeline_start(struct timeline *timeline)
{
    pthread_mutex_lock(&timeline->mutex);
    timeline->starts++;
    timeline->count = timeline->lost = 0;
    timeline->lane_count = timeline->streams = 0;
    memset(timeline->host, 0, sizeof timeline->host);
    memset(timeline->device, 0, sizeof timeline->device);
    lane_add(timeline, NULL, "main");
    atomic_store(&timeline->on, true);
    pthread_mutex_unlock(&timeline->mutex);
}

void timeline_stop(struct timeline *timeline)
{
    pthread_mutex_lock(&timeline->mutex);
    atomic_store(&timeline->on, false);
    pthread_mutex_unlock(&timeline->mutex);
}

/* --- spans --- */

static void add_sum(struct timeline_sum *sum, int64_t own_ns, int64_t whole_ns,
                    const struct timeline_detail *detail)
{
    sum->count++;
    sum->ns += own_ns;
    sum->whole_ns += whole_ns;
    if (detail == NULL)
        return;
    sum->flop += detail->flop;
    sum->bytes += detail->bytes;
}

void timeline_open(struct timeline *timeline, struct timeline_span *span,
                   int kind)
{
    pthread_mutex_lock(&timeline->mutex);
    struct timeline_lane *lane =
        lane_of_thread(timeline, timeline->kinds[kind].name);
    *span = (struct timeline_span){ .timeline = timeline,
                                    .start = timeline->starts,
                                    .kind = kind,
                                    .outer_absorbing = lane->absorbing,
                                    .outer_ns = lane->inner_ns };
    lane->inner_ns = 0;
    if (lane->absorbing < 0 && timeline->kinds[kind].place == TIMELINE_ABSORBS)
        lane->absorbing = kind;
    pthread_mutex_unlock(&timeline->mutex);
    span->begin_ns = timeline_now();
}

void timeline_close(struct timeline_span *span,
                    const struct timeline_detail *detail)
{
    struct timeline *timeline = span->timeline;
    int64_t end_ns = timeline_now();
    int64_t whole_ns = end_ns - span->begin_ns;
    assert(whole_ns >= 0 && span->kind < timeline->kind_count);
    pthread_mutex_lock(&timeline->mutex);
    /* not one that was opened before the timeline began anew */
    if (timeline_on(timeline) && timeline->starts == span->start) {
        struct timeline_lane *lane =
            lane_of_thread(timeline, timeline->kinds[span->kind].name);
        bool absorbs =
            lane->absorbing == span->kind && span->outer_absorbing < 0;
        int64_t own_ns = whole_ns - (absorbs ? 0 : lane->inner_ns);
        if (lane == timeline->lanes && span->outer_absorbing < 0)
            add_sum(&timeline->host[span->kind], own_ns, whole_ns, detail);
        put(timeline, lane, span->kind, span->outer_absorbing >= 0,
            span->begin_ns, end_ns, detail);
        /* to the one around it all of this was inside */
        lane->inner_ns = span->outer_ns + whole_ns;
        lane->absorbing = span->outer_absorbing;
    }
    pthread_mutex_unlock(&timeline->mutex);
}

void timeline_add(struct timeline *timeline, int kind, int64_t begin_ns,
                  int64_t end_ns, const struct timeline_detail *detail)
{
    if (!timeline_on(timeline))
        return;
    pthread_mutex_lock(&timeline->mutex);
    if (timeline_on(timeline)) {
        const char *name = timeline->kinds[kind].name;
        put(timeline, lane_with_key(timeline, name, name), kind, false,
            begin_ns, end_ns, detail);
    }
    pthread_mutex_unlock(&timeline->mutex);
}

int timeline_counts_as(const struct timeline *timeline, int kind)
{
    int absorbing = timeline->lanes[0].absorbing;
    return absorbing >= 0 ? absorbing : kind;
}

void timeline_add_device(struct timeline *timeline, const void *stream,
                         int kind, int counts_as, int64_t begin_ns,
                         int64_t end_ns, const struct timeline_detail *detail)
{
    pthread_mutex_lock(&timeline->mutex);
    if (timeline_on(timeline)) {
        int64_t ns = end_ns - begin_ns;
        add_sum(&timeline->device[counts_as], ns, ns, detail);
        put(timeline, lane_of_device(timeline, stream), kind, counts_as != kind,
            begin_ns, end_ns, detail);
    }
    pthread_mutex_unlock(&timeline->mutex);
}

void timeline_lose(struct timeline *timeline, size_t count)
{
    pthread_mutex_lock(&timeline->mutex);
    timeline->lost += count;
    pthread_mutex_unlock(&timeline->mutex);
}
