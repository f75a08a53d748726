/* Tells ops to a timeline, and times those of a device by pairs of its events.
 *
 * An op of a device is recorded twice: as a launch, which is the host's time,
 * and by two events around it on its stream. These are not read at once, for
 * that would wait: they go into a ring, whose oldest are looked at whenever
 * room is needed and at the end of a step. CUDA tells the time between two
 * events and not when one was, and only in floats of milliseconds: so an op's
 * begin is counted from a reference, an event whose time by the host's clock is
 * known, and every second or so the reference moves on to a nearer one. */
#include "kernels/kernel_profile.h"

#include <assert.h>
#include <stdlib.h>

#include "src/base/clock.h"
#include "src/base/new.h"

/* Ops under way on the device at most, of which each has two events. */
#define TIMERS 8192
/* The clocks are tied by the best of so many waits. */
#define TIES 5
/* Beyond so much the reference is a nearer one: differences are floats. */
#define NEAR_NS 1000000000
#define LOOK_S 1e-4

struct timer {
    void *begin, *end; /* events */
    const void *stream;
    int kind, counts_as;
    struct timeline_detail work;
};

struct kernel_profile {
    struct timeline *timeline;
    int first;
    const struct kernel_memory *memory;
    struct timer *timers;       /* [TIMERS] a ring; NULL: none */
    unsigned long taken, known; /* numbers of the next ones */
    void *reference;            /* an event that was reached ... */
    int64_t reference_ns;       /* ... then, by the host's clock */
    int64_t uncertain_ns;
    bool failed; /* the device's times are not to be had */
};

#define KERNEL_PROFILE_KIND(op, ...) { #op, TIMELINE_OP },

void kernel_profile_kinds(struct timeline_kind kinds[KERNEL_OP_COUNT])
{
    static const struct timeline_kind ops[] = {
        KERNEL_OPS(KERNEL_PROFILE_KIND) KERNEL_OPS_FP8(KERNEL_PROFILE_KIND)
    };
    for (int i = 0; i < KERNEL_OP_COUNT; i++)
        kinds[i] = ops[i];
}

static enum err make_timers(struct kernel_profile *profile)
{
    const struct kernel_memory *memory = profile->memory;
    TRY(new_zeroed(&profile->timers, TIMERS));
    TRY(memory->event_create_timed(&profile->reference));
    for (int i = 0; i < TIMERS; i++) {
        TRY(memory->event_create_timed(&profile->timers[i].begin));
        TRY(memory->event_create_timed(&profile->timers[i].end));
    }
    return ERR_OK;
}

enum err kernel_profile_create(struct timeline *timeline, int first,
                               const struct kernel_memory *memory,
                               struct kernel_profile **out)
{
    enum err rc = ERR_OK;
    struct kernel_profile *profile = NULL;
    *out = NULL;
    assert(first >= TIMELINE_KINDS_OWN &&
           first + KERNEL_OP_COUNT <= timeline->kind_count);
    TRY(new_zeroed(&profile, 1));
    profile->timeline = timeline;
    profile->first = first;
    profile->memory = memory;
    if (memory->device && memory->event_create_timed != NULL)
        TRY_OUT(make_timers(profile));
out:
    return new_or_none(rc, profile, out, kernel_profile_destroy);
}

void kernel_profile_destroy(struct kernel_profile *profile)
{
    if (profile == NULL)
        return;
    for (int i = 0; profile->timers != NULL && i < TIMERS; i++) {
        profile->memory->event_destroy(profile->timers[i].end);
        profile->memory->event_destroy(profile->timers[i].begin);
    }
    if (profile->timers != NULL)
        profile->memory->event_destroy(profile->reference);
    free(profile->timers);
    free(profile);
}

struct timeline *kernel_profile_timeline(struct kernel_profile *profile)
{
    return profile != NULL ? profile->timeline : NULL;
}

bool kernel_profile_on(struct kernel_profile *profile)
{
    return profile != NULL && timeline_on(profile->timeline);
}

bool kernel_profile_times_device(const struct kernel_profile *profile,
                                 int64_t *uncertain_ns)
{
    *uncertain_ns = profile->uncertain_ns;
    return profile->timers != NULL;
}

/* --- the device's clock --- */

/* The stream is idle, so an event that is recorded now is reached at once, some
 * time between the call and the end of the wait: its middle is taken, wrong by
 * half of it at most. The shortest of some tries counts. */
enum err kernel_profile_start(struct kernel_profile *profile, void *stream)
{
    const struct kernel_memory *memory = profile->memory;
    profile->known = profile->taken;
    profile->failed = false;
    profile->uncertain_ns = INT64_MAX;
    for (int i = 0; i < TIES && profile->timers != NULL; i++) {
        struct timer *spare = &profile->timers[0];
        TRY(memory->wait(stream));
        int64_t before = timeline_now();
        TRY(memory->event_record(spare->begin, stream));
        TRY(memory->event_wait(spare->begin));
        int64_t took = timeline_now() - before;
        if (took / 2 >= profile->uncertain_ns)
            continue;
        void *event = profile->reference;
        profile->reference = spare->begin;
        spare->begin = event;
        profile->uncertain_ns = took / 2;
        profile->reference_ns = before + took / 2;
    }
    return ERR_OK;
}

/* The oldest op under way is done: its times. */
static enum err take_in(struct kernel_profile *profile, struct timer *timer)
{
    const struct kernel_memory *memory = profile->memory;
    double since_us = 0, took_us = 0;
    assert(profile->known < profile->taken);
    TRY(memory->event_elapsed(profile->reference, timer->begin, &since_us));
    TRY(memory->event_elapsed(timer->begin, timer->end, &took_us));
    int64_t begin_ns = profile->reference_ns + (int64_t)(since_us * 1e3);
    timeline_add_device(profile->timeline, timer->stream, timer->kind,
                        timer->counts_as, begin_ns,
                        begin_ns + (int64_t)(took_us * 1e3), &timer->work);
    if (begin_ns - profile->reference_ns > NEAR_NS) {
        void *event = profile->reference;
        profile->reference = timer->begin;
        profile->reference_ns = begin_ns;
        timer->begin = event;
    }
    return ERR_OK;
}

/* In the order in which they were enqueued; the first that is not done ends it,
 * even if one on another stream behind it is. */
static enum err follow(struct kernel_profile *profile)
{
    assert(profile->taken - profile->known <= TIMERS);
    while (profile->known < profile->taken) {
        struct timer *timer = &profile->timers[profile->known % TIMERS];
        bool done = false;
        TRY(profile->memory->event_done(timer->end, &done));
        if (!done)
            return ERR_OK;
        TRY(take_in(profile, timer));
        profile->known++;
    }
    return ERR_OK;
}

/* What cannot be timed is lost, and no harm to the run. */
enum err kernel_profile_follow(struct kernel_profile *profile)
{
    if (profile->timers == NULL || profile->failed)
        return ERR_OK;
    enum err rc = follow(profile);
    profile->failed = rc != ERR_OK;
    return rc;
}

enum err kernel_profile_finish(struct kernel_profile *profile, double timeout_s)
{
    assert(timeout_s >= 0);
    double until_s = clock_now() + timeout_s;
    enum err rc = kernel_profile_follow(profile);
    while (rc == ERR_OK && profile->known < profile->taken &&
           clock_now() < until_s) {
        clock_sleep(LOOK_S);
        rc = kernel_profile_follow(profile);
    }
    timeline_lose(profile->timeline, profile->taken - profile->known);
    profile->known = profile->taken;
    return rc;
}

/* --- ops --- */

/* Streams do not keep one order, so an op of another one may be awaited first:
 * there is room for both. */
static struct timer *free_timer(struct kernel_profile *profile)
{
    if (profile->taken - profile->known == TIMERS)
        (void)kernel_profile_follow(profile);
    if (profile->taken - profile->known < TIMERS && !profile->failed)
        return &profile->timers[profile->taken % TIMERS];
    timeline_lose(profile->timeline, 1);
    return NULL;
}

void kernel_profile_begin(const struct kernel_ctx *ctx, enum kernel_op op,
                          struct kernel_profile_span *span)
{
    struct kernel_profile *profile = ctx->profile;
    bool device = profile->memory->device;
    assert(op < KERNEL_OP_COUNT);
    span->timer = -1;
    int kind = device ? TIMELINE_LAUNCH : profile->first + (int)op;
    timeline_begin_named(profile->timeline, &span->host, kind,
                         profile->timeline->kinds[profile->first + op].name);
    if (profile->timers == NULL)
        return;
    struct timer *timer = free_timer(profile);
    if (timer != NULL &&
        profile->memory->event_record(timer->begin, ctx->stream) == ERR_OK)
        span->timer = (int)(timer - profile->timers);
}

void kernel_profile_end(const struct kernel_ctx *ctx, enum kernel_op op,
                        struct kernel_profile_span *span,
                        const struct timeline_detail *work)
{
    struct kernel_profile *profile = ctx->profile;
    const struct kernel_memory *memory = profile->memory;
    struct timeline_detail launch = *work;
    int kind = profile->first + (int)op;
    assert(span->timer < 0 || span->timer == (int)(profile->taken % TIMERS));
    if (span->timer >= 0 &&
        memory->event_record(profile->timers[span->timer].end, ctx->stream) ==
            ERR_OK) {
        struct timer *timer = &profile->timers[span->timer];
        timer->stream = ctx->stream;
        timer->kind = kind;
        timer->counts_as = timeline_counts_as(profile->timeline, kind);
        timer->work = *work;
        profile->taken++;
    }
    if (memory->device) {
        launch.flop = launch.bytes = 0;
        launch.label = profile->timeline->kinds[kind].name;
    }
    timeline_end(&span->host, &launch);
}
