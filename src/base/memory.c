/* How much memory a process may still take, by the machine, its cgroups and its
 * limits, and how much it has taken. It allocates nothing: arena.c does.
 *
 * A cgroup's limit holds for all that lies below it, so a job's share is the
 * least that any group on the way from its own to the mount has left; none of
 * them tells what the others have. The usage that is read has the page cache in
 * it, which the kernel gives back before it kills anybody: so that is taken
 * off. */
#include "src/base/memory.h"

#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/fsio.h"
#include "src/base/sysfile.h"

#define LINE_BYTES 4096

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static FILE *open_file(const char *root, const char *name)
{
    char path[FSIO_PATH_MAX];
    int n = snprintf(path, sizeof path, "%s%s", root, name);
    return n < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* KiB after "NAME:" in a file of /proc, in bytes. */
static bool read_kib(const char *root, const char *file, const char *name,
                     size_t *bytes)
{
    char line[LINE_BYTES];
    bool found = false;
    size_t length = strlen(name);
    FILE *stream = open_file(root, file);
    if (stream == NULL)
        return false;
    while (!found && fgets(line, sizeof line, stream) != NULL) {
        found = strncmp(line, name, length) == 0 && line[length] == ':';
        if (found)
            *bytes = (size_t)strtoull(line + length + 1, NULL, 10) << 10;
    }
    fclose(stream);
    return found;
}

/* --- cgroups --- */

/* Names of what both versions have. */
struct version {
    const char *type;    /* of the file system */
    const char *control; /* in the mount's options, "" for all */
    const char *limits[2];
    const char *usage;
    const char *cache[3]; /* in memory.stat: what the kernel takes back */
};

static const struct version versions[] = {
    { "cgroup2",
      "",
      { "memory.max", "memory.high" },
      "memory.current",
      { "inactive_file ", "active_file ", "slab_reclaimable " } },
    { "cgroup",
      "memory",
      { "memory.limit_in_bytes", NULL },
      "memory.usage_in_bytes",
      { "total_inactive_file ", "total_active_file ", NULL } },
};

/* Is `word` one of those that commas separate? */
static bool listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        size_t end = strcspn(at, ",\n");
        if (end == length && strncmp(at, word, length) == 0)
            return true;
    }
    return false;
}

/* A number alone in a file; "max" and what is not there: SIZE_MAX. */
static size_t read_number(const char *root, const char *folder,
                          const char *name)
{
    char text[64];
    (void)sysfile_text(text, sizeof text, "%s%s/%s", root, folder, name);
    bool number = text[0] >= '0' && text[0] <= '9';
    return number ? (size_t)strtoull(text, NULL, 10) : SIZE_MAX;
}

static size_t read_cache(const char *root, const char *folder,
                         const struct version *version)
{
    char path[FSIO_PATH_MAX];
    char line[LINE_BYTES];
    size_t bytes = 0;
    FILE *stream = NULL;
    int n = snprintf(path, sizeof path, "%s/memory.stat", folder);
    if (n < (int)sizeof path)
        stream = open_file(root, path);
    if (stream == NULL)
        return 0;
    while (fgets(line, sizeof line, stream) != NULL)
        for (int i = 0; i < 3 && version->cache[i] != NULL; i++) {
            size_t length = strlen(version->cache[i]);
            if (strncmp(line, version->cache[i], length) == 0)
                bytes += (size_t)strtoull(line + length, NULL, 10);
        }
    fclose(stream);
    return bytes;
}

/* What one cgroup has left. */
static size_t left_in(const char *root, const char *folder,
                      const struct version *version)
{
    size_t limit = SIZE_MAX;
    for (int i = 0; i < 2 && version->limits[i] != NULL; i++)
        limit = least(limit, read_number(root, folder, version->limits[i]));
    size_t usage = read_number(root, folder, version->usage);
    if (limit == SIZE_MAX)
        return SIZE_MAX;
    size_t cache = read_cache(root, folder, version);
    usage = usage == SIZE_MAX || usage < cache ? 0 : usage - cache;
    return usage < limit ? limit - usage : 0;
}

/* The least that any cgroup has left, from this process's own up to where the
 * hierarchy is mounted. `path` is as in /proc/self/cgroup; where it is not
 * below the mount's own root (a container may see neither), only the mount is
 * there to look at. */
static size_t left_above(const char *root, const char *mount,
                         const char *mount_root, const char *path,
                         const struct version *version)
{
    char folder[FSIO_PATH_MAX];
    size_t prefix = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    size_t left = SIZE_MAX;
    const char *below = path + prefix;
    if (strncmp(path, mount_root, prefix) != 0 ||
        (below[0] != '/' && below[0] != '\0') || strncmp(below, "/..", 3) == 0)
        below = "";
    int n = snprintf(folder, sizeof folder, "%s%s", mount, below);
    if (n >= (int)sizeof folder)
        return SIZE_MAX;
    for (;;) {
        left = least(left, left_in(root, folder, version));
        char *end = strrchr(folder, '/');
        if (end == NULL || strlen(folder) <= strlen(mount))
            return left;
        *end = '\0';
    }
}

/* Where the hierarchy is mounted, and which part of it that is. */
static bool find_mount(const char *root, const struct version *version,
                       char mount[FSIO_PATH_MAX],
                       char mount_root[FSIO_PATH_MAX])
{
    char line[LINE_BYTES];
    char type[64], options[LINE_BYTES];
    bool found = false;
    FILE *stream = open_file(root, "/proc/self/mountinfo");
    if (stream == NULL)
        return false;
    while (!found && fgets(line, sizeof line, stream) != NULL) {
        const char *rest = strstr(line, " - ");
        found =
            rest != NULL &&
            sscanf(line, "%*s %*s %*s %1023s %1023s", mount_root, mount) == 2 &&
            sscanf(rest, " - %63s %*s %4095s", type, options) == 2 &&
            strcmp(type, version->type) == 0 &&
            (version->control[0] == '\0' || listed(options, version->control));
    }
    fclose(stream);
    return found;
}

/* "N:CONTROLLERS:PATH" of the hierarchy; version 2 has no controllers. */
static bool find_path(const char *root, const struct version *version,
                      char path[FSIO_PATH_MAX])
{
    char line[LINE_BYTES];
    bool found = false;
    FILE *stream = open_file(root, "/proc/self/cgroup");
    if (stream == NULL)
        return false;
    while (!found && fgets(line, sizeof line, stream) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *control = strchr(line, ':');
        char *at = control != NULL ? strchr(control + 1, ':') : NULL;
        if (at == NULL || strlen(at + 1) >= FSIO_PATH_MAX)
            continue;
        *at = '\0';
        found = version->control[0] == '\0'
                    ? control[1] == '\0'
                    : listed(control + 1, version->control);
        if (found)
            snprintf(path, FSIO_PATH_MAX, "%s",
                     strcmp(at + 1, "/") == 0 ? "" : at + 1);
    }
    fclose(stream);
    return found;
}

size_t memory_available(const char *root)
{
    char mount[FSIO_PATH_MAX], mount_root[FSIO_PATH_MAX], path[FSIO_PATH_MAX];
    size_t left = SIZE_MAX;
    if (!read_kib(root, "/proc/meminfo", "MemAvailable", &left))
        left = SIZE_MAX;
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++)
        if (find_path(root, &versions[i], path) &&
            find_mount(root, &versions[i], mount, mount_root))
            left = least(
                left, left_above(root, mount, mount_root, path, &versions[i]));
    return left;
}

/* --- this process --- */

static size_t left_of(__rlimit_resource_t resource, const char *name)
{
    struct rlimit limit;
    size_t used = 0;
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return SIZE_MAX;
    if (!read_kib("", "/proc/self/status", name, &used))
        return SIZE_MAX;
    return used < limit.rlim_cur ? (size_t)limit.rlim_cur - used : 0;
}

size_t memory_address_space(void)
{
    return least(left_of(RLIMIT_AS, "VmSize"), left_of(RLIMIT_DATA, "VmData"));
}

void memory_share_heap(void)
{
    mallopt(M_ARENA_MAX, 1);
}

static size_t status_of(const char *name)
{
    size_t bytes = 0;
    return read_kib("", "/proc/self/status", name, &bytes) ? bytes : 0;
}

size_t memory_resident(void)
{
    return status_of("VmRSS");
}

size_t memory_peak(void)
{
    return status_of("VmHWM");
}
