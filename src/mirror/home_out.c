/* Makes things for an object store: home_out.h. */
#include "src/mirror/home_out.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/array.h"
#include "src/base/digest.h"
#include "src/base/new.h"
#include "src/base/own.h"
#include "src/data/remote/cache.h"
#include "src/data/remote/store_url.h"
#include "src/data/remote/store_write.h"

#define WALK_FDS 16
#define STALE_S 3600
#define KEPT_S (7 * 86400) /* what did not arrive, which somebody was told of */
#define LOCK "#lock"       /* no address ends so */
#define GONE ".gone"
#define MARK "unfinished"

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

static void let_go_folder(void)
{
    fsio_close(made.lock);
    made.lock = -1;
    own_close(&made.in);
    own_close(&made.root);
}

static void let_go(void)
{
    store_close(made.store);
    made.store = NULL;
    let_go_folder();
    made.path[0] = '\0';
}

/* Its last part, which is that of what is made here too. */
static const char *called(void)
{
    return strrchr(made.address, '/') + 1;
}

static bool is_last(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash != NULL && strcmp(slash + 1, made.last) == 0;
}

/* ERR_USAGE where it is whole already. */
static enum err is_free(void)
{
    struct store_names names;
    char mark[FSIO_PATH_MAX];
    bool cut = false, is = false;
    int64_t bytes;
    TRY(store_size(made.store, called(), &bytes));
    TRY(fsio_path(mark, "%s/", called()));
    TRY(store_list(made.store, mark, false, &names));
    TRY(fsio_path(mark, "%s/" MARK, called()));
    for (int i = 0; i < names.count; i++) {
        cut = cut || strcmp(names.list[i].name, mark) == 0;
        is = is || is_last(names.list[i].name);
    }
    store_names_free(&names);
    return bytes >= 0 || (is && !cut)
               ? err_set(ERR_USAGE,
                         "%s: exists, and at an address nothing is replaced: "
                         "name a new one",
                         made.address)
               : ERR_OK;
}

/* *done: the folder that this address always has is there, for this process alone. Who
 * ends removes lock and folders, so they may have gone before they are locked. */
static enum err enter(const char *root, bool *done)
{
    char path[FSIO_PATH_MAX];
    struct stat locked, named;
    let_go_folder();
    TRY(own_open(root, &made.root));
    TRY(own_open_in(&made.root, made.name, &made.in));
    if (made.in.fd < 0)
        return ERR_OK;
    TRY(fsio_path(path, "%s/" LOCK, made.in.at));
    made.lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (made.lock < 0)
        return errno == ENOENT ? ERR_OK : err_errno("%s", path);
    if (flock(made.lock, LOCK_EX | LOCK_NB) != 0)
        return err_set(ERR_BUSY, "%s: another process makes it, in %s",
                       made.address, made.in.path);
    *done = fstat(made.lock, &locked) == 0 && lstat(path, &named) == 0 &&
            locked.st_ino == named.st_ino && locked.st_dev == named.st_dev;
    return ERR_OK;
}

/* The folder goes when nobody has had it for an hour, and so long from now on. */
static void stays_for(int64_t seconds)
{
    const struct timespec now = { .tv_nsec = UTIME_NOW },
                          until = { .tv_sec = time(NULL) + seconds };
    (void)futimens(made.lock,
                   (struct timespec[]){ now, seconds > 0 ? until : now });
}

/* What killed calls have left, for whatever address. It goes by another name, so that
 * who makes the same just now finds nothing, and does not take the lock for a maker's. */
static void sweep(void)
{
    const struct dirent *entry;
    DIR *dir = opendir(made.root.at);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        char path[2 * NAME_MAX], gone[2 * NAME_MAX];
        struct stat status;
        const char *name = entry->d_name;
        size_t digits = strspn(name, "0123456789abcdef");
        bool half = strcmp(name + digits, GONE) == 0;
        snprintf(path, sizeof path, "%s/" LOCK, name);
        snprintf(gone, sizeof gone, "%s%s", name, half ? "" : GONE);
        if ((name[digits] != '\0' && !half) || strcmp(name, made.name) == 0)
            continue;
        int fd = openat(dirfd(dir), path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        bool goes = half || (fd >= 0 && fstat(fd, &status) == 0 &&
                             time(NULL) - status.st_mtime > STALE_S &&
                             flock(fd, LOCK_EX | LOCK_NB) == 0 &&
                             renameat(dirfd(dir), name, dirfd(dir), gone) == 0);
        if (goes)
            (void)own_remove(dirfd(dir), made.root.path, gone);
        fsio_close(fd);
    }
    if (dir != NULL)
        closedir(dir);
}

/* As the address says, of the service that it is asked of. */
static enum err find_place(void)
{
    char hex[65], text[2 * FSIO_PATH_MAX], root[FSIO_PATH_MAX];
    const char *base = getenv("TMPDIR");
    bool done = false;
    snprintf(text, sizeof text, "%s\n%s", made.address,
             store_service(made.store));
    TRY(digest_bytes(text, strlen(text), hex));
    snprintf(made.name, sizeof made.name, "%.16s", hex);
    TRY(fsio_path(root, "%s/tessera-out-%lu",
                  base != NULL && base[0] == '/' ? base : "/tmp",
                  (unsigned long)geteuid()));
    while (!done)
        TRY(enter(root, &done));
    stays_for(0);
    sweep();
    return fsio_path(made.path, "%s/%s", made.in.path, called());
}

/* An address with a folder's name at its end. */
static enum err take_address(const char *out)
{
    struct store_url url;
    TRY(store_url_parse(out, &url));
    TRY(fsio_path(made.address, "%s", out));
    for (size_t n = strlen(out); n > 0 && made.address[n - 1] == '/'; n--)
        made.address[n - 1] = '\0';
    return url.place[0] != '\0' && url.path[0] != '\0' &&
                   strcmp(called(), ".") != 0
               ? ERR_OK
               : err_set(ERR_USAGE, "%s: give s3://BUCKET/PREFIX", out);
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
    TRY(take_address(out));
    TRY(fsio_path(parent, "%s", made.address));
    *strrchr(parent, '/') = '\0';
    made.last = last;
    TRY_OUT(store_open(parent, &options, &made.store));
    TRY_OUT(store_writable(made.store));
    TRY_OUT(is_free());
    TRY_OUT(find_place());
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

/* The last ones of folders before that of all. */
static int in_order(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    bool both = is_last(x->name) && is_last(y->name);
    if (is_last(x->name) != is_last(y->name))
        return is_last(x->name) ? 1 : -1;
    size_t m = strlen(x->name), n = strlen(y->name);
    return both && m != n ? (m < n ? 1 : -1) : strcmp(x->name, y->name);
}

/* Where there are several last ones, the first is no sign that all are there: a mark
 * says that they are not. */
static enum err send(void)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], mark[FSIO_PATH_MAX];
    found.skip = strlen(made.in.path) + 1;
    int n = nftw(made.path, see, WALK_FDS, FTW_PHYS);
    if (n != 0)
        TRY_OUT(n > 0 ? (enum err)n : err_errno("%s", made.path));
    qsort(found.list, (size_t)found.count, sizeof *found.list, in_order);
    TRY_OUT(fsio_path(mark, "%s/" MARK, called()));
    bool marks = found.count > 1 && is_last(found.list[found.count - 2].name);
    if (marks)
        TRY_OUT(store_put(made.store, mark, "", 0));
    for (int i = 0; i < found.count; i++) {
        const struct file *file = &found.list[i];
        TRY_OUT(fsio_path(path, "%s/%s", made.in.path, file->name));
        TRY_OUT(store_put_file(made.store, file->name, path, file->bytes));
    }
    if (marks)
        rc = store_remove(made.store, mark, mark);
out:
    for (int i = 0; i < found.count; i++)
        free(found.list[i].name);
    free(found.list);
    memset(&found, 0, sizeof found);
    return rc;
}

/* One name after the other: who comes meanwhile either keeps the folder or finds that
 * it has gone. */
static void leave(void)
{
    char path[FSIO_PATH_MAX];
    (void)fsio_remove_tree(made.path);
    if (fsio_path(path, "%s/" LOCK, made.in.at) == ERR_OK)
        (void)unlink(path);
    (void)unlinkat(made.root.fd, made.name, AT_REMOVEDIR);
    (void)rmdir(made.root.path); /* it may have others */
}

enum err home_out_end(enum err rc)
{
    struct err_kept kept;
    if (made.path[0] == '\0')
        return rc;
    if (rc == ERR_OK) {
        rc = send();
        if (rc != ERR_OK) {
            rc = err_set(rc,
                         "%s; what was made lies in %s for a week, or "
                         "until it is made anew",
                         err_text(), made.path);
            stays_for(KEPT_S);
            let_go();
            return rc;
        }
    }
    err_keep(&kept, rc);
    leave();
    let_go();
    return err_again(&kept);
}
