/* Services that must run, and processes of users who have no job here. Names come
 * from /proc, which everybody may read, and of accounts only numbers: a directory
 * of users may be what hangs.
 *
 * A user could call a program as a service is called, so only processes of system
 * accounts are services. Whose jobs are here the managers of their steps tell, which
 * are parents of their processes; a process that ended and is not yet waited for has
 * left nothing. */
#include "healthcheck/health_checks.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/processes.h"
#include "src/base/sysfile.h"

#define UNIT ".service"
#define LEFTOVER_USERS 16

/* --- services --- */

/* A unit of systemd runs while its control group has processes: version 2 says so,
 * version 1 lists them. */
static bool unit_runs(const char *root, const char *unit, int length)
{
    static const char *const files[] = { "system.slice/%.*s/cgroup.events",
                                         "systemd/system.slice/%.*s/"
                                         "cgroup.procs" };
    char name[FSIO_PATH_MAX], text[256];
    bool runs = false;
    for (int i = 0; i < 2 && !runs; i++) {
        snprintf(name, sizeof name, files[i], length, unit);
        runs = sysfile_text(text, sizeof text, "%s/sys/fs/cgroup/%s", root,
                            name) &&
               (i == 1 || strstr(text, "populated 1") != NULL);
    }
    return runs;
}

static bool service_runs(const struct process *list, size_t count,
                         uid_t first_user, const char *name, size_t length)
{
    size_t most = sizeof list->name - 1;
    size_t known = length < most ? length : most;
    for (size_t i = 0; i < count; i++)
        if (list[i].effective < first_user && list[i].state != 'Z' &&
            strlen(list[i].name) == known &&
            strncmp(list[i].name, name, known) == 0)
            return true;
    return false;
}

/* Where a user sees only their own processes nothing is known of a service. */
static bool hidden(const struct process *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].pid == 1)
            return false;
    return geteuid() != 0;
}

enum err health_processes_services(const struct health_env *env,
                                   struct health_result *out)
{
    const char *names = env->limits.services_running, *name;
    struct process *list;
    size_t count, length;
    snprintf(out->unit, sizeof out->unit, "services");
    if (names[0] == '\0')
        return ERR_OK;
    TRY(processes_list(env->root, &list, &count));
    uid_t first_user = processes_first_user(env->root);
    while (!hidden(list, count) && health_item(&names, &name, &length)) {
        size_t end = strlen(UNIT);
        bool unit =
            length > end && strncmp(name + length - end, UNIT, end) == 0;
        if (unit ? unit_runs(env->root, name, (int)length)
                 : service_runs(list, count, first_user, name, length))
            continue;
        health_also(out,
                    env->limits.services_missing_bad ? HEALTH_BAD : HEALTH_WARN,
                    "SERVICE_MISSING", "%.*s does not run", (int)length, name);
        out->value += 1;
    }
    free(list);
    return ERR_OK;
}

/* --- leftovers --- */

struct leftover_user {
    uid_t user;
    bool has_job;
    int count;
    const char *name; /* of one process */
};

static bool is_manager(const struct process *list, size_t count, pid_t pid)
{
    for (size_t i = 0; i < count; i++)
        if (list[i].pid == pid)
            return list[i].user == 0 && strcmp(list[i].name, "slurmstepd") == 0;
    return false;
}

static bool has_job(const struct health_env *env, const struct process *list,
                    size_t count, uid_t user)
{
    const char *own = getenv("SLURM_JOB_UID");
    if (env->phase == HEALTH_PROLOG && own != NULL &&
        strtoul(own, NULL, 10) == user)
        return true;
    for (size_t i = 0; i < count; i++)
        if (list[i].user == user && is_manager(list, count, list[i].parent))
            return true;
    return false;
}

/* The entry of a user, made if need be; NULL: no room for another one. */
static struct leftover_user *find_user(const struct health_env *env,
                                       const struct process *list, size_t count,
                                       uid_t user, struct leftover_user *users,
                                       int *known)
{
    char number[16];
    for (int i = 0; i < *known; i++)
        if (users[i].user == user)
            return &users[i];
    if (*known == LEFTOVER_USERS)
        return NULL;
    snprintf(number, sizeof number, "%u", (unsigned)user);
    users[*known] = (struct leftover_user){
        .user = user,
        .has_job = health_listed(env->limits.leftover_ignore, number) ||
                   has_job(env, list, count, user)
    };
    return &users[(*known)++];
}

enum err health_processes_leftover(const struct health_env *env,
                                   struct health_result *out)
{
    struct leftover_user users[LEFTOVER_USERS];
    struct process *list;
    size_t count;
    int known = 0;
    TRY(processes_list(env->root, &list, &count));
    uid_t first_user = processes_first_user(env->root);
    snprintf(out->unit, sizeof out->unit, "processes");
    for (size_t i = 0; i < count; i++) {
        if (list[i].user < first_user || list[i].user == PROCESSES_NOBODY ||
            list[i].state == 'Z')
            continue;
        struct leftover_user *user =
            find_user(env, list, count, list[i].user, users, &known);
        if (user == NULL || user->has_job)
            continue;
        user->name = list[i].name;
        user->count++;
        out->value += 1;
    }
    for (int i = 0; i < known; i++)
        if (!users[i].has_job)
            health_also(out, HEALTH_WARN, "LEFTOVER", "user %u: %d (%s)",
                        (unsigned)users[i].user, users[i].count, users[i].name);
    free(list);
    return ERR_OK;
}
