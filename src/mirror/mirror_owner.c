/* Who mirrors a run: two directories with one uuid, of which one was copied, would remove
 * each other's checkpoints, and who comes back would get the other's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/array.h"
#include "src/base/clock.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/job/slurm_run.h"
#include "src/mirror/mirror.h"

#define OWNER "owner-"
#define OWNER_RUN 15 /* "owner-01234567-" */
#define DIGITS 12
#define LOOK_S 10.0 /* that a directory may take to answer */

/* Whether what lies there answers; a server may be away, and who asks it may be in the
 * kernel until it is back: a child, then, which is left behind. */
static bool answers(const char *path, double seconds)
{
    char file[FSIO_PATH_MAX], command[] = "cat", ends[] = "--";
    char *const argv[] = { command, ends, file, NULL };
    struct buffer text = { 0 };
    if (fsio_path(file, "%s/checkpoints/" CKPT_INDEX_UUID, path) != ERR_OK)
        return false;
    double begin = clock_now();
    bool there = slurm_run(argv, seconds, FSIO_PATH_MAX, &text) == 0;
    if (!there && clock_now() - begin >= seconds)
        log_warn("checkpoint.mirror: %s, whose run is mirrored there, does not "
                 "answer within %.0f s: it is taken for gone",
                 path, seconds);
    buffer_free(&text);
    return there;
}

/* Whether `path` is there, another one than the run's, and with its uuid. What was just
 * written into the run's, `name`, tells it by another mount of it, too. */
static bool is_other(const char *run_dir, const char *path, const char *name)
{
    struct stat mine, other;
    char uuid[CKPT_UUID_BYTES], its[CKPT_UUID_BYTES], same[FSIO_PATH_MAX];
    return path[0] == '/' && strcmp(path, run_dir) != 0 &&
           answers(path, LOOK_S) && stat(run_dir, &mine) == 0 &&
           stat(path, &other) == 0 && S_ISDIR(other.st_mode) &&
           (mine.st_ino != other.st_ino || mine.st_dev != other.st_dev) &&
           fsio_path(same, "%s/%s", path, name) == ERR_OK &&
           !fsio_exists(same) &&
           ckpt_index_uuid_read(run_dir, uuid) == ERR_OK &&
           ckpt_index_uuid_read(path, its) == ERR_OK && uuid[0] != '\0' &&
           strcmp(uuid, its) == 0;
}

/* Who has put the object: another directory, which is an error, or this one. */
static enum err read_owner(struct store *store, const char *name,
                           const char *run_dir, bool *own)
{
    char path[FSIO_PATH_MAX], file[80], *text = NULL;
    int64_t bytes;
    size_t read;
    *own = false;
    snprintf(file, sizeof file, "%.64s.tmp", name);
    TRY(fsio_path(path, "%s/%s", run_dir, file));
    enum err rc = store_get(store, name, path, -1, &bytes);
    if (rc == ERR_OK)
        rc = fsio_read_file(path, FSIO_PATH_MAX, &text, &read);
    *own = rc == ERR_OK && strcmp(text, run_dir) == 0;
    if (rc == ERR_OK && is_other(run_dir, text, file))
        rc = err_set(ERR_USAGE,
                     "%s is the mirror of %s, and %s has the same run_uuid, as "
                     "a copy of it: give one of them a mirror of its own",
                     store_address(store), text, run_dir);
    (void)unlink(path);
    free(text);
    return rc;
}

enum err mirror_own(struct store *store, const struct mirror_step *step,
                    const char *run_dir, struct mirror_owner *owner)
{
    enum err rc = ERR_OK;
    char hex[65], text[FSIO_PATH_MAX + 64], prefix[OWNER_RUN + 1], name[64];
    struct timespec now = { 0 };
    struct store_names names = { 0 };
    char *real = realpath(run_dir, NULL);
    bool own;
    if (real == NULL)
        return err_errno("%s", run_dir);
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(text, sizeof text, "%s %ld %lld %ld", real, (long)getpid(),
             (long long)now.tv_sec, now.tv_nsec);
    TRY_OUT(digest_bytes(text, strlen(text), hex));
    const char *run = step->folder + strlen(step->folder) - 1 - DIGITS - 8;
    snprintf(prefix, sizeof prefix, OWNER "%.8s-", run);
    snprintf(name, sizeof name, "%s%.*s", prefix, DIGITS, hex);
    TRY_OUT(store_list(store, prefix, false, &names));
    for (int i = 0; i < names.count; i++)
        TRY_OUT(read_owner(store, names.list[i].name, real, &own));
    TRY_OUT(store_put(store, name, real, strlen(real)));
    for (int i = 0; i < names.count; i++)
        if (store_remove(store, names.list[i].name, names.list[i].name) !=
            ERR_OK)
            log_warn("checkpoint.mirror: %s/%s stays: %s", store_address(store),
                     names.list[i].name, err_text());
    memcpy(owner->name, name, sizeof name);
    store_names_free(&owner->before);
    owner->before = names;
    names = (struct store_names){ 0 };
out:
    store_names_free(&names);
    free(real);
    return rc;
}

/* Whether it was there, and could not be removed. */
static bool was_before(const struct mirror_owner *owner, const char *name)
{
    for (int i = 0; i < owner->before.count; i++)
        if (strcmp(owner->before.list[i].name, name) == 0)
            return true;
    return false;
}

/* Where somebody has emptied the place nobody else has come. What this directory's
 * attempt before has put late is no other's: it has ended, since the run's lock is ours. */
enum err mirror_still_own(struct store *store, const char *run_dir,
                          const struct mirror_owner *owner)
{
    enum err rc = ERR_OK;
    char prefix[OWNER_RUN + 1] = "", *real = realpath(run_dir, NULL);
    struct store_names names = { 0 };
    if (real == NULL)
        return err_errno("%s", run_dir);
    memcpy(prefix, owner->name, OWNER_RUN);
    TRY_OUT(store_list(store, prefix, false, &names));
    for (int i = 0; i < names.count; i++) {
        const char *name = names.list[i].name;
        bool own;
        if (strcmp(name, owner->name) == 0 || was_before(owner, name))
            continue;
        TRY_OUT(read_owner(store, name, real, &own));
        if (!own)
            TRY_OUT(err_set(
                ERR_BUSY,
                "%s/%s... is there of another attempt with the same run_uuid: "
                "where a run was copied, give one of them a mirror of its own",
                store_address(store), prefix));
        (void)store_remove(store, name, name);
    }
out:
    store_names_free(&names);
    free(real);
    return rc;
}
