/* squeue is a script of the test, first in PATH. */
#include "src/job/slurm.h"

#include <sys/stat.h>

#include "src/base/fsio.h"
#include "tests/tap.h"

static const char *folder;

static void fake_squeue(const char *body)
{
    char path[FSIO_PATH_MAX];
    snprintf(path, sizeof path, "%.900s/squeue", folder);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return;
    fprintf(file, "#!/bin/sh\n%s\n", body);
    fclose(file);
    chmod(path, 0755);
}

static void test_parse(void)
{
    static const struct {
        const char *text;
        double want;
    } cases[] = {
        { "0:00", 0 },
        { "0:59", 59 },
        { "12:34", 754 },
        { "1:00:00", 3600 },
        { "23:59:59", 86399 },
        { "1-00:00:00", 86400 },
        { "7-12:30:01", 649801 },
        /* failures */
        { "", -1 },
        { "UNLIMITED", -1 },
        { "NOT_SET", -1 },
        { "INVALID", -1 },
        { "17", -1 },
        { "-1:00", -1 },
        { "1:2:3:4", -1 },
        { "1:00 ", -1 },
        { "1-2-3:00", -1 },
        { "1:-2", -1 },
        { ":10", -1 },
        { "1: 2", -1 },
        { "1:", -1 },
        { "99999999999:00", -1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_close(slurm_parse_seconds(cases[i].text), cases[i].want, 0,
                     "'%s'", cases[i].text);
}

static void test_environment(void)
{
    static const char *const names[] = {
        "SLURM_JOB_ID",
        "SLURM_RESTART_COUNT",
        "SLURM_STEP_ID",
    };
    struct slurm slurm;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    slurm_read(&slurm);
    tap_ok(slurm.job_id == 0 && slurm.restart_count == 0 && slurm.step_id == 0,
           "defaults outside Slurm");

    setenv("SLURM_JOB_ID", "4711", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    setenv("SLURM_STEP_ID", "5", 1);
    slurm_read(&slurm);
    tap_is_int(slurm.job_id, 4711, "job");
    tap_is_int(slurm.restart_count, 2, "restarts");
    tap_is_int(slurm.step_id, 5, "step");

    setenv("SLURM_JOB_ID", "12x", 1);
    setenv("SLURM_STEP_ID", "-1", 1);
    setenv("SLURM_RESTART_COUNT", "99999999999", 1);
    slurm_read(&slurm);
    tap_ok(slurm.job_id == 0 && slurm.step_id == 0 && slurm.restart_count == 0,
           "what is not a number counts as not set");
}

static void test_squeue(void)
{
    static const struct {
        const char *name;
        const char *script;
        double seconds;
        enum slurm_job_state state;
    } cases[] = {
        { "running",
          "[ \"$*\" = \"-h -t all -j 7 -o %A %L\" ] && echo 7 1:00:05 && exit "
          "0\n"
          "[ \"$*\" = \"-h -t all -j 7 -o %A %T\" ] && echo 7 RUNNING",
          3605, SLURM_JOB_RUNNING },
        { "unlimited, completing",
          "case \"$7\" in *L) echo 7 UNLIMITED;; *) echo 7 COMPLETING;; esac",
          INFINITY, SLURM_JOB_RUNNING },
        { "pending again", "echo 7 PENDING", -1, SLURM_JOB_ENDED },
        { "ended a while ago", "echo 7 CANCELLED", -1, SLURM_JOB_ENDED },
        { "not shown", "exit 0", -1, SLURM_JOB_ABSENT },
        { "forgotten",
          "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1",
          -1, SLURM_JOB_ABSENT },
        { "a task of an array, behind another's line",
          "case \"$7\" in *L) echo 9 5:00; echo 7 1:00;; *) echo 9 PENDING; "
          "echo 7 RUNNING;; esac",
          60, SLURM_JOB_RUNNING },
        { "no controller",
          "echo 'slurm_load_jobs error: Unable to contact slurm controller' "
          ">&2; exit 1",
          -1, SLURM_JOB_UNKNOWN },
        { "killed", "kill -9 $$", -1, SLURM_JOB_UNKNOWN },
        { "misled by its environment",
          "[ -z \"$SLURM_CLUSTERS$SQUEUE_STATES$SLURM_TIME_FORMAT\" ] && "
          "[ \"$SLURM_JOB_ID\" = 12x ] && echo 7 RUNNING",
          -1, SLURM_JOB_RUNNING },
        { "much output",
          "i=9; while [ $i -lt 3000 ]; do echo $i RUNNING; i=$((i+1)); done; "
          "echo 7 RUNNING",
          -1, SLURM_JOB_RUNNING },
        { "more than can be read", "yes 12345 RUNNING | head -c 20000000", -1,
          SLURM_JOB_UNKNOWN },
    };
    setenv("SLURM_CLUSTERS", "other", 1);
    setenv("SQUEUE_STATES", "PENDING", 1);
    setenv("SLURM_TIME_FORMAT", "relative", 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_squeue(cases[i].script);
        tap_ok(slurm_seconds_left(7) == cases[i].seconds, "%s: seconds left",
               cases[i].name);
        tap_is_int(slurm_job_state(7), cases[i].state, "%s: state",
                   cases[i].name);
    }
    tap_is_close(slurm_seconds_left(0), -1, 0, "not in a job");
    setenv("PATH", "/nonexistent", 1);
    tap_is_int(slurm_job_state(7), SLURM_JOB_UNKNOWN, "no squeue installed");
}

static void test_time_left(void)
{
    static const struct {
        const char *name, *script;
        bool under_100, under_1000;
    } cases[] = {
        { "five minutes", "echo 7 5:00", false, true },
        { "one minute", "echo 7 1:00", true, true },
        { "a day", "echo 7 1-00:00:00", false, false },
        { "no limit", "echo 7 UNLIMITED", false, false },
        { "no answer", "exit 1", false, false },
    };
    struct time_left left;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_squeue(cases[i].script);
        time_left_begin(&left, 7);
        tap_is_int(time_left_under(&left, 100), cases[i].under_100,
                   "%s: under 100 s", cases[i].name);
        tap_is_int(time_left_under(&left, 1000), cases[i].under_1000,
                   "%s: under 1000 s", cases[i].name);
    }
    fake_squeue("echo 7 1:00");
    time_left_begin(&left, 0);
    tap_ok(!time_left_under(&left, 1000), "not in a job");
    time_left_begin(&left, 7);
    fake_squeue("echo 7 2:00:00");
    tap_ok(time_left_under(&left, 100), "asked a moment ago");
    left.asked_at -= 31;
    tap_ok(!time_left_under(&left, 100), "the limit was moved");
    fake_squeue("exit 1");
    left.asked_at -= 31;
    tap_ok(time_left_under(&left, 10000), "no answer: what was known counts");
    time_left_begin(&left, 7);
    fake_squeue("echo 7 1:00");
    tap_ok(!time_left_under(&left, 100), "never an answer: nothing is known");
    left.asked_at -= 301;
    tap_ok(time_left_under(&left, 100), "but it is asked again");
}

int main(void)
{
    char path[2048];
    folder = tap_folder();
    snprintf(path, sizeof path, "%s:/usr/bin:/bin", folder);
    setenv("PATH", path, 1);
    test_parse();
    test_environment();
    test_time_left();
    test_squeue();
    return tap_done();
}
