/* Switches the timeline on and off step by step, brings the ranks' sums
 * together, and writes what came of it. A step that is given up ends the range with the steps that were done;
 * where it is the first one there was no range. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"

/* How long a range's end waits for a device. */
#define DEVICE_WAIT_S 30.0

struct trainer_profile {
    struct profile_ranges ranges;
    struct timeline_kind kinds[TIMELINE_KINDS_MAX];
    struct timeline *timeline;
    struct kernel_profile *ops;
    int64_t first; /* step of the range that is on; 0: none is */
    struct timeline_span step;
    struct profile_about about;
    struct buffer table; /* rank 0's; empty on others */
};

/* --- making one --- */

static enum err make(struct run *run, struct trainer_profile *profile)
{
    int count = TIMELINE_KINDS_OWN;
    const struct kernel_memory *memory = run->engine.kernels->memory;
    TRY(profile_ranges_parse(run->settings.train.profile, &profile->ranges));
    _Static_assert(TIMELINE_KINDS_OWN + EVENTS_LISTENERS_MAX +
                           KERNEL_OP_COUNT <=
                       TIMELINE_KINDS_MAX,
                   "room for all kinds");
    timeline_kinds(profile->kinds);
    run->events.first_kind = count;
    count += events_kinds(profile->kinds + count);
    int first_op = count;
    kernel_profile_kinds(profile->kinds + count);
    count += KERNEL_OP_COUNT;
    TRY(timeline_create(profile->kinds, count, TRAINER_PROFILE_SPANS,
                        &profile->timeline));
    return kernel_profile_create(profile->timeline, first_op, memory,
                                 &profile->ops);
}

/* Times count from here on rank 0's clock. Hosts' clocks run alike for the length
 * of an attempt, but begin anywhere: their difference is measured once, before
 * anything is timed, and put to each event when it is written. Collective. */
static enum err compare_clocks(struct run *run, struct profile_about *about)
{
    int64_t origin = timeline_now();
    TRY(comm_offset(run->comm, &about->offset_ns, &about->error_ns));
    TRY(comm_broadcast(run->comm, &origin, sizeof origin, 0));
    about->offset_ns -= origin;
    about->rank = run->rank;
    about->ranks = run->ranks;
    about->attempt = run->attempt;
    snprintf(about->host, sizeof about->host, "%s",
             comm_host(run->comm, run->rank));
    return ERR_OK;
}

enum err trainer_profile_create(struct run *run)
{
    enum err rc = ERR_OK;
    if (run->settings.train.profile[0] == '\0')
        return ERR_OK;
    struct trainer_profile *profile = NULL;
    assert(run->profile == NULL && run->engine.model == NULL);
    rc = new_zeroed(&profile, 1);
    run->profile = profile;
    if (rc == ERR_OK)
        rc = make(run, profile);
    TRY(comm_agree(run->comm, rc));
    TRY(compare_clocks(run, &profile->about));
    run->engine.kernels = run->engine.kernels->profiled;
    run->timeline = profile->timeline;
    run->events.timeline = profile->timeline;
    comm_set_timeline(run->comm, profile->timeline, TIMELINE_AGREE);
    return ERR_OK;
}

struct kernel_profile *trainer_profile_ops(const struct run *run)
{
    return run->profile != NULL ? run->profile->ops : NULL;
}

void trainer_profile_tell(const struct run *run)
{
    const struct trainer_profile *profile = run->profile;
    for (int i = 0; profile != NULL && i < profile->ranges.count; i++) {
        const struct profile_range *range = &profile->ranges.list[i];
        bool past = range->last <= run->position.step;
        bool beyond =
            run->plan.max_steps >= 0 && range->first > run->plan.max_steps;
        if (run->rank == 0 && (past || beyond))
            log_warn(
                "train.profile: steps %lld to %lld are not profiled: %s %lld",
                (long long)range->first, (long long)range->last,
                past ? "the run goes on behind step"
                     : "the last step of the run is",
                (long long)(past ? run->position.step : run->plan.max_steps));
    }
}

/* --- writing --- */

static enum err write_files(const struct trainer_profile *profile,
                            const char *run_dir)
{
    char folder[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    TRY(fsio_path(folder, "%s/profile/steps-%lld-%lld", run_dir,
                  (long long)profile->about.first,
                  (long long)profile->about.last));
    TRY(fsio_mkdirs(folder));
    if (profile->table.bytes > 0) {
        TRY(fsio_path(path, "%s/table.txt", folder));
        TRY(fsio_write_hint(path, profile->table.data, profile->table.bytes));
    }
    TRY(fsio_path(path, "%s/rank-%d.json", folder, profile->about.rank));
    return profile_file_write(path, profile->timeline, &profile->about);
}

void trainer_profile_destroy(struct run *run)
{
    struct trainer_profile *profile = run->profile;
    if (profile == NULL)
        return;
    comm_set_timeline(run->comm, NULL, TIMELINE_AGREE);
    run->profile = NULL;
    run->timeline = run->events.timeline = NULL;
    kernel_profile_destroy(profile->ops);
    timeline_destroy(profile->timeline);
    buffer_free(&profile->table);
    free(profile);
}

/* --- a range --- */

/* The whole range's ops that the device has not done in time, and a device that
 * says no, are no reason to end a run. */
static void warn_of_device(enum err rc)
{
    if (rc != ERR_OK)
        log_warn("profile: the device's times are not all there: %s",
                 err_text());
}

static void log_table(const struct buffer *table)
{
    const char *text = (const char *)table->data;
    for (size_t at = 0; at < table->bytes;) {
        size_t bytes = strcspn(text + at, "\n");
        log_info("%.*s", (int)bytes, text + at);
        at += bytes + 1;
    }
}

/* Rank 0's. */
static enum err make_table(struct trainer_profile *profile,
                           const struct profile_sums *sums)
{
    struct profile_shape shapes[PROFILE_SHAPES];
    int count = 0;
    profile->table.bytes = 0;
    TRY(profile_shapes(profile->timeline, shapes, &count));
    TRY(profile_table(sums, shapes, count, &profile->table));
    TRY(buffer_reserve(&profile->table, 1));
    profile->table.data[profile->table.bytes] = '\0';
    log_table(&profile->table);
    return ERR_OK;
}

/* Collective. */
static enum err end_range(struct run *run)
{
    struct trainer_profile *profile = run->profile;
    struct profile_about *about = &profile->about;
    struct profile_sums sums = { .first = profile->first,
                                 .last = run->position.step,
                                 .peak_flops = run->now.record.peak_flops };
    int64_t uncertain_ns = 0;
    assert(profile->first > 0 && profile->first <= run->position.step);
    warn_of_device(kernel_profile_finish(profile->ops, DEVICE_WAIT_S));
    timeline_stop(profile->timeline);
    sums.device = kernel_profile_times_device(profile->ops, &uncertain_ns);
    about->device_error_ns = sums.device ? uncertain_ns : -1;
    about->first = sums.first;
    about->last = sums.last;
    profile->first = 0;
    TRY(profile_sums_gather(run->comm, profile->timeline, &sums));
    if (run->rank == 0 && make_table(profile, &sums) != ERR_OK)
        log_warn("profile: no table: %s", err_text());
    snprintf(about->run, sizeof about->run, "%s", run->uuid);
    if (write_files(profile, run->settings.run.dir) != ERR_OK)
        log_warn("profile of steps %lld to %lld: no trace: %s",
                 (long long)sums.first, (long long)sums.last, err_text());
    return ERR_OK;
}

static void begin_range(struct run *run)
{
    struct trainer_profile *profile = run->profile;
    assert(profile->first == 0);
    profile->first = run->position.step + 1;
    timeline_start(profile->timeline);
    warn_of_device(kernel_profile_start(profile->ops, run->engine.stream));
}

enum err trainer_profile_before_step(struct run *run)
{
    struct trainer_profile *profile = run->profile;
    if (profile == NULL ||
        profile_ranges_at(&profile->ranges, run->position.step + 1) == NULL)
        return ERR_OK;
    if (profile->first == 0)
        begin_range(run);
    timeline_begin(profile->timeline, &profile->step, TIMELINE_STEP);
    return ERR_OK;
}

enum err trainer_profile_after_step(struct run *run)
{
    struct trainer_profile *profile = run->profile;
    struct timeline_detail detail = { .dims = "step",
                                      .dim = { run->position.step } };
    if (profile == NULL || profile->first == 0)
        return ERR_OK;
    timeline_end(&profile->step, &detail);
    warn_of_device(kernel_profile_follow(profile->ops));
    if (run->position.step < profile->first) { /* the first one was given up */
        warn_of_device(kernel_profile_finish(profile->ops, DEVICE_WAIT_S));
        timeline_stop(profile->timeline);
        profile->first = 0;
        return ERR_OK;
    }
    const struct profile_range *range =
        profile_ranges_at(&profile->ranges, run->position.step);
    bool ends = run->position.step == range->last || run->now.finished ||
                run->now.stop_signal != 0;
    return ends ? end_range(run) : ERR_OK;
}
