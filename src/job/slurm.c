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
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/job/slurm_run.h"

#define SLURM_SQUEUE_TIMEOUT_S 10.0
#define SLURM_ANSWER_BYTES 512
#define SLURM_TEXT_BYTES_MAX ((size_t)16 << 20)

static long slurm_env_long(const char *name, long preset)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return preset;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && value >= 0 ? value : preset;
}

static int slurm_env_int(const char *name, int preset)
{
    long value = slurm_env_long(name, preset);
    return value <= 0x7fffffff ? (int)value : preset;
}

void slurm_read(struct slurm *out)
{
    memset(out, 0, sizeof *out);
    out->job_id = slurm_env_long("SLURM_JOB_ID", 0);
    out->restart_count = slurm_env_int("SLURM_RESTART_COUNT", 0);
    out->nodes = slurm_env_int("SLURM_JOB_NUM_NODES", 1);
    out->procid = slurm_env_int("SLURM_PROCID", 0);
    out->step_id = slurm_env_int("SLURM_STEP_ID", 0);
    const char *node = getenv("SLURMD_NODENAME");
    if (node != NULL && *node != '\0')
        snprintf(out->node, sizeof out->node, "%s", node);
    else if (gethostname(out->node, sizeof out->node - 1) != 0)
        snprintf(out->node, sizeof out->node, "localhost");
    const char *cluster = getenv("SLURM_CLUSTER_NAME");
    snprintf(out->cluster, sizeof out->cluster, "%s",
             cluster != NULL ? cluster : "");
}

double slurm_parse_seconds(const char *text)
{
    long parts[4];
    int count = 0;
    long days = 0;
    for (const char *p = text;;) {
        if (*p < '0' || *p > '9' || count == 3)
            return -1;
        char *end;
        long value = strtol(p, &end, 10);
        if (value < 0 || value > 10000000)
            return -1;
        if (*end == '-' && count == 0 && days == 0 && p == text) {
            days = value;
            p = end + 1;
            continue;
        }
        parts[count++] = value;
        if (*end == '\0')
            break;
        if (*end != ':')
            return -1;
        p = end + 1;
    }
    if (count < 2)
        return -1;
    long hours = count == 3 ? parts[0] : 0;
    return (double)((days * 24 + hours) * 3600 + parts[count - 2] * 60 +
                    parts[count - 1]);
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
static int slurm_squeue(long job_id, const char *format, char *text,
                        size_t bytes)
{
    char id[32];
    char form[16];
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

void slurm_ask_cluster(char *name, size_t bytes)
{
    char *argv[] = { (char[]){ "scontrol" }, (char[]){ "show" },
                     (char[]){ "config" }, NULL };
    struct buffer text = { 0 };
    name[0] = '\0';
    if (slurm_run(argv, SLURM_SQUEUE_TIMEOUT_S, SLURM_TEXT_BYTES_MAX, &text) ==
        0) {
        const char *line = strstr((char *)text.data, "\nClusterName");
        const char *value = line == NULL ? NULL : strchr(line, '=');
        if (value != NULL) {
            value += 1 + strspn(value + 1, " ");
            snprintf(name, bytes, "%.*s", (int)strcspn(value, " \r\n"), value);
        }
    }
    buffer_free(&text);
}

double slurm_seconds_left(long job_id)
{
    char text[SLURM_ANSWER_BYTES];
    if (job_id <= 0 || slurm_squeue(job_id, "%L", text, sizeof text) != 0)
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
    int status = slurm_squeue(job_id, "%T", text, sizeof text);
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
