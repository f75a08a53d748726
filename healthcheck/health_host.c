/* Checks of the host by what /proc says: load, memory, blocked processes and
 * zombies. Few of them are a fault by themselves: they tell that something else
 * is at work, a job of before that did not end or a file system that hangs
 * (processes in state D), and stand in the report beside what is bad. A file is
 * read below a root, so that tests bring machines of their own. */
#include "healthcheck/health_checks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/processes.h"
#include "src/base/sysfile.h"

#define FILE_BYTES 4096 /* what is needed is at its beginning */

static enum err host_read(const char *root, const char *path,
                          char text[FILE_BYTES])
{
    return sysfile_text(text, FILE_BYTES, "%s%s", root, path)
               ? ERR_OK
               : err_errno("%s%s: read", root, path);
}

void health_host_boot_id(const char *root, char *text, size_t bytes)
{
    if (!sysfile_text(text, bytes, "%s/proc/sys/kernel/random/boot_id", root))
        snprintf(text, bytes, "unknown");
}

enum err health_host_uptime(const char *root, double *seconds)
{
    char text[FILE_BYTES];
    TRY(host_read(root, "/proc/uptime", text));
    *seconds = strtod(text, NULL);
    return ERR_OK;
}

void health_host_name(char *text, size_t bytes)
{
    const char *node = getenv("SLURMD_NODENAME");
    if (node != NULL && *node != '\0') {
        snprintf(text, bytes, "%s", node);
    } else {
        assert(bytes > 1);
        text[bytes - 1] = '\0';
        if (gethostname(text, bytes - 1) != 0)
            snprintf(text, bytes, "localhost");
        text[strcspn(text, ".")] = '\0';
    }
}

/* What users of the node bring about: never more than a warning. */
static void host_judge(const char *code, const char *text, double max,
                       struct health_result *out)
{
    out->limit = max;
    if (max <= 0 || out->value <= max)
        return;
    health_say(out, HEALTH_WARN, code, "%s", text);
}

enum err health_host_load(const struct health_env *env,
                          struct health_result *out)
{
    char text[FILE_BYTES], *end;
    TRY(host_read(env->root, "/proc/loadavg", text));
    out->value = strtod(text, &end);
    if (end == text)
        return err_set(ERR_DATA, "/proc/loadavg: not a number: %.20s", text);
    host_judge("LOAD_HIGH", "many processes want to run", env->limits.load_max,
               out);
    return ERR_OK;
}

enum err health_host_memory(const struct health_env *env,
                            struct health_result *out)
{
    char text[FILE_BYTES];
    double available_kib;
    snprintf(out->unit, sizeof out->unit, "MiB");
    TRY(host_read(env->root, "/proc/meminfo", text));
    const char *line = strstr(text, "MemAvailable:");
    if (line == NULL ||
        sscanf(line, "MemAvailable: %lf kB", &available_kib) != 1)
        return err_set(ERR_DATA, "/proc/meminfo has no MemAvailable");
    out->value = available_kib / 1024;
    out->limit = env->limits.memory_available_min_mib;
    if (out->value < out->limit)
        health_say(out, health_drains(env) ? HEALTH_WARN : HEALTH_BAD,
                   "MEMORY_LOW", "little memory is available");
    return ERR_OK;
}

/* Counts the processes in that state, and judges their number. */
static enum err host_count(const char *root, char state, const char *code,
                           const char *text, double max,
                           struct health_result *out)
{
    struct process *list;
    size_t count;
    snprintf(out->unit, sizeof out->unit, "processes");
    TRY(processes_list(root, &list, &count));
    for (size_t i = 0; i < count; i++)
        out->value += list[i].state == state;
    free(list);
    host_judge(code, text, max, out);
    return ERR_OK;
}

enum err health_host_blocked(const struct health_env *env,
                             struct health_result *out)
{
    return host_count(env->root, 'D', "BLOCKED",
                      "many processes wait in the kernel",
                      env->limits.blocked_max, out);
}

enum err health_host_zombies(const struct health_env *env,
                             struct health_result *out)
{
    return host_count(env->root, 'Z', "ZOMBIES",
                      "many ended processes are still there",
                      env->limits.zombies_max, out);
}
