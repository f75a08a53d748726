/* Listener: who holds the run up (src/control/slow.h, `watch.*`): a line of the
 * log, the ledger's event "slow", a call of TESSERA_NOTIFY, figures. Rank 0 judges
 * what all have told at the step's end, but of steps that are longer by design: the
 * first ones, the one behind an evaluation or a save, one of another length. What it
 * can't judge it says.
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
#include "src/train/extend/hook_runner.h"
#include "src/train/run/run.h"

#define SETTLES 5     /* first steps that are left out */
#define NOTIFY_S 12.0 /* more than the command gives by itself */
#define TEXT_BYTES 600

struct on_watch {
    const struct run *run; /* lent */
    struct slow *slow;
    double *work_s; /* [ranks] */
    bool even;      /* ranks have the same work */
    double last_s;  /* clock_now() at the last step's end */
    int64_t steps;  /* of this attempt */
    int64_t shape;  /* tokens of the last step */
    bool fresh;     /* that has changed since the last step that counts */
    struct slow_gaps gaps;
    int64_t missed; /* steps in a row that do not count */
    bool quiet;     /* trackers have figures of which none is slow */
    struct hook_runner *notifier; /* NULL: nobody wants to hear of it */
    double notified_s[SLOW_KINDS];
    long number;                   /* of Slurm's job */
    struct slow_verdict straggler; /* the worst that is told; rank -1: none */
    struct slow_job job;
    double replaced_s;       /* clock_wall() of the job's last replacement */
    enum slow_action action; /* the last that was told */
};

static void watch_destroy(void *self)
{
    struct on_watch *watch = self;
    struct hook_count count[HOOK_RUNNER_MAX];
    hook_runner_destroy(watch->notifier, 1.0, count);
    slow_destroy(watch->slow);
    free(watch->work_s);
}

/* Why the work of ranks differs by design, or looks alike whoever is slow; NULL: it
 * does not. */
static const char *unlike(const struct run *run, bool *even)
{
    const struct train_settings *s = &run->settings;
    char exchange[64] = "";
    int64_t units = s->parallel.strategy >= REPLICA_ZERO2
                        ? s->train.global_batch / s->train.microbatch
                        : s->parallel.slots;
    if (s->parallel.expert_degree > 1)
        return "parallel.expert_degree is above 1";
    if (s->parallel.sequence_degree > 1)
        return "parallel.sequence_degree is above 1";
    if (units % run->ranks != 0)
        return "they have other numbers of leaves";
    if (run->engine.devices[0] != '\0')
        replica_exchange(run->engine.replica, exchange, sizeof exchange);
    if (strncmp(exchange, "nccl", 4) == 0)
        return "a GPU's wait for others within NCCL looks like work";
    *even = true;
    return NULL;
}

/* What there is to know before a node is replaced. */
static enum err learn_job(struct on_watch *watch)
{
    const struct run *run = watch->run;
    const char *spare = getenv("TESSERA_SPARE_NODES"), *last = "";
    struct ledger_job ledger;
    TRY(ledger_job_read(run->settings.run.dir, watch->number, &ledger));
    watch->replaced_s = ledger.replaced_s;
    watch->job = (struct slow_job){
        .may = run->settings.watch.on_straggler == WATCH_SWEEP ? SLOW_SWEEP
                                                               : SLOW_REPLACE,
        .window = (int)run->settings.watch.window,
        .spares = watch->number != 0 && spare != NULL ? atoi(spare) : -1,
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
    const char *wants = getenv("TESSERA_NOTIFY");
    struct slurm slurm;
    watch->run = run;
    watch->straggler.rank = -1;
    if (s->watch.on_straggler == WATCH_OFF)
        return ERR_OK;
    slurm_read(&slurm);
    watch->number = slurm.job_id;
    const char *why = run->ranks > 1 ? unlike(run, &watch->even) : NULL;
    if (why != NULL)
        log_info("no rank will be told as slower than others, since %s; the "
                 "run's rate and waits for samples will (watch.*)",
                 why);
    if (wants != NULL && wants[0] != '\0')
        TRY(hook_runner_create(NOTIFY_S, &watch->notifier));
    if (s->watch.on_straggler >= WATCH_SWEEP)
        TRY(learn_job(watch));
    TRY(new_zeroed(&watch->work_s, (size_t)run->ranks));
    return slow_create(run->ranks, (int)s->watch.window, &watch->slow);
}

/* As jobs/lib/next.sh calls it; each kind once in watch.cooldown_s. */
static void notify(struct on_watch *watch, enum slow_kind kind,
                   const char *text)
{
    static const char command[] =
        "IFS= read -r run && IFS= read -r job && IFS= read -r text\n"
        "timeout --foreground -k 1 10 \"$TESSERA_NOTIFY\" \"$TESSERA_EVENT\" "
        "\"$run\" "
        "\"$job\" \"$text\" </dev/null >/dev/null 2>&1 || echo "
        "\"TESSERA_NOTIFY $TESSERA_NOTIFY failed (code $?), nobody was told "
        "of $TESSERA_EVENT\" >&2";
    const struct train_settings *s = &watch->run->settings;
    char input[sizeof s->run.dir + TEXT_BYTES + 32];
    double now_s = clock_now(), last_s = watch->notified_s[kind];
    if (watch->notifier == NULL ||
        (last_s > 0.0 && now_s - last_s < s->watch.cooldown_s))
        return;
    watch->notified_s[kind] = now_s;
    snprintf(input, sizeof input, "%s\n%ld\n%s\n", s->run.dir, watch->number,
             text);
    hook_runner_call(watch->notifier, (int)kind, slow_kind_names[kind], command,
                     input);
}

static void say(struct on_watch *watch, const struct step_record *step,
                const struct slow_verdict *v, const char *node)
{
    char text[TEXT_BYTES];
    long long at = (long long)step->step, since = (long long)v->since;
    if (v->over && v->kind == SLOW_RATE)
        snprintf(text, sizeof text,
                 "step %lld: the run has its usual rate again", at);
    else if (v->over)
        snprintf(text, sizeof text,
                 "step %lld: rank %d (%s): no %s since step %lld any more", at,
                 v->rank, node, slow_kind_names[v->kind], since);
    else if (v->kind == SLOW_RANK)
        snprintf(text, sizeof text,
                 "step %lld: rank %d (%s) takes %.2f times as long as the "
                 "median of %d ranks for its own work, since step %lld: look "
                 "there for a throttled or shared processor or GPU",
                 at, v->rank, node, v->factor, step->ranks, since);
    else if (v->kind == SLOW_LOADER)
        snprintf(text, sizeof text,
                 "step %lld: rank %d (%s) waits for samples for %.0f %% of its "
                 "steps, since step %lld: raise data.prefetch",
                 at, v->rank, node, 100.0 * v->factor, since);
    else
        snprintf(text, sizeof text,
                 "step %lld: %.2f of the run's usual rate, since step %lld", at,
                 v->factor, since);
    if (v->over) {
        log_info("%s", text);
    } else {
        log_warn("%s", text);
        notify(watch, v->kind, text);
    }
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
    const struct slow_verdict rate = slow_told(watch->slow, SLOW_RATE);
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

/* Why it is no step like those before; NULL: it is one. */
static const char *unusual(struct on_watch *watch,
                           const struct step_record *step)
{
    const struct run_step *now = &watch->run->now;
    double now_s = clock_now();
    double between_s = now_s - watch->last_s - step->step_s;
    bool same = now->seq_len * now->samples == watch->shape;
    bool usual =
        watch->steps == 0 || slow_gap(&watch->gaps, between_s, step->step_s);
    watch->last_s = now_s;
    watch->shape = now->seq_len * now->samples;
    watch->fresh = watch->fresh || !same;
    if (++watch->steps <= SETTLES)
        return "the first ones take longer";
    if (!same)
        return "they have other numbers of tokens";
    if (step->skipped)
        return "their updates were left out";
    return usual ? NULL : "what comes between them takes longer and longer";
}

/* A watch that sees nothing says so. */
static bool counts(struct on_watch *watch, const struct step_record *step)
{
    const char *why = unusual(watch, step);
    watch->missed = why == NULL ? 0 : watch->missed + 1;
    if (watch->missed == SETTLES + 2 * watch->run->settings.watch.window)
        log_warn("step %lld: nobody was looked for in the last %lld steps, "
                 "since %s (watch.*)",
                 (long long)step->step, (long long)watch->missed, why);
    return why == NULL;
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

/* Figures with the first step that is logged, while anything is slow, and once when that
 * is over: trackers keep the last value. */
static void measure(struct on_watch *watch, const struct step_record *step)
{
    const struct slow_verdict *rank = &watch->straggler,
                              rate = slow_told(watch->slow, SLOW_RATE),
                              loader = slow_told(watch->slow, SLOW_LOADER);
    bool quiet = rank->rank < 0 && rate.since < 0 && loader.since < 0;
    if (!step_record_logs(step) || (quiet && watch->quiet))
        return;
    watch->quiet = quiet;
    if (watch->even) {
        tracking_list_add(step->scalars, "watch/straggler_rank", rank->rank);
        tracking_list_add(step->scalars, "watch/slowdown",
                          rank->rank < 0 ? 1.0 : rank->factor);
    }
    tracking_list_add(step->scalars, "watch/rate",
                      rate.since < 0 ? 1.0 : rate.factor);
    tracking_list_add(step->scalars, "watch/loader",
                      loader.since < 0 ? 0.0 : loader.factor);
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
            say(watch, step, &verdicts[i], node_of(watch, verdicts[i].rank));
            TRY(record(watch, step->step, &verdicts[i], SLOW_WARN));
        }
        if (count > 0 || watch->straggler.rank >= 0)
            watch->straggler = slow_told(watch->slow, SLOW_RANK);
        TRY(act(watch, step->step));
    }
    measure(watch, step);
    return ERR_OK;
}

const struct listener_ops on_watch_ops = { LISTENER_OF(struct on_watch),
                                           .create = watch_create,
                                           .destroy = watch_destroy,
                                           .handle = watch_handle };
