/* Listener: who holds the run up (src/control/slow.h, `watch.*`): a line of the
 * log, the ledger's event "slow", figures while there is a straggler. Rank 0 judges
 * what all have told at the step's end, but of steps that are longer by design: the
 * first ones, the one behind an evaluation or a save, one of another length.
 *
 * With watch.on_straggler = "sweep" or "replace" it asks to stop where slow_act() says
 * so; what the ledger then has tells `tessera-ckpt next` that the job goes on, with the
 * nodes' whole check or without, and `tessera-ckpt nodes` who stands last. How many nodes are spare the launch script
 * has put into the environment. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/control/slow.h"
#include "src/job/ledger.h"
#include "src/job/ledger_history.h"
#include "src/job/slurm.h"
#include "src/job/stop.h"
#include "src/train/run/run.h"

#define SETTLES 5         /* first steps that are left out */
#define BETWEEN 0.25      /* of a step, */
#define BETWEEN_S_MIN 0.1 /* and at least, that comes between two */

struct on_watch {
    const struct run *run; /* lent */
    struct slow *slow;
    double *work_s; /* [ranks] */
    bool even;      /* ranks have the same work */
    double last_s;  /* clock_now() at the last step's end */
    int64_t steps;  /* of this attempt */
    int64_t shape;  /* tokens of the last step */
    bool fresh;     /* that has changed since the last step that counts */
    struct slow_verdict straggler; /* the worst that is told; rank -1: none */
    struct slow_job job;
    double replaced_s;       /* clock_wall() of the job's last replacement */
    enum slow_action action; /* the last that was told */
};

static void watch_destroy(void *self)
{
    struct on_watch *watch = self;
    slow_destroy(watch->slow);
    free(watch->work_s);
}

/* As many leaves for each, and none that several compute together. */
static bool is_even(const struct run *run)
{
    const struct train_settings *s = &run->settings;
    int64_t units = s->parallel.strategy >= REPLICA_ZERO2
                        ? s->train.global_batch / s->train.microbatch
                        : s->parallel.slots;
    return run->ranks > 1 && s->parallel.expert_degree == 1 &&
           s->parallel.sequence_degree == 1 && units % run->ranks == 0;
}

/* What there is to know before a node is replaced. */
static enum err learn_job(struct on_watch *watch)
{
    const struct run *run = watch->run;
    const char *spare = getenv("TESSERA_SPARE_NODES"), *last = "";
    struct ledger_job ledger;
    struct slurm slurm;
    slurm_read(&slurm);
    TRY(ledger_job_read(run->settings.run.dir, slurm.job_id, &ledger));
    watch->replaced_s = ledger.replaced_s;
    watch->job = (struct slow_job){
        .may = run->settings.watch.on_straggler == WATCH_SWEEP ? SLOW_SWEEP
                                                               : SLOW_REPLACE,
        .window = (int)run->settings.watch.window,
        .spares = slurm.job_id != 0 && spare != NULL ? atoi(spare) : -1,
        .done = ledger.replaced,
        .budget = (int)run->settings.watch.replacements,
        .cooldown_s = run->settings.watch.cooldown_s,
    };
    ledger_job_free(&ledger);
    for (int r = 0; r < run->ranks; r++) {
        watch->job.nodes += strcmp(comm_host(run->comm, r), last) != 0;
        last = comm_host(run->comm, r);
    }
    return ERR_OK;
}

static enum err watch_create(void *self, const struct run *run)
{
    struct on_watch *watch = self;
    const struct train_settings *s = &run->settings;
    watch->run = run;
    watch->straggler.rank = -1;
    watch->even = is_even(run);
    if (s->watch.on_straggler == WATCH_OFF)
        return ERR_OK;
    if (s->watch.on_straggler >= WATCH_SWEEP)
        TRY(learn_job(watch));
    TRY(new_zeroed(&watch->work_s, (size_t)run->ranks));
    return slow_create(run->ranks, (int)s->watch.window, &watch->slow);
}

static void say(const struct step_record *step, const struct slow_verdict *v,
                const char *node)
{
    long long at = (long long)step->step, since = (long long)v->since;
    if (v->over && v->kind == SLOW_RATE)
        log_info("step %lld: the run has its usual rate again", at);
    else if (v->over)
        log_info("step %lld: rank %d (%s): no %s since step %lld any more", at,
                 v->rank, node, slow_kind_names[v->kind], since);
    else if (v->kind == SLOW_RANK)
        log_warn("step %lld: rank %d (%s) takes %.2f times as long as the "
                 "median of %d ranks for its own work, since step %lld: look "
                 "there for a throttled or shared processor or GPU",
                 at, v->rank, node, v->factor, step->ranks, since);
    else if (v->kind == SLOW_LOADER)
        log_warn("step %lld: rank %d (%s) waits for samples for %.0f %% of its "
                 "steps, since step %lld: raise data.prefetch",
                 at, v->rank, node, 100.0 * v->factor, since);
    else
        log_warn("step %lld: %.2f of the run's usual rate, since step %lld", at,
                 v->factor, since);
}

static const char *node_of(const struct on_watch *watch, int rank)
{
    return rank < 0 ? "all" : comm_host(watch->run->comm, rank);
}

static enum err record(const struct on_watch *watch, int64_t step,
                       const struct slow_verdict *v, enum slow_action action)
{
    json_t *fields =
        json_pack("{s:s, s:b, s:i, s:s, s:I, s:I, s:f}", "kind",
                  slow_kind_names[v->kind], "over", v->over, "rank", v->rank,
                  "node", node_of(watch, v->rank), "step", (json_int_t)step,
                  "since", (json_int_t)v->since, "factor", v->factor);
    if (!v->over)
        json_object_set_new(fields, "action",
                            json_string(slow_action_names[action]));
    return ledger_append(watch->run->settings.run.dir, "slow",
                         watch->run->attempt, fields);
}

/* What becomes of a straggler, or else of a rate, where that has changed. */
static enum err act(struct on_watch *watch, int64_t step)
{
    static const char *const why[] = {
        [SLOW_NO_JOB] = "it has no launch script of a Slurm job",
        [SLOW_ONE_NODE] = "all ranks are on one node",
        [SLOW_NO_SPARE] = "no node is spare and sound (TESSERA_SPARES)",
        [SLOW_SPENT] = "watch.replacements are spent",
        [SLOW_COOLS] = "watch.cooldown_s since the last one are not over",
    };
    bool ranks = watch->straggler.rank >= 0;
    const struct slow_verdict rate = slow_rate(watch->slow);
    const struct slow_verdict *v = ranks ? &watch->straggler : &rate;
    struct slow_job *job = &watch->job;
    char who[300] = "the run";
    if (v->since < 0 || stop_requested() != 0)
        return ERR_OK;
    job->kind = v->kind;
    job->steps = step - v->since;
    job->since_s = clock_wall() - watch->replaced_s;
    enum slow_action action = slow_act(job);
    if (action == SLOW_WARN || action == watch->action)
        return ERR_OK;
    watch->action = action;
    if (ranks)
        snprintf(who, sizeof who, "rank %d (%s)", v->rank,
                 node_of(watch, v->rank));
    TRY(record(watch, step, v, action));
    if (action < SLOW_SWEEP) {
        log_warn("step %lld: %s stays slow, and %s: %s", (long long)step, who,
                 job->may == SLOW_REPLACE && ranks ? "its node is not replaced"
                                                   : "no node is checked",
                 why[action]);
        return ERR_OK;
    }
    log_warn("step %lld: %s stays slow: the run saves, and goes on %s "
             "(replacement or check %d of %d in this job)",
             (long long)step, who,
             action == SLOW_SWEEP ? "when all nodes have been checked"
                                  : "with a spare node",
             job->done + 1, job->budget);
    stop_request(STOP_BY_SLOW);
    return ERR_OK;
}

/* Is it a step like those before? */
static bool counts(struct on_watch *watch, const struct step_record *step)
{
    const struct run_step *now = &watch->run->now;
    double now_s = clock_now();
    double between_s = now_s - watch->last_s - step->step_s;
    bool same = now->seq_len * now->samples == watch->shape;
    watch->last_s = now_s;
    watch->shape = now->seq_len * now->samples;
    watch->fresh = watch->fresh || !same;
    return ++watch->steps > SETTLES && same && !step->skipped &&
           between_s < fmax(BETWEEN * step->step_s, BETWEEN_S_MIN);
}

static void look(struct on_watch *watch, const struct step_record *step,
                 struct slow_seen *seen)
{
    for (int r = 0; r < step->ranks; r++) {
        const struct step_rank *rank = &step->of_rank[r];
        double share = rank->loader_s / rank->step_s;
        watch->work_s[r] = step_record_work_s(rank);
        if (share > seen->loader) {
            seen->loader = share;
            seen->loader_rank = r;
        }
    }
    seen->work_s = watch->even ? watch->work_s : NULL;
    seen->rate = step->tokens_per_s;
    seen->fresh = watch->fresh;
    watch->fresh = false;
}

static enum err watch_handle(void *self, enum event event,
                             const struct step_record *step, struct asks *asks)
{
    struct on_watch *watch = self;
    struct slow_verdict verdicts[SLOW_VERDICTS];
    struct slow_seen seen = { .step = step->step, .step_s = step->step_s };
    (void)event, (void)asks;
    if (watch->slow == NULL)
        return ERR_OK;
    assert(step->rank == 0 && step->ranks == watch->run->ranks);
    if (counts(watch, step)) {
        look(watch, step, &seen);
        int count = slow_step(watch->slow, &seen, verdicts);
        for (int i = 0; i < count; i++) {
            say(step, &verdicts[i], node_of(watch, verdicts[i].rank));
            TRY(record(watch, step->step, &verdicts[i], SLOW_WARN));
        }
        if (count > 0 || watch->straggler.rank >= 0)
            watch->straggler = slow_worst(watch->slow);
        TRY(act(watch, step->step));
    }
    if (watch->straggler.rank >= 0 && step_record_logs(step)) {
        tracking_list_add(step->scalars, "watch/straggler_rank",
                          watch->straggler.rank);
        tracking_list_add(step->scalars, "watch/slowdown",
                          watch->straggler.factor);
    }
    return ERR_OK;
}

const struct listener_ops on_watch_ops = {
    .bytes = sizeof(struct on_watch),
    .create = watch_create,
    .destroy = watch_destroy,
    .handle = watch_handle,
};
