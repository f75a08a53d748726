/* The way from the end of an attempt to a decision: job.h has the picture. The
 * functions stand in the order in which a job walks through them; each either
 * decides, or asks for what the next one must know. */
#include "src/control/job.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/exit_code.h"

/* Attempts in vain, and starts that a signal forestalled, in a row. */
#define ROW_MAX 3
#define SILENCED_MAX 10
#define PAUSE_S 10
#define SIGNAL_CODES 128
#define SIGNALS 64

const char *const job_ended_names[] = { "itself",  "node",  "start", "hang",
                                        "stopped", "nodes", "host",  NULL };
const char *const job_what_names[] = { "ask",       "room",  "scavenge",
                                       "ask-again", "retry", "requeue",
                                       "end",       NULL };

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

#define say(d, ...) snprintf((d)->words, sizeof(d)->words, __VA_ARGS__)

static void decide(struct job_decision *d, enum job_what what, int exit_code,
                   const char *event)
{
    d->what = what;
    d->exit_code = exit_code;
    d->event = event;
}

static void end(struct job_decision *d, int code)
{
    decide(d, JOB_END, code, "stop");
    d->code = code;
    say(d, "stopped: %s", d->reason);
}

static void end_state(struct job_decision *d, const char *state)
{
    char cause[sizeof d->reason];
    snprintf(cause, sizeof cause, "%s", d->reason);
    if (strcmp(state, "unanswered") == 0)
        snprintf(d->reason, sizeof d->reason, "Slurm did not answer; %.500s",
                 cause);
    else
        snprintf(d->reason, sizeof d->reason, "job is %.64s; %.500s", state,
                 cause);
    end(d, EXIT_RETRY);
}

/* --- the ends of a job --- */

/* Where a checkpoint is on the nodes alone it is saved first. */
static bool to_scavenge(const struct job_facts *f, struct job_decision *d)
{
    if (f->scavenged == JOB_UNKNOWN)
        d->what = JOB_SCAVENGE;
    return f->scavenged == JOB_UNKNOWN;
}

static void give_up(const struct job_facts *f, struct job_decision *d,
                    const char *why)
{
    char cause[sizeof d->reason];
    if (to_scavenge(f, d))
        return;
    snprintf(cause, sizeof cause, "%s", d->reason);
    snprintf(d->reason, sizeof d->reason, "%s: %.500s", why, cause);
    decide(d, JOB_END, EXIT_STOP, "give-up");
    d->code = EXIT_STOP;
    const char *newest = text_of(f->newest);
    say(d,
        "given up: %s (newest checkpoint: %s): %.500s. Mend the cause and "
        "submit again.",
        why, *newest != '\0' ? newest : "none", cause);
}

/* Never with 0: what waits for the finished run with afterok would begin. Slurm
 * calls the job FAILED, and 85 tells it from those that did. */
static void leave_to_next(const struct job_facts *f, struct job_decision *d)
{
    bool kept = d->code == EXIT_REQUEUE || d->progress != JOB_FALSE;
    char cause[sizeof d->reason];
    snprintf(cause, sizeof cause, "%.500s", d->reason);
    decide(d, JOB_END, kept ? EXIT_REQUEUE : EXIT_RETRY, "stop");
    d->code = d->exit_code;
    say(d,
        "%s; this job cannot be requeued, %s: the run goes on in the next job "
        "of the same line, which you submit unless one waits already with "
        "--dependency=singleton",
        cause, kept ? "nothing is lost" : "given up for now");
    snprintf(d->reason, sizeof d->reason,
             "%.500s, and job %.64s cannot be "
             "requeued",
             cause, text_of(f->job));
}

/* A requeue is decided long before it is done, after saving and waiting, and
 * what was cancelled meanwhile must not come back. */
static void requeue(const struct job_facts *f, struct job_decision *d)
{
    if (to_scavenge(f, d))
        return;
    if (f->scavenged == JOB_YES) {
        d->progress = JOB_TRUE;
        d->silent = NULL;
    }
    if (!f->may_requeue || f->requeued == JOB_NO) {
        leave_to_next(f, d);
    } else if (f->last_state == NULL) {
        d->what = JOB_ASK_AGAIN;
    } else if (strcmp(f->last_state, "RUNNING") != 0) {
        d->progress = JOB_NO_WORD;
        end_state(d, f->last_state);
    } else {
        decide(d, JOB_REQUEUE, EXIT_REQUEUE, "requeue");
        say(d, "requeueing: %.900s", d->reason);
    }
}

/* --- what has happened --- */

/* This one counts, if it was in vain; true: it was the last one. */
static bool in_vain(const struct job_facts *f, struct job_decision *d)
{
    d->futile = d->progress == JOB_FALSE ? f->futile + 1 : 0;
    /* what the requeue was refused for is counted already */
    if (d->futile < ROW_MAX || f->requeued != JOB_UNKNOWN)
        return false;
    give_up(f, d, "3 attempts in a row without a new checkpoint, the last one");
    return true;
}

static void not_begun(const struct job_facts *f, struct job_decision *d)
{
    if (f->ended == JOB_NODES || f->ended == JOB_HOST)
        d->code = EXIT_RETRY;
    d->progress = JOB_NULL;
    if (f->ended == JOB_STOPPED) {
        bool limit = strcmp(text_of(f->stop), "USR1") == 0;
        snprintf(d->reason, sizeof d->reason,
                 "asked to stop (%s) before the start", text_of(f->stop));
        assert(!limit || strcmp(d->reason, JOB_UNSTARTED) == 0);
        if (limit && f->unstarted + 1 >= ROW_MAX &&
            f->requeued == JOB_UNKNOWN) {
            snprintf(d->reason, sizeof d->reason,
                     "the job's time is over before its nodes are checked: "
                     "give it a longer --time, or --signal a shorter lead");
            give_up(f, d, "asked to stop 3 times in a row before the start");
            return;
        }
    } else if (f->ended == JOB_HOST) {
        snprintf(d->reason, sizeof d->reason,
                 "lost %s, the node of the launch script", text_of(f->detail));
    } else {
        snprintf(d->reason, sizeof d->reason, "%s", text_of(f->detail));
        /* a want of nodes is no attempt in vain, unless Slurm gives us those
         * again that were bad already */
        d->progress = f->elsewhere ? JOB_NULL : JOB_FALSE;
        if (in_vain(f, d))
            return;
    }
    requeue(f, d);
}

/* srun's codes for Slurm's errors 1001 to 1004, modulo 256. */
static bool unreached(int code)
{
    return code >= 233 && code <= 236;
}

/* What the code of a step means where no rank has said anything. */
static enum job_what judge_code(int code, struct job_decision *d)
{
    static const struct {
        int code;
        enum job_what what; /* JOB_END: it would come again */
        const char *cause;
    } codes[] = {
        { EXIT_REQUEUE, JOB_REQUEUE, "checkpointed on request" },
        { EXIT_STOP, JOB_END, "exit code 93" },
        { EXIT_USAGE, JOB_END, "exit code 64" },
        { EXIT_RETRY, JOB_RETRY, "transient failure" },
        { SIGNAL_CODES + 9, JOB_RETRY, "killed (SIGKILL): out of memory?" },
        { 14, JOB_RETRY, "MPI ended the ranks (exit code 14): one was lost?" },
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].code == code) {
            snprintf(d->reason, sizeof d->reason, "%s", codes[i].cause);
            return codes[i].what;
        }
    bool signal = code > SIGNAL_CODES && code <= SIGNAL_CODES + SIGNALS;
    snprintf(d->reason, sizeof d->reason,
             signal            ? "ended by signal %d"
             : unreached(code) ? "Slurm could not reach a node of the step "
                                 "(exit code %d)"
                               : "exit code %d",
             signal ? code - SIGNAL_CODES : code);
    return JOB_RETRY;
}

/* Sets reason and code of what has ended the attempt; JOB_END: for good. */
static enum job_what judge(const struct job_facts *f, struct job_decision *d)
{
    enum job_what what = JOB_RETRY;
    const char *detail = text_of(f->detail), *written = text_of(f->written);
    int code = atoi(written);
    if (f->ended == JOB_NODE)
        snprintf(d->reason, sizeof d->reason, "lost node %s", detail);
    else if (f->ended == JOB_START)
        snprintf(d->reason, sizeof d->reason, "not started within %s", detail);
    else if (f->ended == JOB_HANG)
        snprintf(d->reason, sizeof d->reason, "no step for %s", detail);
    else
        what = judge_code(f->code, d);
    /* a rank that left, or whose parent did, has had the others ended */
    if (code == EXIT_RETRY && f->ended == JOB_ITSELF && f->code > SIGNAL_CODES)
        d->code = code;
    if (!f->opened)
        strncat(d->reason, " before the run was opened, see the job's output",
                sizeof d->reason - 1 - strlen(d->reason));
    if (code == EXIT_STOP || code == EXIT_USAGE) {
        what = JOB_END;
        d->code = code;
    }
    if (what == JOB_REQUEUE && *text_of(f->left) != '\0' && !f->stop_file) {
        what = JOB_RETRY;
        snprintf(d->reason, sizeof d->reason,
                 strcmp(f->left, "all") == 0
                     ? "checkpointed to have all nodes checked"
                     : "checkpointed to leave the slow node %.300s",
                 f->left);
    }
    if (strchr(written, ' ') != NULL)
        snprintf(d->reason, sizeof d->reason, "%.600s",
                 strchr(written, ' ') + 1);
    /* no time is left for another attempt in this job */
    if (*text_of(f->stop) != '\0' && what == JOB_RETRY)
        what = JOB_REQUEUE;
    /* the run may have seen the file before the launch script has */
    if (what == JOB_REQUEUE &&
        (f->stop_file || strcmp(text_of(f->stop), "STOP") == 0)) {
        what = JOB_END;
        snprintf(d->reason, sizeof d->reason, "%.500s/STOP: remove it to go on",
                 text_of(f->run_dir));
    }
    return what;
}

/* NULL: no node is known to be. */
static const char *lost_node(const struct job_facts *f)
{
    const char *node = f->ended == JOB_NODE     ? f->detail
                       : f->ended == JOB_ITSELF ? f->silent
                                                : NULL;
    bool known = f->opened || f->ended == JOB_NODE;
    return known && *text_of(node) != '\0' ? node : NULL;
}

static void attempt_ended(const struct job_facts *f, struct job_decision *d)
{
    enum job_what what = judge(f, d);
    if (strcmp(f->state, "RUNNING") != 0) {
        end_state(d, f->state);
    } else if (what == JOB_END) {
        if (!to_scavenge(f, d))
            end(d, d->code == EXIT_USAGE ? EXIT_USAGE : EXIT_STOP);
    } else if (f->room == JOB_UNKNOWN) {
        d->what = JOB_FIND_ROOM;
    } else if (f->room == JOB_NO) {
        char cause[sizeof d->reason];
        snprintf(cause, sizeof cause, "%s", d->reason);
        snprintf(d->reason, sizeof d->reason, "no room for %.300s: %.300s",
                 text_of(f->run_dir), cause);
        end(d, EXIT_RETRY);
    } else {
        /* what another job on the same run commits is no progress of ours;
         * what a full file system has ended was no attempt in vain, nor is a start
         * that only took much longer than those before: the next has twice as long */
        bool no_fault = f->room_came || (f->excused && !f->opened);
        if (!(f->advanced && f->opened) && !no_fault &&
            f->silenced < SILENCED_MAX)
            d->silent = lost_node(f);
        d->progress = f->advanced && f->opened        ? JOB_TRUE
                      : no_fault || d->silent != NULL ? JOB_NULL
                                                      : JOB_FALSE;
        if (in_vain(f, d))
            return;
        if (what == JOB_RETRY) {
            /* What keeps ranks from beginning is often the cluster, which is
             * restarted or has not yet seen which node is dead; a start that has
             * taken its time was time enough, and of a lost node it is known. */
            int tries = unreached(f->code) ? 1 : 0;
            tries = d->futile > tries ? d->futile : tries;
            if (!f->opened && f->ended == JOB_ITSELF)
                d->pause_s = PAUSE_S * tries * tries;
            decide(d, JOB_RETRY, 0, "restart");
            if (d->pause_s > 0)
                say(d, "going on in %d s: %.900s", d->pause_s, d->reason);
            else
                say(d, "going on: %.900s", d->reason);
        } else {
            requeue(f, d);
        }
    }
}

void job_next(const struct job_facts *f, struct job_decision *d)
{
    *d = (struct job_decision){ .code = f->code, .futile = f->futile };
    if (f->ended >= JOB_STOPPED)
        not_begun(f, d);
    else if (f->ended == JOB_ITSELF && f->code == EXIT_DONE)
        decide(d, JOB_END, EXIT_DONE, NULL);
    else if (f->state == NULL)
        d->what = JOB_ASK;
    else
        attempt_ended(f, d);
    assert(d->what < JOB_RETRY || d->event != NULL || d->code == EXIT_DONE);
    assert(d->what != JOB_END || d->exit_code != EXIT_DONE ||
           (f->ended == JOB_ITSELF && f->code == EXIT_DONE));
}

void job_unwritten(const struct job_facts *f, struct job_decision *d)
{
    if (d->what == JOB_END)
        return;
    decide(d, JOB_END, EXIT_RETRY, NULL);
    say(d,
        "stopped: %.500s; and %.300s/ledger.jsonl cannot be written, so "
        "nothing is tried again: mend that (full? gone?) and submit again",
        d->reason, text_of(f->run_dir));
}
