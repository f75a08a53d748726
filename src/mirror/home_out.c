/* Makes things for an object store: home_out.h. */
#include "src/mirror/home_out.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/base/own.h"
#include "src/data/remote/cache.h"
#include "src/data/remote/store_url.h"
#include "src/data/remote/store_write.h"

#define WALK_FDS 16

static struct {
    char address[FSIO_PATH_MAX], path[FSIO_PATH_MAX]; /* "": none */
    char name[20];                                    /* of its folder */
    const char *last;
    struct own root, in;
    int lock;
    struct store *store; /* what the address lies in */
} made = { .root.fd = -1, .in.fd = -1, .lock = -1 };

struct file {
    char *name;
    int64_t bytes;
};

/* What the walk, which has no argument, has met. */
static struct {
    struct file *list;
    int count, capacity;
    size_t skip; /* bytes of the path before a name */
} found;

static void let_go(void)
{
    store_close(made.store);
    made.store = NULL;
    fsio_close(made.lock);
    made.lock = -1;
    own_close(&made.in);
    own_close(&made.root);
    made.path[0] = '\0';
}

/* ERR_USAGE where it is whole already. */
static enum err is_free(const char *name)
{
    struct store_names names;
    char last[FSIO_PATH_MAX], prefix[FSIO_PATH_MAX];
    bool is = false;
    TRY(fsio_path(prefix, "%s/", name));
    TRY(store_list(made.store, name, false, &names));
    for (int i = 0; i < names.count; i++) {
        const char *one = names.list[i].name;
        snprintf(last, sizeof last, "/%s", made.last);
        size_t bytes = strlen(one), end = strlen(last);
        bool inside = strncmp(one, prefix, strlen(prefix)) == 0;
        is = is || strcmp(one, name) == 0 ||
             (inside && bytes >= end && strcmp(one + bytes - end, last) == 0);
    }
    store_names_free(&names);
    return is ? err_set(ERR_USAGE,
                        "%s: exists, and at an address nothing is replaced: "
                        "name a new one",
                        made.address)
              : ERR_OK;
}

/* The folder that this address always has, for this process alone. */
static enum err enter(void)
{
    char hex[65], path[FSIO_PATH_MAX];
    const char *base = getenv("TMPDIR");
    TRY(digest_bytes(made.address, strlen(made.address), hex));
    snprintf(made.name, sizeof made.name, "%.16s", hex);
    TRY(fsio_path(path, "%s/tessera-out-%lu",
                  base != NULL && base[0] == '/' ? base : "/tmp",
                  (unsigned long)geteuid()));
    TRY(own_open(path, &made.root));
    TRY(own_open_in(&made.root, made.name, &made.in));
    TRY(fsio_path(path, "%s/lock", made.in.at));
    made.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made.lock < 0)
        return err_errno("%s", path);
    if (flock(made.lock, LOCK_EX | LOCK_NB) != 0)
        return err_set(ERR_BUSY, "%s: another process makes it, in %s",
                       made.address, made.in.path);
    return ERR_OK;
}

enum err home_out_begin(const char *out, const char *last, bool (*ended)(void),
                        const char **path)
{
    enum err rc = ERR_OK;
    char parent[FSIO_PATH_MAX];
    const struct store_options options = { .deadline_s =
                                               cache_defaults.deadline_s,
                                           .ended = ended };
    *path = out;
    if (!store_url_is(out))
        return ERR_OK;
    TRY(fsio_path(made.address, "%s", out));
    for (size_t n = strlen(out); n > 0 && made.address[n - 1] == '/'; n--)
        made.address[n - 1] = '\0';
    TRY(fsio_path(parent, "%s", made.address));
    char *slash = strrchr(parent, '/');
    if (slash == NULL || slash < parent + strlen("s3://b"))
        return err_set(ERR_USAGE, "%s: give s3://BUCKET/PREFIX", out);
    *slash = '\0';
    made.last = last;
    TRY_OUT(store_open(parent, &options, &made.store));
    TRY_OUT(store_writable(made.store));
    TRY_OUT(is_free(slash + 1));
    TRY_OUT(enter());
    TRY_OUT(fsio_path(made.path, "%s/%s", made.in.path, slash + 1));
    TRY_OUT(fsio_remove_tree(made.path)); /* of a call that did not send it */
    *path = made.path;
out:
    if (rc != ERR_OK)
        let_go();
    return rc;
}

static int see(const char *path, const struct stat *status, int kind,
               struct FTW *where)
{
    (void)where;
    if (kind != FTW_F)
        return 0;
    enum err rc = array_room(&found.list, &found.capacity, found.count + 1);
    if (rc == ERR_OK)
        rc = new_text(&found.list[found.count].name, path + found.skip);
    if (rc != ERR_OK)
        return (int)rc;
    found.list[found.count++].bytes = (int64_t)status->st_size;
    return 0;
}

static bool is_last(const struct file *file)
{
    const char *slash = strrchr(file->name, '/');
    return slash != NULL && strcmp(slash + 1, made.last) == 0;
}

/* The last ones of folders before that of all. */
static int in_order(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    bool both = is_last(x) && is_last(y);
    if (is_last(x) != is_last(y))
        return is_last(x) ? 1 : -1;
    size_t m = strlen(x->name), n = strlen(y->name);
    return both && m != n ? (m < n ? 1 : -1) : strcmp(x->name, y->name);
}

static enum err send(void)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX];
    found.skip = strlen(made.in.path) + 1;
    int n = nftw(made.path, see, WALK_FDS, FTW_PHYS);
    if (n != 0)
        TRY_OUT(n > 0 ? (enum err)n : err_errno("%s", made.path));
    qsort(found.list, (size_t)found.count, sizeof *found.list, in_order);
    for (int i = 0; i < found.count; i++) {
        const struct file *file = &found.list[i];
        TRY_OUT(fsio_path(path, "%s/%s", made.in.path, file->name));
        TRY_OUT(store_put_file(made.store, file->name, path, file->bytes));
    }
out:
    for (int i = 0; i < found.count; i++)
        free(found.list[i].name);
    free(found.list);
    memset(&found, 0, sizeof found);
    return rc;
}

enum err home_out_end(enum err rc)
{
    struct err_kept kept;
    if (made.path[0] == '\0')
        return rc;
    if (rc == ERR_OK) {
        rc = send();
        if (rc != ERR_OK)
            rc = err_set(rc, "%s; what was made lies in %s", err_text(),
                         made.path);
    } else {
        err_keep(&kept, rc);
        (void)fsio_remove_tree(made.path);
        rc = err_again(&kept);
    }
    if (rc == ERR_OK) {
        (void)own_remove(made.root.fd, made.root.path, made.name);
        (void)rmdir(made.root.path); /* it may have others */
    }
    let_go();
    return rc;
}
