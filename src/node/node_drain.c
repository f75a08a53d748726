/* Each thing to do is a command of Slurm's, a row of a table; what it prints is
 * parsed into what the decision is made of (src/control/cluster.h). Nothing is
 * decided here: a loop asks drain_next() or undrain_next() what to do, does it, and tells what came
 * of it, as the simulation of many nodes does (tests/test_drain_histories.c). */
#include "src/node/node_drain.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/job/slurm_run.h"

/* For each question to Slurm, and the most that is read of an answer. */
#define ASK_S 8.0
#define ANSWER_BYTES_MAX ((size_t)64 << 20)
#define ARGUMENTS_MAX 10

/* NODE and TEXT stand for themselves within an argument. */
#define RESERVATION(start)                                                     \
    {                                                                          \
        "scontrol", "create", "reservation", "reservationname=TEXT",           \
            "nodes=NODE", "starttime=" start, "duration=1", "users=root",      \
            "flags=IGNORE_JOBS,OVERLAP"                                        \
    }
static const char *const commands[][ARGUMENTS_MAX] = {
    [DRAIN_NODE] = { "sinfo", "-a", "-h", "-N", "-n", "NODE", "-o",
                     "%N|%T|%R|%E" },
    [DRAIN_LOCK] = RESERVATION("now"),
    [DRAIN_MARKS] = { "scontrol", "-o", "show", "reservation" },
    [DRAIN_SHARES] = { "sinfo", "-a", "-h", "-N", "-o", "%N|%T|%R" },
    [DRAIN_MARK] = RESERVATION("now+3000days"),
    [DRAIN_MARK_NOW] = RESERVATION("now"),
    [DRAIN_UPDATE] = { "scontrol", "update", "nodename=NODE", "state=drain",
                       "reason=TEXT" },
    [DRAIN_REMOVE] = { "scontrol", "delete", "reservationname=TEXT" },
    [DRAIN_RESUME] = { "scontrol", "update", "nodename=NODE", "state=resume" },
};

/* The command of an action; *status as slurm_run()'s. */
static int run_command(const struct drain_action *action, const char *node,
                       double end_s, struct buffer *answer)
{
    const char *const *command = commands[action->what];
    char texts[ARGUMENTS_MAX][sizeof action->text + 64];
    char *argv[ARGUMENTS_MAX + 1] = { NULL };
    for (int i = 0; i < ARGUMENTS_MAX && command[i] != NULL; i++) {
        const char *mark = strstr(command[i], "NODE");
        const char *value = mark != NULL ? node : action->text;
        if (mark == NULL)
            mark = strstr(command[i], "TEXT");
        snprintf(texts[i], sizeof texts[i], "%.*s%s",
                 (int)(mark != NULL ? mark - command[i]
                                    : (ptrdiff_t)strlen(command[i])),
                 command[i], mark != NULL ? value : "");
        argv[i] = texts[i];
    }
    double left_s = end_s - clock_now();
    return slurm_run(argv,
                     left_s < ASK_S ? (left_s > 0.5 ? left_s : 0.5) : ASK_S,
                     ANSWER_BYTES_MAX, answer);
}

/* What is known at a time, and the words of the last failure. */
struct told {
    struct cluster_node node;
    struct cluster_marks marks;
    struct cluster_shares shares;
    char said[200];
};

static void hear(const struct drain_action *action, const char *node,
                 const struct buffer *answer, int status, struct told *told,
                 struct drain_event *event)
{
    const char *text = (const char *)answer->data;
    enum err rc = status == 0 ? ERR_OK : ERR_IO;
    event->answered = status >= 0;
    if (rc == ERR_OK && action->what == DRAIN_NODE &&
        (rc = cluster_node_parse(text, node, &told->node)) == ERR_OK)
        event->node = &told->node;
    if (rc == ERR_OK && action->what == DRAIN_MARKS &&
        (rc = cluster_marks_parse(text, &told->marks)) == ERR_OK)
        event->marks = &told->marks;
    if (rc == ERR_OK && action->what == DRAIN_SHARES &&
        (rc = cluster_shares_parse(text, &told->node, node, &told->shares)) ==
            ERR_OK)
        event->shares = &told->shares;
    event->done = rc == ERR_OK;
    if (rc == ERR_OK)
        return;
    if (status == 0)
        snprintf(told->said, sizeof told->said, "%s", err_text());
    else if (status < 0)
        snprintf(told->said, sizeof told->said, "%s %s does not answer",
                 commands[action->what][0], commands[action->what][1]);
    else
        snprintf(told->said, sizeof told->said, "%.*s",
                 (int)strcspn(text, "\n"), text);
    event->said = told->said;
}

/* Does one action, and hears what came of it. */
static void serve(const struct drain_action *action, const char *node,
                  double end_s, const struct node_drain_calls *calls,
                  struct told *told, struct drain_event *event)
{
    struct buffer answer = { 0 };
    *event = (struct drain_event){ .answered = true, .done = true };
    switch (action->what) {
    case DRAIN_SAY:
        calls->say(calls->arg, action->outcome, action->text);
        break;
    case DRAIN_PAUSE:
        clock_sleep(action->seconds);
        break;
    case DRAIN_LOOK:
        event->sound = calls->sound(calls->arg, action->text);
        break;
    default:
        assert((size_t)action->what < sizeof commands / sizeof *commands);
        hear(action, node, &answer, run_command(action, node, end_s, &answer),
             told, event);
    }
    event->now_s = clock_now();
    buffer_free(&answer);
}

/* By undrain_next() where there is an `undrain`, else by drain_next(). */
static void serve_all(struct drain *drain, struct undrain *undrain,
                      const char *node, double end_s,
                      const struct node_drain_calls *calls)
{
    struct drain_action action;
    struct drain_event event = { .now_s = clock_now() };
    struct told *told = calloc(1, sizeof *told);
    if (told == NULL)
        calls->say(calls->arg, "failed", "left as it is, no memory");
    while (told != NULL &&
           (action = undrain != NULL ? undrain_next(undrain, &event)
                                     : drain_next(drain, &event))
                   .what != DRAIN_END)
        serve(&action, node, end_s, calls, told, &event);
    free(told);
}

bool node_drain(const struct drain_request *request,
                const struct node_drain_calls *calls)
{
    struct drain drain;
    drain_begin(&drain, request);
    serve_all(&drain, NULL, request->node, request->end_s, calls);
    return drain.out;
}

bool node_undrain(const struct undrain_request *request, double end_s,
                  const struct node_drain_calls *calls)
{
    struct undrain undrain;
    undrain_begin(&undrain, request);
    serve_all(NULL, &undrain, request->node, end_s, calls);
    return undrain.back;
}
