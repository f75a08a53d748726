/* tessera-ckpt interval: how often to save, from given numbers or from what a run
 * has measured; what is given on the command line counts more.
 *
 * The formula is checkpoint/ckpt_interval.h's; here its inputs are found. The
 * hardest is how often a node fails, of which a run has seen little: a run without
 * a failure must not be told that there are none. So the mean starts from a prior,
 * one failure in so many node-hours, and each hour and failure that the ledger
 * tells moves it; a long run is judged by what happened to it. */
#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/job/ledger_history.h"

#define SECONDS_PER_HOUR 3600.0
/* From a failure to the first step of the next attempt, when nothing is known:
 * a new step in the same job, or half of a short queue. */
#define RESTART_S 300.0

struct plan {
    struct ckpt_interval_input input;
    struct ckpt_interval best;
    const struct ledger_history *ledger; /* NULL: no run */
    double steps;                        /* between saves; -1: unknown */
};

static double interval_chosen(double given, double measured)
{
    return given >= 0 ? given : measured;
}

/* What a failure costs beyond the lost work, the way to the next step, was seen as
 * well; a run without one has none, and gets a guess. */
static enum err from_run(const struct ckpt_cmd *cmd,
                         struct ledger_history *ledger, struct plan *plan)
{
    TRY(ckpt_cmd_need_run(cmd->paths[0]));
    TRY(ledger_history_read(cmd->paths[0], ledger));
    if (ledger->cost_s < 0 && cmd->interval.cost_s < 0)
        return err_set(ERR_DATA,
                       "%s/ledger.jsonl has no commit with its duration: give "
                       "--cost",
                       cmd->paths[0]);
    double node_mtbf_h = ckpt_interval_node_mtbf_h(
        cmd->prior_hours, ledger->node_hours, ledger->failures);
    int nodes = ledger->nodes > 0 ? ledger->nodes : 1;
    assert(ledger->failures >= 0 && ledger->node_hours >= 0);
    plan->ledger = ledger;
    plan->input.cost_s = interval_chosen(plan->input.cost_s, ledger->cost_s);
    plan->input.persist_s =
        interval_chosen(plan->input.persist_s, ledger->persist_s);
    plan->input.mtbf_s = interval_chosen(
        plan->input.mtbf_s, node_mtbf_h * SECONDS_PER_HOUR / nodes);
    plan->input.restart_s =
        interval_chosen(plan->input.restart_s,
                        ledger->restart_s >= 0 ? ledger->restart_s : RESTART_S);
    return ERR_OK;
}

static const char *limit_name(enum ckpt_interval_limit limit)
{
    static const char *const names[] = { "exact", "persist", "overhead" };
    assert((size_t)limit < sizeof names / sizeof names[0]);
    return names[limit];
}

static json_t *plan_json(const struct plan *plan)
{
    const struct ckpt_interval_input *input = &plan->input;
    const struct ckpt_interval *best = &plan->best;
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:o, s:o, s:f}",
        "cost_s", input->cost_s, "persist_s", input->persist_s, "mtbf_s",
        input->mtbf_s, "restart_s", input->restart_s, "detect_s",
        input->detect_s, "young_s", best->young_s, "daly_s", best->daly_s,
        "exact_s", best->exact_s, "recommended_s", best->recommended_s, "limit",
        limit_name(best->limit), "steps",
        plan->steps >= 0 ? json_integer((json_int_t)plan->steps) : json_null(),
        "wall_factor", jsontext_real(best->wall_factor), "goodput",
        best->goodput);
    const struct ledger_history *ledger = plan->ledger;
    if (ledger == NULL)
        return object;
    json_t *seen = json_pack(
        "{s:i, s:i, s:i, s:i, s:f, s:o}", "attempts", ledger->attempts,
        "failures", ledger->failures, "commits", ledger->commits, "nodes",
        ledger->nodes, "node_hours", ledger->node_hours, "step_s",
        ledger->step_s >= 0 ? json_real(ledger->step_s) : json_null());
    jsontext_set(&object, "ledger", seen);
    return object;
}

static void print_time(const char *name, double seconds)
{
    printf("%-22s %12.1f s  (%s)\n", name, seconds, UNITS_SECONDS(seconds));
}

static void print_plan(const struct plan *plan)
{
    const struct ckpt_interval *best = &plan->best;
    const struct ledger_history *ledger = plan->ledger;
    if (ledger != NULL)
        printf("ledger: %d attempts, %d failures, %d commits, %.3g node-hours, "
               "%d nodes\n",
               ledger->attempts, ledger->failures, ledger->commits,
               ledger->node_hours, ledger->nodes);
    print_time("cost of a save", plan->input.cost_s);
    print_time("time between failures", plan->input.mtbf_s);
    print_time("restart", plan->input.restart_s);
    if (plan->input.persist_s > 0)
        print_time("persist", plan->input.persist_s);
    if (plan->input.detect_s > 0)
        print_time("detection", plan->input.detect_s);
    print_time("Young", best->young_s);
    print_time("Daly", best->daly_s);
    print_time("exact", best->exact_s);
    print_time("recommended interval", best->recommended_s);
    if (best->limit == CKPT_INTERVAL_PERSIST)
        printf("  (1.1 times the persist time: one save ends before the "
               "next)\n");
    if (best->limit == CKPT_INTERVAL_OVERHEAD)
        printf("  (the cost over the largest overhead)\n");
    if (plan->steps >= 0)
        printf("checkpoint.interval = \"%.0fba\" with steps of %.3g s\n",
               plan->steps, ledger->step_s);
    printf("expected goodput %.2f %%, wall time %.4g times the work\n",
           100 * best->goodput, best->wall_factor);
}

enum err ckpt_cmd_interval(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct ledger_history ledger;
    struct plan plan = { .input = cmd->interval, .steps = -1 };
    struct ckpt_interval_input *input = &plan.input;
    if (cmd->paths[0] != NULL)
        TRY(from_run(cmd, &ledger, &plan));
    if (input->cost_s < 0 || input->mtbf_s < 0) {
        return err_set(ERR_USAGE,
                       "interval needs RUN, or --cost S and --mtbf S; see "
                       "--help");
    }
    input->persist_s = interval_chosen(input->persist_s, 0);
    input->restart_s = interval_chosen(input->restart_s, RESTART_S);
    input->detect_s = interval_chosen(input->detect_s, 0);
    input->overhead_max = interval_chosen(input->overhead_max, 0);
    assert(input->persist_s >= 0 && input->restart_s >= 0);
    TRY(ckpt_interval(input, &plan.best));
    /* Upwards: a limit must hold, and near the best T the loss is flat. */
    if (plan.ledger != NULL && ledger.step_s > 0)
        plan.steps = fmax(1, ceil(plan.best.recommended_s / ledger.step_s));
    if (cmd->json)
        rc = ckpt_cmd_print(plan_json(&plan));
    else
        print_plan(&plan);
    return rc;
}
