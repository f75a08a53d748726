/* Writes down who writes into a temporary folder, and removes the folders that
 * dead writers have left (the sweep).
 *
 * A temporary folder may be reaped only when nobody writes there any more. The
 * run lock tells of rank 0's process alone, and only where it could be judged;
 * so each temporary names its writer. */
#include "checkpoint/files/ckpt_index_private.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/process.h"

#define OWNER_BYTES_MAX 4096
#define HOST_BYTES 256
/* How long a silent writer on another host is believed to live. */
#define QUIET_S 3600

/* A number of a process is given out again; number and start time together are
 * not, before the next boot.
 *
 * When the process started, in clock ticks since boot; -1: no such process. */
static int64_t start_time(int64_t pid)
{
    int64_t started; /* also of a process that can still write, though it is a
                        zombie: another of its threads may be in a write */
    return process_lives(pid, &started) ? started : -1;
}

static enum err host_name(char host[HOST_BYTES])
{
    memset(host, 0, HOST_BYTES);
    return gethostname(host, HOST_BYTES - 1) == 0 ? ERR_OK
                                                  : err_errno("host name");
}

enum err ckpt_index_owner_write(const char *tmp_path, const char *attempt)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], host[HOST_BYTES];
    char *text = NULL;
    json_t *owner = NULL;
    TRY_OUT(fsio_path(path, "%s/%s", tmp_path, CKPT_INDEX_OWNER));
    TRY_OUT(host_name(host));
    owner = json_pack("{s:s, s:I, s:I, s:s}", "host", host, "pid",
                      (json_int_t)getpid(), "start_time",
                      (json_int_t)start_time(getpid()), "attempt", attempt);
    text = owner == NULL ? NULL : json_dumps(owner, 0);
    if (text == NULL)
        rc = err_set(ERR_MEMORY, "%s: out of memory", path);
    else
        TRY_OUT(fsio_write_new(path, text, strlen(text), false));
out:
    free(text);
    json_decref(owner);
    return rc;
}

enum err ckpt_index_owner_remove(const char *tmp_path)
{
    char path[FSIO_PATH_MAX];
    enum err rc = fsio_path(path, "%s/%s", tmp_path, CKPT_INDEX_OWNER);
    if (rc == ERR_OK && unlink(path) != 0 && errno != ENOENT)
        rc = err_errno("%s: remove", path);
    return rc;
}

/* Patterns of folder names, as globs. */
#define STEP "step-[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]*"
#define DROPPED CKPT_INDEX_TRASH_PREFIX

/* Whether the folder or anything in it changed within the last hour. */
static bool changed_lately(const char *path)
{
    struct stat status;
    time_t newest = 0;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return false;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (fstatat(dirfd(folder), entry->d_name, &status, 0) == 0 &&
            strcmp(entry->d_name, "..") != 0 && status.st_mtime > newest)
            newest = status.st_mtime;
    closedir(folder);
    return time(NULL) - newest < QUIET_S;
}

/* A folder without a readable OWNER is nobody's: rank 0 writes the file before
 * anybody writes a shard, and removes it when all have ended. */
static bool owner_lives(const char *tmp_path)
{
    char path[FSIO_PATH_MAX], here[HOST_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    const char *host;
    json_int_t pid, started;
    bool lives = false;
    if (fsio_path(path, "%s/%s", tmp_path, CKPT_INDEX_OWNER) != ERR_OK ||
        fsio_read_file(path, OWNER_BYTES_MAX, &text, &bytes) != ERR_OK ||
        host_name(here) != ERR_OK) {
        free(text);
        return false;
    }
    json_t *owner = json_loadb(text, bytes, 0, NULL);
    if (json_unpack(owner, "{s:s, s:I, s:I}", "host", &host, "pid", &pid,
                    "start_time", &started) == 0)
        lives = strcmp(host, here) == 0 ? start_time(pid) == started
                                        : changed_lately(tmp_path);
    json_decref(owner);
    free(text);
    return lives;
}

/* Names that Tessera gives to what it may delete. Others in the folder are
 * somebody else's. */
static bool is_leftover(const char *name)
{
    static const char *const patterns[] = {
        CKPT_INDEX_TMP_PREFIX STEP,
        CKPT_INDEX_TMP_PREFIX "reshard.[0-9]*",
        CKPT_INDEX_LATEST ".tmp.[0-9]*",
        CKPT_INDEX_UUID ".tmp.[0-9]*",
        DROPPED STEP,
        DROPPED "old-" STEP,
        DROPPED "tmp-" STEP,
        DROPPED "tmp-reshard.[0-9]*",
        DROPPED CKPT_INDEX_LATEST ".tmp.[0-9]*",
        DROPPED CKPT_INDEX_UUID ".tmp.[0-9]*",
    };
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

static enum err sweep_entry(void *arg, const char *run_dir, const char *name)
{
    char path[FSIO_PATH_MAX];
    (void)arg;
    bool tmp = ckpt_index_has_prefix(name, CKPT_INDEX_TMP_PREFIX);
    if (!is_leftover(name))
        return ERR_OK;
    TRY(fsio_path(path, "%s/checkpoints/%s", run_dir, name));
    if (tmp && owner_lives(path))
        log_warn("%s stays: its writer may be alive", path);
    else
        TRY(ckpt_index_discard(run_dir, path));
    return ERR_OK;
}

enum err ckpt_index_sweep(const char *run_dir)
{
    TRY(ckpt_index_recover(run_dir));
    return ckpt_index_for_each(run_dir, sweep_entry, NULL);
}
