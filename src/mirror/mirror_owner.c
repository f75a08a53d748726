/* Who mirrors a run: two directories with one uuid, of which one was copied, would remove
 * each other's checkpoints, and who comes back would get the other's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/digest.h"
#include "src/base/fsio.h"
#include "src/mirror/mirror.h"

#define OWNER "owner-"
#define OWNER_RUN 15 /* "owner-01234567-" */
#define DIGITS 12

/* Whether it is there, another one than the run's, and with its uuid. */
static bool is_other(const char *run_dir, const char *path)
{
    struct stat mine, other;
    char uuid[CKPT_UUID_BYTES], its[CKPT_UUID_BYTES];
    return path[0] == '/' && stat(run_dir, &mine) == 0 &&
           stat(path, &other) == 0 && S_ISDIR(other.st_mode) &&
           (mine.st_ino != other.st_ino || mine.st_dev != other.st_dev) &&
           ckpt_index_uuid_read(run_dir, uuid) == ERR_OK &&
           ckpt_index_uuid_read(path, its) == ERR_OK && uuid[0] != '\0' &&
           strcmp(uuid, its) == 0;
}

static enum err check_owner(struct store *store, const char *name,
                            const char *run_dir)
{
    char path[FSIO_PATH_MAX], *text = NULL;
    int64_t bytes;
    size_t read;
    TRY(fsio_path(path, "%s/%s.tmp", run_dir, name));
    enum err rc = store_get(store, name, path, -1, &bytes);
    if (rc == ERR_OK)
        rc = fsio_read_file(path, FSIO_PATH_MAX, &text, &read);
    if (rc == ERR_OK && is_other(run_dir, text))
        rc = err_set(ERR_USAGE,
                     "%s is the mirror of %s, and %s has the same run_uuid, as "
                     "a copy of it: give one of them a mirror of its own",
                     store_address(store), text, run_dir);
    (void)unlink(path);
    free(text);
    return rc;
}

enum err mirror_own(struct store *store, const struct mirror_step *step,
                    const char *run_dir, char owner[64])
{
    enum err rc = ERR_OK;
    char hex[65], text[FSIO_PATH_MAX + 64], prefix[OWNER_RUN + 1], name[64];
    struct timespec now = { 0 };
    struct store_names names = { 0 };
    char *real = realpath(run_dir, NULL);
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
        TRY_OUT(check_owner(store, names.list[i].name, real));
    TRY_OUT(store_put(store, name, real, strlen(real)));
    for (int i = 0; i < names.count; i++)
        TRY_OUT(store_remove(store, names.list[i].name, names.list[i].name));
    memcpy(owner, name, sizeof name);
out:
    store_names_free(&names);
    free(real);
    return rc;
}

/* Where somebody has emptied the place nobody else has come. */
enum err mirror_still_own(struct store *store, const char *owner)
{
    char prefix[OWNER_RUN + 1] = "";
    struct store_names names;
    memcpy(prefix, owner, OWNER_RUN);
    TRY(store_list(store, prefix, false, &names));
    bool other = false;
    for (int i = 0; i < names.count; i++)
        other = other || strcmp(names.list[i].name, owner) != 0;
    store_names_free(&names);
    return !other ? ERR_OK
                  : err_set(ERR_BUSY,
                            "%s/%s... is there of another attempt with the "
                            "same run_uuid: where a run was copied, give one "
                            "of them a mirror of its own",
                            store_address(store), prefix);
}
