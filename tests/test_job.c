/* What a job does next: a row for each way that an attempt can end. */
#include "src/control/job_words.h"

#include "tests/tap.h"

#define WORDS_MAX 40

/* Words are separated by one of `between`; the text is cut up. */
static int split(char *text, const char *between, char *words[WORDS_MAX])
{
    int count = 0;
    char *rest = text;
    for (char *word;
         count < WORDS_MAX && (word = strtok_r(rest, between, &rest)) != NULL;)
        words[count++] = word;
    return count;
}

static void decision_text(const struct job_decision *d, char *out, size_t size)
{
    static const char *const progress[] = { "", " null", " false", " true" };
    snprintf(out, size, "%s %d %s %d%s: %s", job_what_names[d->what],
             d->exit_code, d->event != NULL ? d->event : "-", d->code,
             progress[d->progress], d->reason);
}

#define RUNS " state=RUNNING opened=yes"
#define ROOM RUNS " room=yes"
#define BACK " may_requeue=yes scavenged=no last_state=RUNNING"
#define SHORT " before the run was opened, see the job's output"

/* Only what did not begin waits before the next attempt, and longer the second time. */
static void test_pause(void)
{
    static const struct {
        const char *facts;
        int pause_s;
    } rows[] = {
        { "ended=itself code=1" ROOM, 0 },
        { "ended=itself code=1 state=RUNNING room=yes", 10 },
        { "ended=itself code=1 futile=1 state=RUNNING room=yes", 40 },
        { "ended=start detail=300_s code=137 state=RUNNING room=yes", 0 },
        { "ended=node detail=n3 code=137 state=RUNNING room=yes", 0 },
        { "ended=itself code=85 state=RUNNING room=yes" BACK, 0 },
        { "ended=itself code=1 futile=2 scavenged=no state=RUNNING room=yes",
          0 },
        /* of no attempts in vain only those that wait for a node */
        { "ended=itself excused=yes code=137 state=RUNNING room=yes", 0 },
        { "ended=itself excused=yes code=236 state=RUNNING room=yes", 10 },
        { "ended=itself excused=yes futile=1 code=237 state=RUNNING room=yes",
          0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512], *words[WORDS_MAX];
        struct job_facts facts = { 0 };
        struct job_decision d;
        snprintf(text, sizeof text, "%s", rows[i].facts);
        int count = split(text, " ", words);
        tap_is_int(job_words_read(words, count, &facts), ERR_OK, "%s", text);
        job_next(&facts, &d);
        tap_is_int(d.pause_s, rows[i].pause_s, "%s: a pause", rows[i].facts);
    }
}

static void test_rows(void)
{
    static const struct {
        const char *facts, *next;
    } rows[] = {
        { "ended=itself", "end 0 - 0: " },
        { "ended=itself code=1", "ask 0 - 1: " },
        { "ended=itself code=1" RUNS, "room 0 - 1: exit code 1" },
        { "ended=itself code=1" ROOM, "retry 0 restart 1 false: exit code 1" },
        { "ended=itself code=1 state=RUNNING room=yes",
          "retry 0 restart 1 false: exit code 1" SHORT },
        { "ended=itself code=143 advanced=yes" ROOM,
          "retry 0 restart 143 true: ended by signal 15" },
        /* srun's own, where it could not start the ranks */
        { "ended=itself code=233 advanced=yes" ROOM,
          "retry 0 restart 233 true: Slurm could not reach a node of the step "
          "(exit code 233)" },
        { "ended=itself code=137 room_came=yes" ROOM,
          "retry 0 restart 137 null: killed (SIGKILL): out of memory?" },
        /* who has ended its ranks has said why */
        { "ended=itself code=137 written=75 advanced=yes" ROOM,
          "retry 0 restart 75 true: killed (SIGKILL): out of memory?" },
        { "ended=itself code=14" ROOM,
          "retry 0 restart 14 false: MPI ended the ranks (exit code 14): one "
          "was lost?" },
        { "ended=itself code=75 room=no" RUNS " run_dir=/r",
          "end 75 stop 75: no room for /r: transient failure" },
        { "ended=node detail=n2 code=137" ROOM,
          "retry 0 restart 137 null: lost node n2" },
        { "ended=hang detail=600_s code=137 written=75_ERR_IO_n1:_x" ROOM,
          "retry 0 restart 137 false: no step for 600_s" },
        { "ended=start detail=9 code=137 state=RUNNING room=yes",
          "retry 0 restart 137 false: not started within 9" SHORT },
        { "ended=start detail=9 excused=yes futile=2 code=137 state=RUNNING "
          "room=yes",
          "retry 0 restart 137 null: not started within 9" SHORT },
        { "ended=itself excused=yes futile=2 code=137 state=RUNNING room=yes",
          "retry 0 restart 137 null: killed (SIGKILL): out of memory?" SHORT },
        { "ended=itself excused=yes code=137" ROOM,
          "retry 0 restart 137 false: killed (SIGKILL): out of memory?" },
        /* for good */
        { "ended=itself code=64 state=RUNNING",
          "scavenge 0 - 64: exit code 64" SHORT },
        { "ended=itself code=64 scavenged=no" RUNS,
          "end 64 stop 64: exit code 64" },
        { "ended=itself code=93 scavenged=yes" RUNS,
          "end 93 stop 93: exit code 93" },
        { "ended=node detail=n1 code=137 scavenged=no written=93" RUNS,
          "end 93 stop 93: lost node n1" },
        /* in vain, but for nodes that were lost */
        { "ended=itself code=75 futile=2 silent=n3" ROOM,
          "retry 0 restart 75 null: transient failure" },
        { "ended=node detail=n3 code=137 futile=2 silenced=9" ROOM,
          "retry 0 restart 137 null: lost node n3" },
        { "ended=node detail=n3 code=137 futile=2 state=RUNNING room=yes",
          "retry 0 restart 137 null: lost node n3" SHORT },
        { "ended=itself code=75 futile=2 silent=n3 silenced=10 "
          "scavenged=no" ROOM,
          "end 93 give-up 93 false: 3 attempts in a row without a new "
          "checkpoint, the last one: transient failure" },
        { "ended=start detail=9 code=137 silent=n3 state=RUNNING room=yes",
          "retry 0 restart 137 false: not started within 9" SHORT },
        { "ended=itself code=1 futile=1" ROOM,
          "retry 0 restart 1 false: exit code 1" },
        { "ended=itself code=1 futile=2" ROOM,
          "scavenge 0 - 1 false: exit code "
          "1" },
        { "ended=itself code=1 futile=2 scavenged=no" ROOM,
          "end 93 give-up 93 false: 3 attempts in a row without a new "
          "checkpoint, the last one: exit code 1" },
        { "ended=itself code=1 futile=2 advanced=yes" ROOM,
          "retry 0 restart 1 true: exit code 1" },
        { "ended=itself code=1 futile=2 advanced=yes state=RUNNING room=yes",
          "scavenge 0 - 1 false: exit code 1" SHORT },
        /* requeues */
        { "ended=itself code=85 advanced=yes may_requeue=yes" ROOM,
          "scavenge 0 - 85 true: checkpointed on request" },
        { "ended=itself code=85 advanced=yes may_requeue=yes scavenged=no" ROOM,
          "ask-again 0 - 85 true: checkpointed on request" },
        { "ended=itself code=85 advanced=yes" BACK ROOM,
          "requeue 85 requeue 85 true: checkpointed on request" },
        { "ended=itself code=85 may_requeue=yes scavenged=yes "
          "last_state=RUNNING" ROOM,
          "requeue 85 requeue 85 true: checkpointed on request" },
        { "ended=itself code=1 stop=TERM" BACK ROOM,
          "requeue 85 requeue 1 false: exit code 1" },
        { "ended=itself code=85 scavenged=no job=7 advanced=yes" ROOM,
          "end 85 stop 85 true: checkpointed on request, and job 7 cannot be "
          "requeued" },
        { "ended=itself code=1 stop=TERM job=7 requeued=no" BACK ROOM,
          "end 75 stop 75 false: exit code 1, and job 7 cannot be requeued" },
        { "ended=itself code=85 may_requeue=yes scavenged=no "
          "last_state=CANCELLED" ROOM,
          "end 75 stop 75: job is CANCELLED; checkpointed on request" },
        { "ended=itself code=85 may_requeue=yes scavenged=no "
          "last_state=unanswered" ROOM,
          "end 75 stop 75: Slurm did not answer; checkpointed on request" },
        { "ended=itself code=85 opened=yes state=COMPLETING",
          "end 75 stop 75: job is COMPLETING; checkpointed on request" },
        /* to leave a slow node: the next attempt, if nothing else has come */
        { "ended=itself code=85 advanced=yes left=n2 may_requeue=yes" ROOM,
          "retry 0 restart 85 true: checkpointed to leave the slow node n2" },
        { "ended=itself code=85 advanced=yes left=all may_requeue=yes" ROOM,
          "retry 0 restart 85 true: checkpointed to have all nodes checked" },
        { "ended=itself code=85 advanced=yes left=n2 stop=USR1" BACK ROOM,
          "requeue 85 requeue 85 true: checkpointed to leave the slow node "
          "n2" },
        { "ended=itself code=85 left=n2 stop_file=yes scavenged=no "
          "run_dir=/r" RUNS,
          "end 93 stop 93: /r/STOP: remove it to go on" },
        { "ended=node detail=n1 code=137 left=n2" ROOM,
          "retry 0 restart 137 null: lost node n1" },
        { "ended=itself code=0 left=n2", "end 0 - 0: " },
        /* a file STOP, which the run may have seen first */
        { "ended=itself code=85 stop_file=yes scavenged=no run_dir=/r" RUNS,
          "end 93 stop 93: /r/STOP: remove it to go on" },
        { "ended=itself code=1 stop=STOP scavenged=no run_dir=/r" RUNS,
          "end 93 stop 93: /r/STOP: remove it to go on" },
        { "ended=itself code=1 stop_file=yes" ROOM,
          "retry 0 restart 1 false: exit code 1" },
        /* before an attempt */
        { "ended=stopped stop=USR1" BACK,
          "requeue 85 requeue 0 null: " JOB_UNSTARTED },
        { "ended=stopped stop=TERM unstarted=9" BACK,
          "requeue 85 requeue 0 null: asked to stop (TERM) before the start" },
        { "ended=stopped stop=USR1 unstarted=2 scavenged=no",
          "end 93 give-up 93 null: asked to stop 3 times in a row before the "
          "start: the job's time is over before its nodes are checked: give it "
          "a longer --time, or --signal a shorter lead" },
        { "ended=nodes detail=few" BACK, "requeue 85 requeue 75 false: few" },
        { "ended=nodes detail=few elsewhere=yes futile=2" BACK,
          "requeue 85 requeue 75 null: few" },
        { "ended=nodes detail=few futile=2" BACK,
          "end 93 give-up 93 false: 3 attempts in a row without a new "
          "checkpoint, the last one: few" },
        { "ended=host detail=n1" BACK,
          "requeue 85 requeue 75 null: lost n1, the node of the launch "
          "script" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512], next[1024], *words[WORDS_MAX];
        struct job_facts facts = { 0 };
        struct job_decision decision;
        snprintf(text, sizeof text, "%s", rows[i].facts);
        int count = split(text, " ", words);
        tap_is_int(job_words_read(words, count, &facts), ERR_OK, "%s",
                   rows[i].facts);
        job_next(&facts, &decision);
        decision_text(&decision, next, sizeof next);
        tap_is_str(next, rows[i].next, "its decision");
    }
}

static void test_words(void)
{
    static const char *const wrong[] = {
        "code",        "code=",    "code=x",       "code=-1",   "code=1e3",
        "ended=never", "opened=1", "room=perhaps", "nothing=1", "",
        "=",           "cod=1",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char text[64], *words[] = { text };
        struct job_facts facts = { 0 };
        snprintf(text, sizeof text, "%s", wrong[i]);
        tap_is_int(job_words_read(words, 1, &facts), ERR_USAGE, "'%s'",
                   wrong[i]);
    }
}

/* What jobs on real clusters have decided, as RUN/health/decisions has it, is
 * decided again. */
static void test_recorded(void)
{
    FILE *file = fopen("tests/data/job_decisions", "r");
    char *line = NULL;
    size_t room = 0;
    int rows = 0;
    while (file != NULL && getline(&line, &room, file) > 0) {
        char *words[WORDS_MAX], next[1024];
        struct job_facts facts = { 0 };
        struct job_decision d;
        char *told = strstr(line, "-> ");
        line[strcspn(line, "\n")] = '\0';
        if (told == NULL)
            break;
        *told = '\0';
        int count = split(line, "\t", words);
        tap_is_int(job_words_read(words, count, &facts), ERR_OK, "row %d",
                   ++rows);
        job_next(&facts, &d);
        snprintf(next, sizeof next, "%s %d %s", job_what_names[d.what],
                 d.exit_code, d.reason);
        tap_is_str(next, told + 3, "its decision");
    }
    tap_ok(rows > 0 && feof(file), "every row has one");
    free(line);
    if (file != NULL)
        fclose(file);
}

static void test_unwritten(void)
{
    struct job_facts facts = { .run_dir = "/r" };
    struct job_decision d = { .what = JOB_REQUEUE, .reason = "x" };
    job_unwritten(&facts, &d);
    tap_ok(d.what == JOB_END && d.exit_code == 75,
           "where the ledger cannot be written nothing goes on");
    d = (struct job_decision){ .what = JOB_END, .exit_code = 93 };
    job_unwritten(&facts, &d);
    tap_is_int(d.exit_code, 93, "an end stays what it is");
}

int main(void)
{
    test_rows();
    test_pause();
    test_words();
    test_recorded();
    test_unwritten();
    return tap_done();
}
