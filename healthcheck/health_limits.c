/* The administrator's thresholds: the schema of health.cfg.
 *
 * Every threshold has its unit in its name and its help line, because a floor
 * in the wrong unit never fires. Without a file nothing about speed is bad: who
 * does not know the machine cannot say what is slow, and a verdict drains
 * nodes. */
#include "healthcheck/health.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/fsio.h"
#include "src/base/log.h"

#define ROW(group, key, type, preset, help)                                    \
    SETTINGS_ROW(offsetof(struct health_limits, group##_##key),                \
                 #group "." #key, type, preset, 0, help),

static const struct setting health_limits_schema[] = {
    HEALTH_LIMITS(ROW)
        SETTINGS_ROW(offsetof(struct health_limits, disable), "disable", STRING,
                     "", 0, "checks that do not run, separated by commas"),
};

static enum err limits_numbers(const char *path, const char *key,
                               const char *list)
{
    const char *item;
    size_t length;
    while (health_item(&list, &item, &length))
        for (size_t i = 0; i < length; i++)
            if (!isdigit((unsigned char)item[i]))
                return err_set(ERR_USAGE,
                               "%s: %s: '%.*s' is no number of an Xid", path,
                               key, (int)length, item);
    return ERR_OK;
}

static enum err limits_lists(const char *path,
                             const struct health_limits *limits)
{
    const char *item, *list = limits->disable;
    size_t length;
    TRY(limits_numbers(path, "gpu.xid_fatal", limits->gpu_xid_fatal));
    TRY(limits_numbers(path, "gpu.xid_suspect", limits->gpu_xid_suspect));
    if (health_mounts_check_list(limits->mounts_paths) != ERR_OK)
        return err_prefix(ERR_USAGE, "%s: mounts.paths: ", path);
    while (health_item(&list, &item, &length))
        if (!health_known(item, length))
            return err_set(ERR_USAGE,
                           "%s: disable: there is no check '%.*s'; "
                           "tessera-health --help lists them",
                           path, (int)length, item);
    return ERR_OK;
}

enum err health_limits_load(const char *path, struct health_limits *out)
{
    int count =
        (int)(sizeof health_limits_schema / sizeof health_limits_schema[0]);
    enum err rc =
        settings_load(health_limits_schema, count, path, NULL, 0, out, NULL);
    if (rc == ERR_OK)
        rc = limits_lists(path != NULL ? path : "thresholds", out);
    return rc;
}

/* Root decides over the whole node by this file. */
static bool limits_trusted(const char *path)
{
    struct stat status;
    if (geteuid() != 0 || stat(path, &status) != 0 ||
        (status.st_uid == 0 && (status.st_mode & 022) == 0))
        return true;
    log_warn("%s: not read: it must belong to root and be writable by root "
             "only; the defaults are used",
             path);
    return false;
}

bool health_site_file(const char *name, char *path, size_t bytes)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = '\0';
    /* from PREFIX/bin or PREFIX/libexec/tessera */
    char *end = exe;
    for (int up = 0; up < 2 && (end = strrchr(exe, '/')) != NULL; up++)
        *end = '\0';
    if (end == NULL)
        return false;
    if (end - exe >= 8 && strcmp(end - 8, "/libexec") == 0)
        *(end - 8) = '\0';
    /* as packages of the system have it */
    bool system = strcmp(exe, "/usr") == 0;
    n = snprintf(path, bytes, "%s/etc/%s%s", system ? "" : exe,
                 system ? "tessera/" : "", name);
    return n > 0 && (size_t)n < bytes;
}

enum err health_limits_default(struct health_limits *out)
{
    char path[PATH_MAX + 32];
    if (!health_site_file("health.cfg", path, sizeof path))
        return health_limits_load(NULL, out);
    return health_limits_load(
        fsio_exists(path) && limits_trusted(path) ? path : NULL, out);
}
