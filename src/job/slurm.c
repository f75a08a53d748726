/* What Slurm's environment says, and the questions to squeue and scontrol, each
 * with a deadline.
 *
 * squeue may hang for minutes when the controller is away, and a failed squeue
 * is not a finished job: both are told apart here. Other traps: a task
 * of an array has the array's number in SLURM_JOB_ID, for which squeue lists all
 * tasks, so the number is looked for in the answer; and what is in the
 * environment was true when the job began, so the time limit is asked for. */
#include "src/job/slurm.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/job/slurm_run.h"

#define SLURM_SQUEUE_TIMEOUT_S 10.0
#define SLURM_ANSWER_BYTES 512
#define SLURM_TEXT_BYTES_MAX ((size_t)16 << 20)

/* 0 also for what is no number, or one beyond `max`. */
static long slurm_env(const char *name, long max)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0')
        return 0;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && value >= 0 && value <= max ? value : 0;
}

void slurm_read(struct slurm *out)
{
    memset(out, 0, sizeof *out);
    out->job_id = slurm_env("SLURM_JOB_ID", LONG_MAX);
    out->restart_count = (int)slurm_env("SLURM_RESTART_COUNT", INT_MAX);
    out->step_id = (int)slurm_env("SLURM_STEP_ID", INT_MAX);
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    snprintf(out->cluster, sizeof out->cluster, "%s",
             cluster != NULL ? cluster : "");
}

/* Numbers have eight digits at most. */
double slurm_parse_seconds(const char *text)
{
    long days = 0, hours = 0, minutes, seconds;
    int end = 0;
    const char *dash = strchr(text, '-');
    const char *time = dash != NULL ? dash + 1 : text;
    if (strspn(text, "0123456789:-") != strlen(text) ||
        strchr(time, '-') != NULL)
        return -1;
    if (dash != NULL &&
        (sscanf(text, "%8ld-%n", &days, &end) != 1 || text + end != time))
        return -1;
    end = 0;
    if (sscanf(time, "%8ld:%8ld:%8ld%n", &hours, &minutes, &seconds, &end) !=
        3) {
        hours = 0;
        if (sscanf(time, "%8ld:%8ld%n", &minutes, &seconds, &end) != 2)
            return -1;
    }
    if (time[end] != '\0')
        return -1;
    return (double)((days * 24 + hours) * 3600 + minutes * 60 + seconds);
}

/* The rest of the line that begins with the job's number: one task of an array
 * has the array's, for which all tasks are listed. */
static const char *slurm_line(char *text, long job_id)
{
    char *rest;
    assert(job_id > 0);
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char *end;
        if (strtol(line, &end, 10) == job_id && end != line && *end == ' ')
            return end + 1;
    }
    return "";
}

/* `squeue -h -t all -j ID -o "%A FORMAT"`: what it says of this job, or what it
 * printed if it failed. */
int slurm_ask_job(long job_id, const char *format, char *text, size_t bytes)
{
    char id[32];
    char form[32];
    struct buffer answer = { 0 };
    char *argv[] = { (char[]){ "squeue" },
                     (char[]){ "-h" },
                     (char[]){ "-t" },
                     (char[]){ "all" },
                     (char[]){ "-j" },
                     id,
                     (char[]){ "-o" },
                     form,
                     NULL };
    assert(job_id > 0 && strlen(format) < sizeof form - strlen("%A "));
    snprintf(id, sizeof id, "%ld", job_id);
    snprintf(form, sizeof form, "%%A %s", format);
    int status =
        slurm_run(argv, SLURM_SQUEUE_TIMEOUT_S, SLURM_TEXT_BYTES_MAX, &answer);
    if (status >= 0)
        snprintf(text, bytes, "%s",
                 status == 0 ? slurm_line((char *)answer.data, job_id)
                             : (char *)answer.data);
    buffer_free(&answer);
    return status;
}

void slurm_ask_config(const char *key, char *value, size_t bytes)
{
    char *argv[] = { (char[]){ "scontrol" }, (char[]){ "show" },
                     (char[]){ "config" }, NULL };
    struct buffer text = { 0 };
    char begin[64];
    snprintf(begin, sizeof begin, "\n%s ", key);
    value[0] = '\0';
    if (slurm_run(argv, SLURM_SQUEUE_TIMEOUT_S, SLURM_TEXT_BYTES_MAX, &text) ==
        0) {
        const char *line = strstr((char *)text.data, begin);
        const char *from = line == NULL ? NULL : strchr(line, '=');
        if (from != NULL) {
            from += 1 + strspn(from + 1, " ");
            snprintf(value, bytes, "%.*s", (int)strcspn(from, " \r\n"), from);
        }
    }
    buffer_free(&text);
}

double slurm_seconds_left(long job_id)
{
    char text[SLURM_ANSWER_BYTES];
    if (job_id <= 0 || slurm_ask_job(job_id, "%L", text, sizeof text) != 0)
        return -1;
    if (strcmp(text, "UNLIMITED") == 0)
        return INFINITY;
    return slurm_parse_seconds(text);
}

enum slurm_job_state slurm_job_state(long job_id)
{
    static const char *const ended[] = {
        "PENDING",   "COMPLETED",     "CANCELLED",    "FAILED",
        "TIMEOUT",   "NODE_FAIL",     "PREEMPTED",    "DEADLINE",
        "BOOT_FAIL", "OUT_OF_MEMORY", "SPECIAL_EXIT", "REVOKED",
        "REQUEUED",  "REQUEUE_HOLD",  "REQUEUE_FED",
    };
    char text[SLURM_ANSWER_BYTES];
    assert(job_id > 0);
    int status = slurm_ask_job(job_id, "%T", text, sizeof text);
    if (status != 0)
        return status > 0 && strstr(text, "Invalid job id") != NULL
                   ? SLURM_JOB_ABSENT
                   : SLURM_JOB_UNKNOWN;
    if (text[0] == '\0')
        return SLURM_JOB_ABSENT;
    for (size_t i = 0; i < sizeof ended / sizeof ended[0]; i++)
        if (strcmp(text, ended[i]) == 0)
            return SLURM_JOB_ENDED;
    return SLURM_JOB_RUNNING;
}
