/* Looks at files of plug-ins before they are loaded, and loads them.
 *
 * What is loaded runs as the user, in every rank of the job, so it has to be the
 * user's or root's and nobody else may be able to write it. A path could be
 * another file between that look and the load: all is done with one open file,
 * which dlopen() gets by its number (/proc/self/fd), and what was digested is
 * what runs. An object that was loaded is never unloaded.
 *
 * All ranks must have loaded the same: a start compares one digest over the files
 * of all plug-ins, those that listen, then those that are algorithms. */
#include "src/train/extend/plugin_host.h"

#include <stddef.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/train/settings/train_settings.h"

#define ROW(group, type, field, ...)                                           \
    SETTINGS_ROW(offsetof(struct plugin_settings, field), #field, type,        \
                 __VA_ARGS__),
static const struct setting schema[] = { PLUGIN_SETTINGS(ROW) };
const struct settings_kind plugin_kinds[] = {
    { NULL, "a shared object", schema, sizeof schema / sizeof schema[0] },
    { 0 },
};

static enum err check(const char *path, const struct stat *st)
{
    const char *wrong = NULL;
    if (!S_ISREG(st->st_mode))
        wrong = "is no regular file";
    else if (st->st_uid != geteuid() && st->st_uid != 0)
        wrong = "belongs to another user, who could change what your jobs do: "
                "copy it";
    else if ((st->st_mode & (S_IWGRP | S_IWOTH)) != 0)
        wrong = "can be written by others, who could change what your jobs "
                "do: chmod go-w";
    return wrong == NULL ? ERR_OK
                         : err_set(ERR_USAGE, "plugins: %s %s", path, wrong);
}

static enum err digest_all(int fd, const char *path, struct digest *digest)
{
    char part[16384];
    ssize_t got;
    while ((got = read(fd, part, sizeof part)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno("plugins: %s: read", path);
        TRY(digest_update(digest, part, (size_t)got));
    }
    return ERR_OK;
}

/* SHA-256 of what is open as `fd`. */
static enum err look(int fd, const char *path, char hex[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    struct stat st;
    if (fstat(fd, &st) != 0)
        rc = err_errno("plugins: %s: stat", path);
    if (rc == ERR_OK)
        rc = check(path, &st);
    TRY_OUT(rc);
    TRY_OUT(digest_create(&digest));
    TRY_OUT(digest_all(fd, path, digest));
    TRY_OUT(digest_finish(digest, hex));
out:
    digest_destroy(digest);
    return rc;
}

static enum err open_file(const char *path, int *fd)
{
    /* a FIFO would be waited for */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return *fd >= 0
               ? ERR_OK
               : err_set(ERR_USAGE, "plugins: %s: %s", path, strerror(errno));
}

/* SHA-256 of the file: ERR_USAGE where it is none that may be loaded, which is
 * one of the user's or root's that nobody else can write. */
static enum err plugin_file_digest(const char *path, char hex[65])
{
    int fd;
    TRY(open_file(path, &fd));
    enum err rc = look(fd, path, hex);
    close(fd);
    return rc;
}

/* What a run can do with it. */
static enum err check_plugin(const char *path,
                             const struct tessera_plugin *plugin)
{
    if (plugin == NULL)
        return err_set(ERR_USAGE, "plugins: %s: tessera_plugin() gives nothing",
                       path);
    if (plugin->abi != TESSERA_PLUGIN_ABI)
        return err_set(ERR_USAGE,
                       "plugins: %s was made for plug-in interface %u, this "
                       "is %u: compile it with this version's tessera_plugin.h",
                       path, plugin->abi, TESSERA_PLUGIN_ABI);
    if (plugin->bytes < offsetof(struct tessera_plugin, algorithms) ||
        plugin->name == NULL || plugin->name[0] == '\0')
        return err_set(ERR_USAGE,
                       "plugins: %s: its structure has no name, or not its "
                       "size in `bytes`",
                       path);
    return ERR_OK;
}

const struct tessera_algorithm *const *
plugin_file_algorithms(const struct tessera_plugin *plugin)
{
    size_t end =
        offsetof(struct tessera_plugin, algorithms) + sizeof plugin->algorithms;
    return plugin->bytes >= end ? plugin->algorithms : NULL;
}

static enum err load(int fd, const char *path,
                     const struct tessera_plugin **out)
{
    const struct tessera_plugin *(*plugin)(void) = NULL;
    char opened_as[64];
    snprintf(opened_as, sizeof opened_as, "/proc/self/fd/%d", fd);
    /* it stays: threads and atexit() functions of its own may */
    void *opened = dlopen(opened_as, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (opened == NULL)
        return err_set(ERR_USAGE, "plugins: %s: %s", path, dlerror());
    void *symbol = dlsym(opened, "tessera_plugin");
    if (symbol == NULL)
        return err_set(ERR_USAGE,
                       "plugins: %s is no plug-in: it has no function "
                       "tessera_plugin()",
                       path);
    memcpy(&plugin, &symbol, sizeof plugin);
    *out = plugin();
    return check_plugin(path, *out);
}

enum err plugin_file_open(const char *path, char hex[65],
                          const struct tessera_plugin **out)
{
    int fd;
    TRY(open_file(path, &fd));
    enum err rc = look(fd, path, hex);
    if (rc == ERR_OK)
        rc = load(fd, path, out);
    /* the number is the object's name for dlopen(), which must not take another
     * file under it for the same */
    if (rc != ERR_OK)
        close(fd);
    return rc;
}

/* The file of an item of `plugins`, or of `algorithms` if it is a plug-in's; NULL:
 * it has none. */
union item {
    struct plugin_settings listens;
    _Alignas(max_align_t) char any[4 * SETTINGS_TEXT_BYTES]; /* any kind's */
    struct algorithm_plugin changes;
};

static const char *file_of(const struct setting *list, int kind,
                           const union item *item)
{
    const char *name = list->kinds[kind].name;
    if (name == NULL) /* `plugins` has one kind, without a name */
        return item->listens.path;
    return strcmp(name, "plugin") == 0 ? item->changes.path : NULL;
}

static enum err digest_list(const char *key, const char *text,
                            struct digest *digest, int *files)
{
    union item item;
    char own[65];
    const struct setting *list = train_settings_setting(key);
    int count = 0, kind = 0;
    TRY(settings_list_count(list, text, &count));
    for (int i = 0; i < count; i++) {
        TRY(settings_list_item(list, text, i, &kind, &item));
        const char *path = file_of(list, kind, &item);
        if (path == NULL)
            continue;
        TRY(plugin_file_digest(path, own));
        TRY(digest_update(digest, own, sizeof own));
        ++*files;
    }
    return ERR_OK;
}

enum err plugin_file_all(const struct train_settings *settings, char hex[65])
{
    enum err rc = ERR_OK;
    struct digest *digest = NULL;
    int files = 0;
    TRY(digest_create(&digest));
    TRY_OUT(digest_list("plugins", settings->alone.plugins, digest, &files));
    TRY_OUT(
        digest_list("algorithms", settings->alone.algorithms, digest, &files));
    TRY_OUT(digest_finish(digest, hex));
    if (files == 0)
        hex[0] = '\0';
out:
    digest_destroy(digest);
    return rc;
}
