/* Listener: runs the commands of hooks.on_*. Rank 0.
 *
 * A command gets one line of JSON: event, run (the run directory), attempt,
 * step, tokens, elapsed_s, finished, and, where they are known, loss, lr,
 * grad_norm, eval_loss and "scalars", all that was measured of the step by the
 * name that trackers have it under. The last step's batch_end is always told.
 * At the end the ledger's event "hooks" has the counts of calls that did not go
 * well.
 *
 * The line is made when the event comes, for what it says may change while the
 * command waits for its turn; the command runs beside the training
 * (hook_runner.c), and only the end of a run waits for it. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/job/ledger.h"
#include "src/tracking/tracking_record.h"
#include "src/train/extend/hook_runner.h"
#include "src/train/run/run.h"

#define SIGNAL_WAIT_S 5.0

struct hook {
    enum event event;
    const char *command; /* lent */
};

struct on_hooks {
    const struct run *run;
    struct hook_runner *runner; /* NULL: there are no hooks */
    struct hook list[HOOK_RUNNER_MAX];
    int count;
};

#define HOOK(group, type, field, ...) { EVENT_OF_##field, s->hooks.field },
#define EVENT_OF_on_fit_start EVENT_FIT_START
#define EVENT_OF_on_epoch_start EVENT_EPOCH_START
#define EVENT_OF_on_batch_end EVENT_BATCH_END
#define EVENT_OF_on_epoch_end EVENT_EPOCH_END
#define EVENT_OF_on_eval_end EVENT_EVAL_END
#define EVENT_OF_on_fit_end EVENT_FIT_END

static enum err on_hooks_create(void *self, const struct run *run)
{
    struct on_hooks *on = self;
    const struct train_settings *s = &run->settings;
    const struct hook all[] = { HOOK_COMMANDS(HOOK) };
    _Static_assert(sizeof all / sizeof all[0] <= HOOK_RUNNER_MAX,
                   "room for all hooks");
    on->run = run;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].command[0] != '\0')
            on->list[on->count++] = all[i];
    if (on->count == 0)
        return ERR_OK;
    return hook_runner_create(s->hooks.timeout_s, &on->runner);
}

static json_t *scalars_of(const struct step_record *step)
{
    const struct tracking_record *record = tracking_list_record(step->scalars);
    json_t *scalars = json_object();
    for (int i = 0; i < record->count; i++)
        jsontext_set(&scalars, record->scalars[i].name,
                     jsontext_real(record->scalars[i].value));
    return scalars;
}

/* With a newline; NULL: out of memory. */
static char *line_of(const struct on_hooks *on, enum event event,
                     const struct step_record *step)
{
    char *text = NULL, *whole = NULL;
    json_t *line = json_pack(
        "{s:s, s:o, s:i, s:I, s:I, s:f, s:b}", "event", events_name(event),
        "run", jsontext_string(on->run->settings.run.dir), "attempt",
        step->attempt, "step", (json_int_t)step->step, "tokens",
        (json_int_t)step->tokens, "elapsed_s", step->elapsed_s, "finished",
        (int)step->finished);
    if (event == EVENT_BATCH_END) {
        jsontext_set(&line, "loss", jsontext_real(step->loss));
        jsontext_set(&line, "lr", jsontext_real(step->lr));
        jsontext_set(&line, "grad_norm", jsontext_real(step->grad_norm));
    }
    if (step->eval.step >= 0)
        jsontext_set(&line, "eval_loss", jsontext_real(step->eval.loss));
    jsontext_set(&line, "scalars", scalars_of(step));
    if (jsontext_make(line, 0, &text) != ERR_OK ||
        asprintf(&whole, "%s\n", text) < 0)
        whole = NULL;
    free(text);
    json_decref(line);
    return whole;
}

/* Steps come too often to start a process for each. */
static bool is_due(const struct on_hooks *on, enum event event,
                   const struct step_record *step)
{
    return event != EVENT_BATCH_END || step->finished ||
           step->stop_signal != 0 ||
           run_due(on->run, on->run->settings.hooks.interval);
}

static enum err on_hooks_handle(void *self, enum event event,
                                const struct step_record *step,
                                struct asks *asks)
{
    struct on_hooks *on = self;
    (void)asks;
    for (int i = 0; i < on->count; i++) {
        if (on->list[i].event != event || !is_due(on, event, step))
            continue;
        assert(on->runner != NULL && step->rank == 0);
        char *line = line_of(on, event, step);
        hook_runner_call(on->runner, i, events_name(event), on->list[i].command,
                         line != NULL ? line : "{}\n");
        free(line);
    }
    return ERR_OK;
}

static void tell_counts(const struct on_hooks *on,
                        const struct hook_count *count)
{
    json_t *failures = json_object();
    assert(on->count <= HOOK_RUNNER_MAX);
    for (int i = 0; i < on->count; i++) {
        const struct hook_count *c = &count[i];
        const char *name = events_name(on->list[i].event);
        if (c->failed + c->ended + c->replaced == 0)
            continue;
        log_warn("hooks.on_%s: of %lld calls %lld failed, %lld took too long, "
                 "%lld were left out, as others still ran",
                 name, (long long)c->called, (long long)c->failed,
                 (long long)c->ended, (long long)c->replaced);
        json_object_set_new(failures, name,
                            json_pack("{s:I, s:I, s:I, s:I}", "called",
                                      (json_int_t)c->called, "failed",
                                      (json_int_t)c->failed, "ended",
                                      (json_int_t)c->ended, "replaced",
                                      (json_int_t)c->replaced));
    }
    if (json_object_size(failures) == 0)
        json_decref(failures);
    else if (ledger_append(on->run->settings.run.dir, "hooks", on->run->attempt,
                           json_pack("{s:o}", "hooks", failures)) != ERR_OK)
        log_warn("hooks: %s", err_text());
}

/* How long the end of a run may wait for its commands: the other ranks wait,
 * too, and after a signal there is little time. */
static double patience(const struct run *run)
{
    const struct train_settings *s = &run->settings;
    double wait_s = fmin(s->hooks.timeout_s, s->parallel.timeout_s / 4);
    return run->now.stop_signal != 0 ? fmin(wait_s, SIGNAL_WAIT_S) : wait_s;
}

static bool on_hooks_leave(void *self, bool together)
{
    struct on_hooks *on = self;
    struct hook_count count[HOOK_RUNNER_MAX];
    (void)together;
    if (on->runner == NULL)
        return true;
    hook_runner_destroy(on->runner, patience(on->run), count);
    on->runner = NULL;
    tell_counts(on, count);
    return true;
}

const struct listener_ops on_hooks_ops = { LISTENER_OF(struct on_hooks),
                                           .create = on_hooks_create,
                                           .handle = on_hooks_handle,
                                           .leave = on_hooks_leave };
