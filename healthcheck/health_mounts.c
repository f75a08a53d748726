/* File systems that the site says a node has (mounts.paths): there, of the right
 * kind, answering, and not read-only where jobs write.
 *
 * Each path is asked by a process of its own, all at once, for one that hangs must
 * hide no other. Nothing is written: a thousand nodes that begin a job would make a
 * thousand files on one server, and root may not write on many. Asking comes before
 * the look at the table of mounts, since it is what has an automounter mount.
 *
 * All of it is a warning. A file system that hangs says something of its server, and
 * so does one that a node could not mount when it booted: whether other nodes have
 * it cannot be seen from here. A node that alone has no /home takes one job after the
 * other and fails each, so a site may make that bad (mounts.missing_bad); where it is
 * the server after all, the limits of drains hold. */
#include "healthcheck/health_checks.h"

#include <errno.h>
#include <mntent.h>
#include <signal.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "healthcheck/health_child.h"
#include "src/base/clock.h"
#include "src/base/fsio.h"

#define MOUNTS_MAX 32
#define MOUNTS_ASK_S 2.0 /* for all of them; the check has 4 s */
#define MOUNTS_LINE_BYTES 8192

struct mounts_answer {
    int error; /* 0: it answered */
    bool read_only;
};

/* A word of the list: PATH, PATH:TYPE, PATH:TYPE:rw or PATH::rw. */
struct mounts_place {
    char path[256], type[32];
    bool writable; /* that it is wanted */
    int pipe_fd;
    pid_t pid;
    bool answered, mounted;
    struct mounts_answer answer;
    char is[32]; /* the type that is mounted */
};

static bool place_parse(const char *item, size_t length,
                        struct mounts_place *out)
{
    size_t path = 0, type;
    *out = (struct mounts_place){ .pipe_fd = -1 };
    while (path < length && item[path] != ':')
        path++;
    const char *rest = item + path + (path < length);
    size_t left = length - path - (path < length);
    for (type = 0; type < left && rest[type] != ':';)
        type++;
    if (item[0] != '/' || path >= sizeof out->path ||
        type >= sizeof out->type ||
        (type < left && (left - type != 3 || strncmp(rest + type, ":rw", 3))))
        return false;
    snprintf(out->path, sizeof out->path, "%.*s", (int)path, item);
    snprintf(out->type, sizeof out->type, "%.*s", (int)type, rest);
    out->writable = type < left;
    return true;
}

enum err health_mounts_check_list(const char *list)
{
    struct mounts_place place;
    const char *item;
    size_t length;
    int count = 0;
    while (health_item(&list, &item, &length))
        if (!place_parse(item, length, &place) || ++count > MOUNTS_MAX)
            return err_set(ERR_USAGE,
                           "'%.*s' is not PATH, PATH:TYPE, PATH:TYPE:rw or "
                           "PATH::rw, or more than %d are given",
                           (int)length, item, MOUNTS_MAX);
    return ERR_OK;
}

/* --- whether it answers --- */

/* What user this is may have no right to write there, which says nothing. */
static struct mounts_answer place_look(const char *path)
{
    struct statvfs status;
    struct mounts_answer answer = { 0 };
    if (statvfs(path, &status) != 0)
        answer.error = errno;
    else
        answer.read_only = (status.f_flag & ST_RDONLY) != 0 ||
                           (access(path, W_OK) != 0 && errno == EROFS);
    return answer;
}

static enum err place_ask(const struct health_env *env,
                          struct mounts_place *place)
{
    char path[FSIO_PATH_MAX];
    TRY(fsio_path(path, "%s%s", env->root, place->path));
    place->pid = health_child_start(&place->pipe_fd);
    if (place->pid == 0) {
        const struct mounts_answer answer = place_look(path);
        health_child_end(place->pipe_fd, &answer, sizeof answer);
    }
    return place->pid < 0 ? err_errno("fork") : ERR_OK;
}

/* Whoever has not answered is left behind, as we are to end. */
static void place_hear(struct mounts_place *place, double deadline)
{
    size_t bytes;
    place->answered =
        health_child_wait(place->pipe_fd, deadline, &place->answer,
                          sizeof place->answer, &bytes) &&
        bytes == sizeof place->answer;
    if (!place->answered)
        kill(place->pid, SIGKILL);
    close(place->pipe_fd);
}

/* --- whether it is there --- */

/* Several may be at one place: the last is seen. */
static enum err mounts_find(const char *root, struct mounts_place *places,
                            int count)
{
    char path[FSIO_PATH_MAX], line[MOUNTS_LINE_BYTES];
    struct mntent entry;
    TRY(fsio_path(path, "%s/proc/self/mounts", root));
    FILE *file = setmntent(path, "re");
    if (file == NULL)
        return err_errno("%s: open", path);
    while (getmntent_r(file, &entry, line, sizeof line) != NULL) {
        for (int i = 0; i < count; i++) {
            struct mounts_place *place = &places[i];
            if (strcmp(entry.mnt_dir, place->path) != 0)
                continue;
            place->mounted = true;
            place->answer.read_only |= hasmntopt(&entry, "ro") != NULL;
            snprintf(place->is, sizeof place->is, "%s", entry.mnt_type);
        }
    }
    endmntent(file);
    return ERR_OK;
}

static void place_judge(const struct health_env *env,
                        const struct mounts_place *place,
                        struct health_result *out)
{
    bool other = place->type[0] != '\0' && strcmp(place->type, place->is) != 0;
    enum health_state missing =
        env->limits.mounts_missing_bad ? HEALTH_BAD : HEALTH_WARN;
    if (!place->answered)
        health_also(out, HEALTH_WARN, "MOUNT_HANGS", "%s does not answer",
                    place->path);
    else if (place->answer.error == ENOENT || !place->mounted)
        health_also(out, missing, "MOUNT_MISSING", "%s is not mounted",
                    place->path);
    else if (other)
        health_also(out, missing, "MOUNT_MISSING", "%s is %s, not %s",
                    place->path, place->is, place->type);
    else if (place->answer.error != 0 && place->answer.error != EACCES)
        health_also(out, HEALTH_WARN, "MOUNT_FAILS", "%s: %s", place->path,
                    strerror(place->answer.error));
    else if (place->writable && place->answer.read_only)
        health_also(out, HEALTH_WARN, "MOUNT_READ_ONLY", "%s is read-only",
                    place->path);
    else
        return;
    out->value += 1;
}

enum err health_mounts(const struct health_env *env, struct health_result *out)
{
    struct mounts_place places[MOUNTS_MAX];
    const char *list = env->limits.mounts_paths, *item;
    size_t length;
    int count = 0;
    snprintf(out->unit, sizeof out->unit, "mounts");
    for (; health_item(&list, &item, &length); count++) {
        if (count == MOUNTS_MAX || !place_parse(item, length, &places[count]))
            return health_mounts_check_list(env->limits.mounts_paths);
        TRY(place_ask(env, &places[count]));
    }
    if (count == 0)
        return ERR_OK;
    double deadline = clock_now() + MOUNTS_ASK_S;
    for (int i = 0; i < count; i++)
        place_hear(&places[i], deadline);
    TRY(mounts_find(env->root, places, count));
    for (int i = 0; i < count; i++)
        place_judge(env, &places[i], out);
    return ERR_OK;
}
