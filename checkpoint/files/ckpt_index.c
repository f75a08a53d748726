/* The folder RUN/checkpoints: names, lists, quick checks, the commit by one
 * rename, and LATEST. What may be deleted is decided in ckpt_index_retain.c; no
 * file of a checkpoint is written here.
 *
 * A name is all that a folder's state is: step-* is committed, .tmp-* is being
 * written, .bad-* damaged, .trash-* on its way out, and going from one to the
 * other is a rename. So a deletion that is cut off leaves trash and never half a
 * step, and a list of names tells all without a file being opened. A rename is
 * durable when its folder has been synced, which each of them waits for. LATEST
 * is for people and scripts: the newest step is found by listing, since two
 * files could not be changed at once. */
#include "checkpoint/files/ckpt_index.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_index_private.h"
#include "src/base/log.h"
#include "src/base/array.h"

#define BAD_PREFIX ".bad-step-"
#define OLD_PREFIX ".old-step-"

/* --- names --- */

enum err ckpt_index_root(char out[FSIO_PATH_MAX], const char *run_dir)
{
    return fsio_path(out, "%s/checkpoints", run_dir);
}

static enum err index_name(char out[FSIO_PATH_MAX], const char *run_dir,
                           const char *prefix, int64_t step)
{
    return fsio_path(out, "%s/checkpoints/%s%0*" PRId64, run_dir, prefix,
                     CKPT_STEP_DIGITS, step);
}

enum err ckpt_index_path(char out[FSIO_PATH_MAX], const char *run_dir,
                         int64_t step)
{
    return index_name(out, run_dir, CKPT_STEP_PREFIX, step);
}

enum err ckpt_index_tmp_path(char out[FSIO_PATH_MAX], const char *run_dir,
                             int64_t step, const char *attempt)
{
    assert(step >= 0);
    return fsio_path(out, "%s/checkpoints/%s%s%0*" PRId64 ".%s", run_dir,
                     CKPT_INDEX_TMP_PREFIX, CKPT_STEP_PREFIX, CKPT_STEP_DIGITS,
                     step, attempt);
}

bool ckpt_index_has_prefix(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* --- listing --- */

enum err ckpt_index_for_each(const char *run_dir, ckpt_index_entry_fn entry,
                             void *arg)
{
    enum err rc = ERR_OK;
    char root[FSIO_PATH_MAX];
    DIR *folder = NULL;
    TRY_OUT(ckpt_index_root(root, run_dir));
    folder = opendir(root);
    if (folder == NULL) {
        if (errno != ENOENT)
            rc = err_errno("%s: open", root);
        goto out;
    }
    for (;;) {
        errno = 0;
        struct dirent *found = readdir(folder);
        if (found == NULL) {
            if (errno != 0)
                rc = err_errno("%s: read", root);
            break;
        }
        if (strcmp(found->d_name, ".") != 0 && strcmp(found->d_name, "..") != 0)
            TRY_OUT(entry(arg, run_dir, found->d_name));
    }
out:
    if (folder != NULL)
        closedir(folder);
    return rc;
}

struct steps {
    int64_t *list;
    int count, room;
    bool evidence;
};

static enum err add_step(void *arg, const char *run_dir, const char *name)
{
    struct steps *steps = arg;
    (void)run_dir;
    if (ckpt_index_has_prefix(name, CKPT_STEP_PREFIX) ||
        ckpt_index_has_prefix(name, BAD_PREFIX))
        steps->evidence = true;
    int64_t step =
        ckpt_manifest_step_after(name, strlen(name), CKPT_STEP_PREFIX);
    if (step < 0)
        return ERR_OK;
    TRY(array_room(&steps->list, &steps->room, steps->count + 1));
    steps->list[steps->count++] = step;
    return ERR_OK;
}

enum err ckpt_index_steps(const char *run_dir, int64_t **steps, int *count,
                          bool *evidence)
{
    struct steps found = { 0 };
    enum err rc = ckpt_index_for_each(run_dir, add_step, &found);
    if (rc != ERR_OK) {
        free(found.list);
        found = (struct steps){ 0 };
    }
    if (found.count > 0)
        qsort(found.list, (size_t)found.count, sizeof *found.list,
              array_order_i64);
    *steps = found.list;
    *count = found.count;
    if (evidence != NULL)
        *evidence = found.evidence;
    return rc;
}

enum err ckpt_index_quick_check(const char *checkpoint_dir, char **text,
                                size_t *bytes)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    TRY_OUT(ckpt_manifest_read(checkpoint_dir, text, bytes, &manifest));
    TRY_OUT(ckpt_manifest_check_sizes(manifest, checkpoint_dir));
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}

enum err ckpt_index_newest(char path[FSIO_PATH_MAX], const char *run_dir)
{
    enum err rc = ERR_OK;
    int64_t *steps = NULL;
    int count = 0;
    bool evidence = false;
    TRY_OUT(ckpt_index_steps(run_dir, &steps, &count, &evidence));
    while (count > 0) {
        TRY_OUT(ckpt_index_path(path, run_dir, steps[--count]));
        rc = ckpt_index_quick_check(path, NULL, NULL);
        if (rc != ERR_CHECKPOINT)
            goto out;
        log_warn("%s is passed over: %s", path, err_text());
    }
    rc = err_set(ERR_CHECKPOINT, "%s: no %scheckpoint in the run directory",
                 run_dir, evidence ? "good " : "");
out:
    free(steps);
    return rc;
}

/* --- renames --- */

static enum err sync_root(const char *run_dir)
{
    char root[FSIO_PATH_MAX];
    TRY(ckpt_index_root(root, run_dir));
    return fsio_fsync_dir(root);
}

static enum err move(const char *from, const char *to)
{
    return rename(from, to) == 0 ? ERR_OK
                                 : err_errno("%s: rename to %s", from, to);
}

/* Rename to the first free of PREFIX.0, PREFIX.1, ...; `to` tells which. */
static enum err move_numbered(const char *from, const char *prefix,
                              char to[FSIO_PATH_MAX])
{
    int i = 0;
    enum err rc;
    do {
        TRY(fsio_path(to, "%s.%d", prefix, i++));
        rc = fsio_rename_new(from, to);
    } while (rc == ERR_USAGE);
    return rc;
}

enum err ckpt_index_retire(const char *run_dir, const char *path,
                           char trash[FSIO_PATH_MAX])
{
    char prefix[FSIO_PATH_MAX];
    assert(strncmp(path, run_dir, strlen(run_dir)) == 0); /* no other's */
    const char *name = strrchr(path, '/') + 1;
    if (ckpt_index_has_prefix(name, CKPT_INDEX_TRASH_PREFIX))
        return fsio_path(trash, "%s", path);
    TRY(fsio_path(prefix, "%s/checkpoints/%s%s", run_dir,
                  CKPT_INDEX_TRASH_PREFIX, name[0] == '.' ? name + 1 : name));
    TRY(move_numbered(path, prefix, trash));
    TRY(sync_root(run_dir));
    ckpt_crash_point("prune-renamed", 0);
    return ERR_OK;
}

enum err ckpt_index_discard(const char *run_dir, const char *path)
{
    char trash[FSIO_PATH_MAX];
    if (!fsio_exists(path))
        return ERR_OK;
    TRY(ckpt_index_retire(run_dir, path, trash));
    return fsio_remove_tree(trash);
}

enum err ckpt_index_quarantine(const char *run_dir, int64_t step,
                               const char *reason)
{
    char path[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX], bad[FSIO_PATH_MAX];
    char note[FSIO_PATH_MAX], text[ERR_TEXT_BYTES];
    assert(step >= 0);
    /* it may be err_text() */
    snprintf(text, sizeof text, "%s", reason);
    TRY(ckpt_index_path(path, run_dir, step));
    TRY(index_name(prefix, run_dir, BAD_PREFIX, step));
    TRY(move_numbered(path, prefix, bad));
    TRY(sync_root(run_dir));
    log_warn("checkpoint step %" PRId64 " is damaged and now %s: %s", step, bad,
             text);
    /* The note is a convenience; the log has the reason too. */
    if (fsio_path(note, "%s/REASON", bad) != ERR_OK ||
        fsio_write_atomic(note, text, strlen(text)) != ERR_OK)
        log_warn("can't store the reason: %s", err_text());
    return ERR_OK;
}

static enum err recover_entry(void *arg, const char *run_dir, const char *name)
{
    char path[FSIO_PATH_MAX], old[FSIO_PATH_MAX];
    (void)arg;
    int64_t step = ckpt_manifest_step_after(name, strlen(name), OLD_PREFIX);
    if (step < 0)
        return ERR_OK;
    TRY(index_name(old, run_dir, OLD_PREFIX, step));
    TRY(ckpt_index_path(path, run_dir, step));
    if (fsio_exists(path)) {
        TRY(ckpt_index_discard(run_dir, old));
    } else {
        TRY(move(old, path));
        TRY(sync_root(run_dir));
        log_warn("checkpoint step %" PRId64 ": its replacement was cut off, "
                 "the old one is back",
                 step);
    }
    return ERR_OK;
}

enum err ckpt_index_recover(const char *run_dir)
{
    return ckpt_index_for_each(run_dir, recover_entry, NULL);
}

enum err ckpt_index_begin(const char *run_dir, const char *tmp_path,
                          const char *attempt)
{
    int failed = mkdir(tmp_path, 0777) == 0 ? 0 : errno;
    if (failed == EEXIST)
        TRY(ckpt_index_discard(run_dir, tmp_path));
    if (failed != 0)
        TRY(fsio_mkdirs(tmp_path));
    if (failed == ENOENT)
        TRY(fsio_fsync_dir(run_dir));
    ckpt_crash_point("folder-made", 0);
    TRY(ckpt_index_owner_write(tmp_path, attempt));
    ckpt_crash_point("owner-written", 0);
    return ERR_OK;
}

/* --- commit --- */

/* After the rename of a commit, which is undone where it may not be durable. */
static enum err sync_commit(const char *run_dir, const char *path,
                            const char *tmp_path, unsigned flags)
{
    ckpt_crash_point("commit-renamed", 0);
    enum err rc = sync_root(run_dir);
    if (rc != ERR_OK &&
        renameat2(AT_FDCWD, path, AT_FDCWD, tmp_path, flags) != 0)
        log_warn("%s: can't take the commit back: %s", path, strerror(errno));
    return rc;
}

static enum err commit_new(const char *run_dir, const char *path,
                           const char *tmp_path)
{
    TRY(move(tmp_path, path));
    return sync_commit(run_dir, path, tmp_path, 0);
}

/* Commits by two renames with a gap between them, which ckpt_index_recover()
 * closes. */
static enum err commit_aside(const char *run_dir, int64_t step,
                             const char *path, const char *tmp_path)
{
    char old[FSIO_PATH_MAX];
    TRY(index_name(old, run_dir, OLD_PREFIX, step));
    TRY(move(path, old));
    TRY(sync_root(run_dir));
    ckpt_crash_point("old-aside", 0);
    enum err rc = commit_new(run_dir, path, tmp_path);
    if (rc != ERR_OK) {
        if (rename(old, path) != 0)
            log_warn("%s: can't put it back: %s", old, strerror(errno));
        return rc;
    }
    if (ckpt_index_discard(run_dir, old) != ERR_OK)
        log_warn("replaced checkpoint stays: %s", err_text());
    return rc;
}

/* Something has the name of the step. */
static enum err commit_there(const char *run_dir, int64_t step,
                             const char *path, const char *tmp_path,
                             bool exchange)
{
    if (ckpt_index_quick_check(path, NULL, NULL) == ERR_CHECKPOINT) {
        TRY(ckpt_index_quarantine(run_dir, step, err_text()));
        return commit_new(run_dir, path, tmp_path);
    }
    if (ckpt_index_pinned(path))
        TRY(ckpt_index_pin_inherit(path, tmp_path));
    if (!exchange ||
        renameat2(AT_FDCWD, tmp_path, AT_FDCWD, path, RENAME_EXCHANGE) != 0)
        /* EINVAL, ENOSYS: this file system can't; others fail again below. */
        return commit_aside(run_dir, step, path, tmp_path);
    TRY(sync_commit(run_dir, path, tmp_path, RENAME_EXCHANGE));
    if (ckpt_index_discard(run_dir, tmp_path) != ERR_OK)
        log_warn("replaced checkpoint stays: %s", err_text());
    return ERR_OK;
}

enum err ckpt_index_commit(const char *run_dir, int64_t step,
                           const char *tmp_path, bool exchange,
                           struct ckpt_index_known *known)
{
    assert(step >= 0 && strncmp(tmp_path, run_dir, strlen(run_dir)) == 0);
    char path[FSIO_PATH_MAX];
    if (known == NULL || !known->recovered)
        TRY(ckpt_index_recover(run_dir));
    if (known != NULL)
        known->recovered = false; /* by what may fail here */
    TRY(ckpt_index_path(path, run_dir, step));
    TRY(ckpt_index_owner_remove(tmp_path));
    ckpt_crash_point("owner-removed", 0);
    enum err rc = fsio_rename_new(tmp_path, path);
    if (rc == ERR_USAGE)
        rc = commit_there(run_dir, step, path, tmp_path, exchange);
    else if (rc == ERR_OK)
        rc = sync_commit(run_dir, path, tmp_path, 0);
    if (rc != ERR_OK)
        return rc;
    if (known != NULL)
        known->recovered = true;
    ckpt_crash_point("commit-synced", 0);
    return ERR_OK;
}

/* --- LATEST --- */

enum err ckpt_index_latest_write(const char *run_dir, int64_t step)
{
    assert(step >= 0);
    char path[FSIO_PATH_MAX], text[64];
    int length = snprintf(text, sizeof text, "%s%0*" PRId64 "\n",
                          CKPT_STEP_PREFIX, CKPT_STEP_DIGITS, step);
    TRY(fsio_path(path, "%s/checkpoints/%s", run_dir, CKPT_INDEX_LATEST));
    return fsio_write_hint(path, text, (size_t)length);
}

int64_t ckpt_index_latest_read(const char *run_dir)
{
    char path[FSIO_PATH_MAX];
    char *text = NULL;
    size_t bytes;
    int64_t step = -1;
    if (fsio_path(path, "%s/checkpoints/%s", run_dir, CKPT_INDEX_LATEST) ==
            ERR_OK &&
        fsio_read_file(path, 64, &text, &bytes) == ERR_OK)
        step = ckpt_manifest_step_after(text, strcspn(text, "\n"),
                                        CKPT_STEP_PREFIX);
    free(text);
    return step;
}
