#include "src/job/ledger.h"

#include <sys/stat.h>

#include "src/base/clock.h"
#include "src/base/fsio.h"
#include "src/control/job.h"
#include "src/job/ledger_history.h"
#include "tests/tap.h"

static const char *folder;
static char ledger[FSIO_PATH_MAX];

static void write_ledger(const char *text)
{
    FILE *file = fopen(ledger, "w");
    if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
        tap_ok(false, "write %s", ledger);
}

static char *read_ledger(void)
{
    char *text = NULL;
    size_t bytes;
    if (fsio_read_file(ledger, 1 << 20, &text, &bytes) != ERR_OK)
        return strdup("");
    return text;
}

static void test_events(void)
{
    json_t *events = NULL;
    unlink(ledger);
    tap_ok(ledger_events(folder, "skip", &events) == ERR_OK &&
               json_array_size(events) == 0,
           "no ledger: no events");
    json_decref(events);
    write_ledger("{\"event\":\"skip\",\"n\":1}\n{\"event\":\"start\"}\n[1]\n"
                 "{\"event\":\"skip\",\"n\":2}\n{\"event\":\"skip\",\"n");
    tap_ok(ledger_events(folder, "skip", &events) == ERR_OK &&
               json_array_size(events) == 2,
           "those of the name, without a torn line");
    tap_is_int(
        json_integer_value(json_object_get(json_array_get(events, 1), "n")), 2,
        "in their order");
    json_decref(events);
}

static void test_next_attempt(void)
{
    static const struct {
        const char *name;
        const char *text; /* NULL: no file */
        int want;
    } cases[] = {
        { "no ledger", NULL, 1 },
        { "empty ledger", "", 1 },
        { "one start", "{\"event\":\"start\"}\n", 2 },
        { "other events do not count",
          "{\"event\":\"start\"}\n{\"event\":\"commit\"}\n"
          "{\"event\":\"stop\"}\n{\"event\":\"start\"}\n",
          3 },
        { "torn last line", "{\"event\":\"start\"}\n{\"event\":\"start\",\"ti",
          2 },
        { "whole last line without its end",
          "{\"event\":\"start\"}\n{\"event\":\"start\"}", 3 },
        { "healed torn line",
          "{\"event\":\"start\"}\n{\"eve\n{\"event\":\"start\"}\n", 3 },
        { "rubbish", "start\n\n[1]\n\"start\"\n{\"event\":7}\n", 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int attempt = -1;
        unlink(ledger);
        if (cases[i].text != NULL)
            write_ledger(cases[i].text);
        tap_is_int(ledger_next_attempt(folder, &attempt), ERR_OK, "%s: read",
                   cases[i].name);
        tap_is_int(attempt, cases[i].want, "%s: attempt", cases[i].name);
    }
}

static void test_append(void)
{
    unlink(ledger);
    double before = clock_wall();
    tap_is_int(ledger_append(folder, "start", 1,
                             json_pack("{s:i, s:i, s:i, s:[], s:s}", "job", 7,
                                       "restart", 0, "ranks", 4, "hosts",
                                       "version", "n1\nn2")),
               ERR_OK, "append start");
    tap_is_int(ledger_append(folder, "stop", 1, NULL), ERR_OK,
               "append without fields");
    char *text = read_ledger();
    char *second = strchr(text, '\n');
    tap_ok(second != NULL && strchr(second + 1, '\n') != NULL &&
               strchr(second + 1, '\n')[1] == '\0',
           "two lines, nothing after them");
    json_t *object = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    double time_s = json_real_value(json_object_get(object, "time"));
    tap_ok(time_s >= before - 0.001 && time_s <= clock_wall() + 0.001,
           "time is now");
    tap_is_int(json_integer_value(json_object_get(object, "attempt")), 1,
               "attempt");
    tap_is_int(json_integer_value(json_object_get(object, "ranks")), 4,
               "field");
    tap_is_str(json_string_value(json_object_get(object, "version")), "n1\nn2",
               "a newline in a field stays inside");
    json_decref(object);
    free(text);
}

static void test_heal(void)
{
    write_ledger("{\"event\":\"start\",\"attempt\":1}\n{\"event\":\"com");
    tap_is_int(ledger_append(folder, "start", 2, NULL), ERR_OK,
               "append after a torn line");
    char *text = read_ledger();
    tap_ok(strstr(text, "\n{\"event\":\"com\n{\"event\": \"start\"") != NULL,
           "the torn line got its end");
    int attempt = 0;
    tap_is_int(ledger_next_attempt(folder, &attempt), ERR_OK, "read healed");
    tap_is_int(attempt, 3, "attempt after healing");
    free(text);
}

static void test_failures(void)
{
    char missing[FSIO_PATH_MAX];
    snprintf(missing, sizeof missing, "%.900s/missing", folder);
    tap_ok(ledger_append(missing, "start", 1, NULL) != ERR_OK,
           "append to a missing folder fails");
    tap_ok(strstr(err_text(), "missing/ledger.jsonl") != NULL,
           "the error names the file: %s", err_text());
    unlink(ledger);
    mkdir(ledger, 0777);
    int attempt;
    tap_ok(ledger_next_attempt(folder, &attempt) != ERR_OK,
           "a folder is not a ledger");
    rmdir(ledger);
}

/* What the launch script has as words. */
static void test_words(void)
{
    static const struct {
        const char *event, *words[4];
        const char *want; /* behind the time; NULL: ERR_USAGE */
    } cases[] = {
        { "restart",
          { "job=7", "code=137", "reason=12", "progress=null" },
          "\"attempt\":2,\"job\":7,\"code\":137,\"reason\":\"12\","
          "\"progress\":null}\n" },
        { "stop",
          { "code=75", "reason=a\n\"b\" \xff", "by=launch", "progress=true" },
          "\"reason\":\"a \\\"b\\\" ?\",\"by\":\"launch\",\"progress\":true}" },
        { "reload", { "job=7" }, NULL },
        { "exclude", { "job=7", "node=a", "code=b" }, NULL },
        { "stop", { "code=75", "reason=x", "node=a" }, NULL },
        { "stop", { "code=75", "reason=x", "reason" }, NULL },
        { "stop", { "code=75x", "reason=x" }, NULL },
        { "stop", { "code=75", "reason=x", "progress=maybe" }, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char words[4][32], *list[4];
        int count = 0;
        for (; count < 4 && cases[i].words[count] != NULL; count++) {
            snprintf(words[count], sizeof words[0], "%s",
                     cases[i].words[count]);
            list[count] = words[count];
        }
        unlink(ledger);
        tap_is_int(ledger_append_words(folder, cases[i].event, 2, list, count),
                   cases[i].want != NULL ? ERR_OK : ERR_USAGE, "words %zu: %s",
                   i, cases[i].event);
        char *text = read_ledger();
        tap_ok(cases[i].want != NULL ? strstr(text, cases[i].want) != NULL
                                     : text[0] == '\0',
               "words %zu: what was written", i);
        free(text);
    }
}

static void append(const char *line)
{
    FILE *file = fopen(ledger, "a");
    if (file == NULL || fprintf(file, "%s\n", line) < 0 || fclose(file) != 0)
        tap_ok(false, "write %s", ledger);
}

/* What the launch script asks. */
static void test_job(void)
{
    static const struct {
        const char *line;
        int attempts, started, futile, unstarted, local;
    } steps[] = {
        { "{\"event\":\"start\",\"attempt\":1,\"job\":6}", 1, 0, 0, 0, -1 },
        { "{\"event\":\"start\",\"attempt\":2,\"job\":7}", 2, 2, 0, 0, -1 },
        { "{\"event\":\"commit-local\",\"step\":5}", 2, 2, 0, 0, 5 },
        { "{\"event\":\"restart\",\"job\":7,\"progress\":false}", 2, 2, 1, 0,
          5 },
        { "{\"event\":\"restart\",\"job\":6,\"progress\":false}", 2, 2, 1, 0,
          5 },
        { "{\"event\":\"requeue\",\"job\":7,\"progress\":null,\"reason\":"
          "\"" JOB_UNSTARTED "\"}",
          2, 2, 1, 1, -1 },
        { "{\"event\":\"requeue\",\"job\":7,\"progress\":false}\n{\"ev", 2, 2,
          2, 1, -1 },
        { "\n{\"event\":\"start\",\"attempt\":3,\"job\":7}", 3, 3, 2, 0, -1 },
        { "{\"event\":\"commit-local\",\"step\":4}", 3, 3, 2, 0, 4 },
        { "{\"event\":\"restart\",\"job\":7,\"progress\":true}", 3, 3, 0, 0,
          4 },
        { "{\"event\":\"restart\",\"job\":7,\"progress\":false}", 3, 3, 1, 0,
          4 },
        { "{\"event\":\"hardware\",\"attempt\":3,\"step\":8}", 3, 3, 1, 0, 4 },
        { "{\"event\":\"hardware\",\"attempt\":3,\"step\":8}", 3, 3, 1, 0, 4 },
        { "{\"event\":\"hardware\",\"attempt\":2,\"step\":9}", 3, 3, 1, 0, 4 },
        { "{\"event\":\"hardware\",\"attempt\":3,\"step\":7}", 3, 3, 1, 0, 4 },
        /* state that nodes have kept */
        { "{\"event\":\"hardware\",\"attempt\":3,\"step\":9}", 3, 3, 0, 0, 4 },
        { "{\"event\":\"restart\",\"job\":7,\"progress\":false}", 3, 3, 1, 0,
          4 },
        { "{\"event\":\"restart\",\"job\":7,\"progress\":null,\"silent\":"
          "\"n2\"}",
          3, 3, 1, 0, 4 },
        { "{\"event\":\"give-up\",\"job\":7}", 3, 3, 0, 0, 4 },
        /* requeued by Slurm itself */
        { "{\"event\":\"start\",\"attempt\":4,\"job\":7,\"restart\":1}", 4, 4,
          0, 0, -1 },
        { "{\"event\":\"commit-local\",\"step\":3}", 4, 4, 0, 0, 3 },
        { "{\"event\":\"start\",\"attempt\":5,\"job\":8}", 5, 4, 0, 0, -1 },
    };
    struct ledger_job job;
    unlink(ledger);
    tap_ok(ledger_job_read(folder, 7, &job) == ERR_OK && job.attempts == 0 &&
               job.local_step == -1,
           "no ledger: nothing has begun");
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        append(steps[i].line);
        tap_ok(ledger_job_read(folder, 7, &job) == ERR_OK &&
                   job.attempts == steps[i].attempts &&
                   job.started == steps[i].started &&
                   job.futile == steps[i].futile &&
                   job.silenced == (strstr(steps[i].line, "silent") != NULL) &&
                   job.unstarted == steps[i].unstarted &&
                   job.local_step == steps[i].local,
               "step %zu: attempts %d, started %d, futile %d, unstarted %d, "
               "local %lld",
               i, job.attempts, job.started, job.futile, job.unstarted,
               (long long)job.local_step);
        ledger_job_free(&job);
    }
}

/* Attempts that each go on from further are not in vain without a commit, but not for
 * ever; a commit begins the count anew, and what was before it is no measure. */
static void test_gains(void)
{
    struct ledger_job job;
    int most = 0, last = 0;
    char line[128];
    unlink(ledger);
    append("{\"event\":\"start\",\"attempt\":1,\"job\":7}");
    for (int i = 0; i <= LEDGER_GAINS + 2; i++) {
        snprintf(line, sizeof line,
                 "{\"event\":\"hardware\",\"attempt\":1,\"step\":%d}\n"
                 "{\"event\":\"restart\",\"job\":7,\"progress\":false}",
                 100 + i);
        append(line);
        tap_ok(ledger_job_read(folder, 7, &job) == ERR_OK, "read");
        most = i <= LEDGER_GAINS && job.futile > most ? job.futile : most;
        last = job.futile;
        ledger_job_free(&job);
    }
    tap_is_int(most, 1, "attempts that go further are not in vain");
    tap_is_int(last, 3, "but in the end they are");
    append("{\"event\":\"restart\",\"job\":7,\"progress\":true}");
    for (int i = 0; i < 3; i++) {
        snprintf(line, sizeof line,
                 "{\"event\":\"hardware\",\"attempt\":1,\"step\":%d}\n"
                 "{\"event\":\"restart\",\"job\":7,\"progress\":false}",
                 10 + i);
        append(line);
    }
    tap_ok(ledger_job_read(folder, 7, &job) == ERR_OK && job.futile == 1,
           "behind a commit further counts from where that began");
    ledger_job_free(&job);
}

/* How long starts of job 7 took, and how many failed since the newest. */
static void test_starts(void)
{
    static const struct {
        const char *line;
        double took_s;
        int failed;
    } steps[] = {
        { "{\"event\":\"start\",\"time\":90.0,\"job\":7}", 0, 0 },
        { "{\"event\":\"restart\",\"time\":100.0,\"job\":7}", 0, 0 },
        { "{\"event\":\"check\",\"time\":110.0,\"job\":7}", 0, 0 },
        { "{\"event\":\"start\",\"time\":114.0,\"job\":7}", 4, 0 },
        { "{\"event\":\"restart\",\"time\":120.0,\"job\":7}", 4, 0 },
        { "{\"event\":\"restart\",\"time\":150.0,\"job\":6}", 4, 0 },
        { "{\"event\":\"restart\",\"time\":150.0,\"job\":7}", 4, 1 },
        { "{\"event\":\"restart\",\"time\":200.0,\"job\":7}", 4, 2 },
        { "{\"event\":\"check\",\"time\":210.0,\"job\":7}", 4, 2 },
        { "{\"event\":\"start\",\"time\":212.0,\"job\":7}", 4, 0 },
        { "{\"event\":\"requeue\",\"time\":220.0,\"job\":7}", 4, 0 },
        { "{\"event\":\"check\",\"time\":900.0,\"job\":7}", 4, 0 },
        { "{\"event\":\"restart\",\"time\":930.0,\"job\":7}", 4, 1 },
        { "{\"event\":\"start\",\"time\":937.0,\"job\":7}", 7, 0 },
    };
    struct ledger_job job;
    unlink(ledger);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        append(steps[i].line);
        tap_ok(ledger_job_read(folder, 7, &job) == ERR_OK &&
                   job.start_took_s == steps[i].took_s &&
                   job.start_failed == steps[i].failed,
               "line %zu: %g s, %d failed", i, job.start_took_s,
               job.start_failed);
        ledger_job_free(&job);
    }
}

static void test_excluded(void)
{
    static const struct {
        const char *node;
        double ago_s;
        const char *excluded, *expired;
    } steps[] = {
        { "n3", LEDGER_EXCLUDED_S + 60, NULL, "n3" },
        { "n1", 60, "n1", "n3" },
        { "n1", 30, "n1", "n3" },
        { "n20", LEDGER_EXCLUDED_S - 60, "n1,n20", "n3" },
        { "n3", 1, "n3,n1,n20", NULL },
        { "a b", 1, "n3,n1,n20", NULL }, /* no names of nodes */
        { "", 1, "n3,n1,n20", NULL },
        { "a,b", 1, "n3,n1,n20", NULL },
    };
    unlink(ledger);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct ledger_job job;
        FILE *file = fopen(ledger, "a");
        if (file == NULL ||
            fprintf(file,
                    "{\"event\":\"exclude\",\"job\":%zu,\"time\":%.3f,"
                    "\"node\":\"%s\"}\n",
                    i, clock_wall() - steps[i].ago_s, steps[i].node) < 0 ||
            fclose(file) != 0)
            tap_ok(false, "write %s", ledger);
        tap_is_int(ledger_job_read(folder, 7, &job), ERR_OK, "node '%s'",
                   steps[i].node);
        tap_is_str(job.excluded != NULL ? job.excluded : "-",
                   steps[i].excluded != NULL ? steps[i].excluded : "-",
                   "bad lately");
        tap_is_str(job.expired != NULL ? job.expired : "-",
                   steps[i].expired != NULL ? steps[i].expired : "-",
                   "bad before");
        ledger_job_free(&job);
    }
}

#define START(job, n) "\"event\":\"start\",\"job\":" #job ",\"attempt\":" #n
#define SLOW(n, node, what)                                                    \
    "\"event\":\"slow\",\"attempt\":" #n ",\"node\":\"" node                   \
    "\",\"action\":\"" what "\""

/* What a job has left as slow: counted for the job at hand, remembered for all. */
static void test_slow(void)
{
    static const struct {
        const char *line, *slow, *node;
        int replaced, attempt;
    } steps[] = {
        { START(6, 1), "-", "", 0, 0 },
        { SLOW(1, "n1", "replace"), "n1", "", 0, 0 },
        { START(7, 2), "n1", "", 0, 0 },
        { SLOW(2, "n2", "warn"), "n1", "", 0, 0 },
        { SLOW(2, "n2", "replace"), "n1,n2", "n2", 1, 2 },
        { "\"event\":\"exclude\",\"node\":\"n2\"", "n1,n2", "n2", 1, 2 },
        { START(7, 3), "n1,n2", "n2", 1, 2 },
        { SLOW(3, "n1", "replace"), "n1,n2", "n1", 2, 3 },
    };
    unlink(ledger);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct ledger_job job;
        double now_s = clock_wall();
        FILE *file = fopen(ledger, "a");
        if (file == NULL ||
            fprintf(file, "{%s,\"time\":%.3f}\n", steps[i].line, now_s) < 0 ||
            fclose(file) != 0)
            tap_ok(false, "write %s", ledger);
        tap_is_int(ledger_job_read(folder, 7, &job), ERR_OK, "%s",
                   steps[i].line);
        tap_is_str(job.slow != NULL ? job.slow : "-", steps[i].slow, "slow");
        tap_is_str(job.replaced_node, steps[i].node, "the last one");
        tap_ok(job.replaced == steps[i].replaced &&
                   job.replaced_attempt == steps[i].attempt,
               "%d replacements, the last in attempt %d", job.replaced,
               job.replaced_attempt);
        if (i == 4)
            tap_ok(fabs(job.replaced_s - now_s) < 0.01, "and when");
        ledger_job_free(&job);
    }
}

int main(void)
{
    folder = tap_folder();
    snprintf(ledger, sizeof ledger, "%.900s/ledger.jsonl", folder);
    test_events();
    test_next_attempt();
    test_append();
    test_heal();
    test_failures();
    test_words();
    test_job();
    test_gains();
    test_starts();
    test_excluded();
    test_slow();
    return tap_done();
}
