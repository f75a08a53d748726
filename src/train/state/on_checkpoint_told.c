/* What is told of saves: the log, the ledger and the profile have a line of each, of
 * kept steps one now and then. */
#include "src/train/state/on_checkpoint_parts.h"

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/timeline.h"
#include "src/base/units.h"
#include "src/job/ledger.h"

#define KEPT_S 10.0 /* between lines of kept steps that end alike */

static void log_save(const struct ckpt_progress *p)
{
    char size[32];
    units_bytes((double)p->bytes, size, sizeof size);
    if (p->phase == CKPT_PERSISTED)
        log_debug("step %lld persisted: %.2fs", (long long)p->step,
                  p->persist_s);
    else if (p->phase == CKPT_COMMITTED)
        log_info("step %lld committed%s: %s in %.2fs, of which training waited "
                 "%.3fs",
                 (long long)p->step, p->local ? " on the nodes" : "", size,
                 p->total_s, p->stage_s > 0 ? p->stage_s : p->total_s);
    else
        log_warn("step %lld: the save has failed: %s", (long long)p->step,
                 p->text);
}

/* A line that can't be written costs no checkpoint. */
static void record_end(const struct run *run,
                       const struct ckpt_progress *progress)
{
    bool committed = progress->phase == CKPT_COMMITTED;
    const char *event = !committed        ? "save-failed"
                        : progress->local ? "commit-local"
                                          : "commit";
    json_t *fields =
        committed
            ? json_pack("{s:I, s:I, s:f, s:f}", "step",
                        (json_int_t)progress->step, "bytes",
                        (json_int_t)progress->bytes, "seconds",
                        progress->persist_s + progress->commit_s, "stage_s",
                        progress->stage_s)
            : json_pack("{s:I, s:s, s:s}", "step", (json_int_t)progress->step,
                        "error", err_name(progress->error), "reason",
                        progress->text);
    if (ledger_append(run->settings.run.dir, event, run->attempt, fields) !=
        ERR_OK)
        log_warn("step %lld: no line in the ledger: %s",
                 (long long)progress->step, err_text());
}

/* Lines of each step would be as many as those of the metrics. */
static bool worth_a_line(struct on_checkpoint_told *told,
                         const struct ckpt_progress *progress)
{
    double now = clock_now();
    if (told->kept && progress->phase == told->last &&
        now - told->last_s < KEPT_S)
        return false;
    told->last = progress->phase;
    told->last_s = now;
    return true;
}

void on_checkpoint_tell(struct on_checkpoint_told *told,
                        const struct ckpt_progress *progress)
{
    bool persisted = progress->phase == CKPT_PERSISTED;
    const struct timeline_detail detail = {
        .label = persisted ? "checkpoint write" : "checkpoint commit",
        .dims = "step",
        .dim = { progress->step },
        .bytes = (double)progress->bytes,
    };
    double took_s = persisted ? progress->persist_s : progress->commit_s;
    int64_t now_ns = timeline_now();
    timeline_add(told->run->timeline, TIMELINE_SAVE,
                 now_ns - (int64_t)(took_s * 1e9), now_ns, &detail);
    if (persisted) {
        log_save(progress);
    } else if (worth_a_line(told, progress)) {
        log_save(progress);
        record_end(told->run, progress);
    }
}
