/* Seeded histories of jobs: a run that wants some commits, in a cluster where
 * nodes die, disks fill, administrators cancel, preempt and limit, ranks say why
 * they left or do not, Slurm refuses or does not answer, and the ledger may not
 * be writable. Each end of an attempt walks job.h's way.
 *
 * What must hold in each:
 *   end        the history ends, and each decision within six questions
 *   cancelled  a job that was cancelled when it was asked for last stays so
 *   finished   0 is the end of a finished run, and of no other
 *   grave      what a rank calls an error that would come again ends the job
 *   vain       it gives up exactly at the third attempt in a row in vain, not counting ten
 *              that the loss of a node has ended
 *   saved      a checkpoint that was saved from the nodes is progress
 *   line       every decision has its line in the ledger, or nothing goes on
 *   stop       STOP ends a job that was to be requeued, and no job that was asked to
 *              stop goes on, whatever slow node the run has left
 *   step       nothing is decided twice, nor begun beside what still runs */

#include "src/base/exit_code.h"
#include "src/base/rng.h"
#include "src/control/job.h"
#include "tests/histories.h"

static struct world {
    uint64_t seed, draws;
    int vain, silenced, unstarted; /* what the ledger would say */
    int oracle_vain;               /* counted here */
    bool cancelled, told_cancelled, verbose;
    double progress, death, cancel, refusal, unwritable, full, grave, stop;
    bool may_requeue;
} w;
static int violations;

static double draw(void)
{
    return rng_uniform(w.seed, 2, w.draws++);
}

static bool chance(double p)
{
    return draw() < p;
}

static void broken(const char *what, const struct job_decision *d)
{
    if (violations++ < 20)
        printf("seed %llu: %s broken: %s %d: %s\n", (unsigned long long)w.seed,
               what, job_what_names[d->what], d->exit_code, d->reason);
}

static const char *ask_state(void)
{
    if (!w.cancelled && chance(w.cancel))
        w.cancelled = true;
    if (chance(0.01))
        return "unanswered";
    w.told_cancelled = w.cancelled;
    return w.cancelled ? "CANCELLED" : "RUNNING";
}

/* What has happened to an attempt. */
static struct job_facts happen(void)
{
    /* what would come again, and the end of the run, is rarer */
    static const int codes[] = { 1, 75, 85, 134, 137, 143, 85, 0, 64, 93 };
    int kinds = chance(w.grave) ? 10 : 7;
    static const char *const words[] = { "75 ERR_IO n1: x", "93 ERR_DATA n2: y",
                                         "64 ERR_USAGE n0: z", "1 what" };
    struct job_facts f = { .detail = "n1", .job = "7", .run_dir = "/r" };
    f.may_requeue = w.may_requeue;
    f.futile = w.vain;
    f.silenced = w.silenced;
    f.silent = chance(0.3) ? "n4" : "";
    f.unstarted = w.unstarted;
    if (chance(w.stop))
        f.stop =
            (const char *[]){ "USR1", "TERM", "STOP" }[(int)(draw() * 2.02)];
    f.ended = (enum job_ended)(draw() * (JOB_HOST + 1));
    if (f.ended == JOB_STOPPED && f.stop == NULL)
        f.stop = "TERM";
    f.code = f.ended == JOB_ITSELF ? codes[(int)(draw() * kinds)] : 137;
    f.opened = chance(0.8);
    f.excused = chance(0.3);
    f.advanced = chance(w.progress);
    f.elsewhere = chance(0.3);
    f.stop_file = chance(0.005);
    f.left = chance(0.3) ? "n3" : NULL;
    if (chance(0.3) && f.opened && f.ended < JOB_STOPPED)
        f.written = words[chance(w.grave) ? (int)(draw() * 4) : 0];
    return f;
}

static bool is_grave(const struct job_facts *f)
{
    int code = f->written != NULL ? atoi(f->written) : 0;
    return code == EXIT_STOP || code == EXIT_USAGE;
}

/* Is it one that counts as in vain, by a second writing of the rule? */
static bool was_vain(const struct job_facts *f)
{
    if (f->ended == JOB_NODES)
        return !f->elsewhere;
    bool lost = f->ended == JOB_NODE ||
                (f->ended == JOB_ITSELF && *f->silent && f->opened);
    return f->ended < JOB_STOPPED && !f->room_came &&
           !(f->excused && !f->opened) && !(f->advanced && f->opened) &&
           !(lost && f->silenced < 10);
}

static void judge(const struct job_facts *f, const struct job_decision *d)
{
    bool goes_on = d->what == JOB_RETRY || d->what == JOB_REQUEUE;
    bool finished = f->ended == JOB_ITSELF && f->code == 0;
    bool gave_up = d->event != NULL && strcmp(d->event, "give-up") == 0;
    if (goes_on && w.told_cancelled)
        broken("cancelled", d);
    if (d->what == JOB_END && (d->exit_code == 0) != finished)
        broken("finished", d);
    if (is_grave(f) && !finished &&
        !(d->what == JOB_END &&
          (d->exit_code == atoi(f->written) ||
           (d->exit_code == EXIT_RETRY && strcmp(f->state, "RUNNING") != 0))))
        broken("grave", d);
    bool must = f->ended == JOB_STOPPED
                    ? f->unstarted >= 2 && strcmp(f->stop, "USR1") == 0
                    : was_vain(f) && w.oracle_vain >= 3;
    if (must ? goes_on : gave_up)
        broken("vain", d);
    if (d->what == JOB_REQUEUE && f->scavenged == JOB_YES &&
        d->progress != JOB_TRUE)
        broken("saved", d);
    if (d->event == NULL && !finished)
        broken("line", d);
    if (d->what == JOB_REQUEUE && f->ended < JOB_STOPPED && f->stop_file)
        broken("stop", d);
    if (d->what == JOB_RETRY &&
        (f->stop != NULL || (f->code == EXIT_REQUEUE && f->stop_file)))
        broken("stop", d);
    if (d->what == JOB_REQUEUE && !(f->may_requeue && f->last_state != NULL &&
                                    f->scavenged != JOB_UNKNOWN))
        broken("step", d);
}

/* The answer to what it asks for. */
static void answer(const struct job_decision *d, struct job_facts *f)
{
    if (d->what == JOB_ASK) {
        f->state = ask_state();
    } else if (d->what == JOB_FIND_ROOM) {
        f->room_came = chance(w.full);
        f->room = f->room_came && chance(0.2) ? JOB_NO : JOB_YES;
        f->room_came = f->room_came && f->room == JOB_YES;
    } else if (d->what == JOB_SCAVENGE) {
        f->scavenged = chance(0.2) ? JOB_YES : JOB_NO;
    } else {
        f->last_state = ask_state();
    }
}

/* Until it is decided; with its line, where there can be one. */
static void decide(struct job_facts *f, struct job_decision *d)
{
    for (int asked = 0;; asked++) {
        job_next(f, d);
        if (job_decided(d->what))
            break;
        if (asked == 6) {
            broken("end", d);
            d->what = JOB_END;
            return;
        }
        answer(d, f);
    }
}

/* What the ledger remembers of it. */
static void note(const struct job_facts *f, const struct job_decision *d)
{
    if (d->progress == JOB_TRUE)
        w.vain = w.oracle_vain = w.silenced = 0;
    w.silenced += d->silent != NULL;
    w.vain += d->progress == JOB_FALSE;
    if (f->ended < JOB_STOPPED && f->opened)
        w.unstarted = 0;
    w.unstarted += strcmp(d->reason, JOB_UNSTARTED) == 0;
}

static void history(uint64_t seed, bool verbose)
{
    struct job_decision d = { .what = JOB_RETRY };
    w = (struct world){ .seed = seed, .verbose = verbose };
    w.progress = draw() < 0.5 ? 0.9 : draw();
    w.cancel = 0.02 * draw();
    w.refusal = 0.05 * draw();
    w.unwritable = chance(0.3) ? 0.1 * draw() : 0;
    w.full = chance(0.3) ? draw() : 0;
    w.grave = 0.1 * draw();
    w.stop = 0.5 * draw();
    w.may_requeue = chance(0.8);
    for (int attempt = 1; d.what != JOB_END; attempt++) {
        struct job_facts f = happen();
        decide(&f, &d);
        w.oracle_vain = was_vain(&f) ? w.oracle_vain + 1 : w.oracle_vain;
        judge(&f, &d);
        if (job_decided(d.what) && chance(w.unwritable)) {
            job_unwritten(&f, &d);
            if (d.what != JOB_END || (d.exit_code == 0 && f.code != 0))
                broken("line", &d);
        }
        if (d.what == JOB_REQUEUE && chance(w.refusal)) {
            f.requeued = JOB_NO;
            job_next(&f, &d);
            if (d.what != JOB_END || d.exit_code == 0 ||
                d.exit_code == EXIT_STOP || strcmp(d.event, "stop") != 0)
                broken("end", &d);
        }
        note(&f, &d);
        if (verbose)
            printf("%d: %s -> %s %d %s\n", attempt, job_ended_names[f.ended],
                   job_what_names[d.what], d.exit_code, d.reason);
        if (attempt == 100000) {
            broken("end", &d);
            break;
        }
    }
}

int main(int argc, char **argv)
{
    return histories_main(argc, argv, history, &violations);
}
