/* Copies of what lies at an address: which they are, and where.
 *
 * A copy is a cache (src/data/remote/cache.h) whose index is the list of the objects,
 * BYTES TAB ETAG TAB NAME in a line: while it is the same, what is there already is the
 * same. Files that are whole get a second name in a tree, as/..., in which they lie as
 * they would in a run directory or a model's folder. */
#include "src/mirror/home_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/files/ckpt_index.h"
#include "src/base/array.h"
#include "src/base/globs.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/units.h"
#include "src/data/remote/store_url.h"
#include "src/job/stop.h"
#include "src/mirror/mirror.h"

/* What of a model's folder is a model's. */
#define MODEL_FILES "*.json *.safetensors *.jinja *.gguf *.txt *.model"
#define INDEX "index"
#define AHEAD 4 /* files that are fetched at once */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct home_copy *copies;
static double deadline_s = 300.0;
static bool (*ended)(void);

bool home_is(const char *given)
{
    return store_url_is(given);
}

void home_terms(double s, bool (*asked)(void))
{
    deadline_s = s;
    ended = asked;
}

/* --- the list --- */

/* A way down, of a length that has room in a path. */
static bool is_safe(const char *name)
{
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        part += part[0] == '/';
        size_t length = strcspn(part, "/");
        if (length == 0 || length > 200 || strncmp(part, "./", 2) == 0 ||
            strncmp(part, "../", 3) == 0 || strcmp(part, ".") == 0 ||
            strcmp(part, "..") == 0)
            return false;
    }
    return name[0] != '/' && strlen(name) < FILE_NAME_BYTES;
}

/* What a checkpoint is known by. */
static bool is_told(const char *name)
{
    return strcmp(home_last(name), CKPT_MANIFEST_FILE) == 0 ||
           strcmp(home_last(name), CKPT_EVAL_FILE) == 0;
}

static bool is_wanted(const struct home_copy *copy, const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || name[bytes - 1] == '/')
        return false; /* a mark of a folder */
    if (copy->kind == KIND_FOLDER)
        return strchr(name, '/') == NULL && globs_match(MODEL_FILES, name);
    return copy->kind != KIND_FILE || strcmp(name, copy->only) == 0;
}

static enum err add_line(const struct home_copy *copy,
                         const struct store_name *of, struct buffer *text)
{
    char line[FILE_NAME_BYTES + 128];
    if (!is_safe(of->name) || strpbrk(of->name, "\t\n") != NULL)
        return err_set(ERR_DATA,
                       "%s: has an object that can be no file here, '%.100s'",
                       copy->exact, of->name);
    int bytes = snprintf(line, sizeof line, "%lld\t%s\t%s\n",
                         (long long)of->bytes, of->etag, of->name);
    return buffer_add(text, line, (size_t)bytes);
}

/* What each step there is known by: the first page has it, capitals come first. */
static enum err list_steps(struct store *store, struct store_names *out)
{
    struct store_names steps, names = { 0 };
    bool more;
    TRY(store_list(store, CKPT_STEP_PREFIX, true, &steps));
    enum err rc = ERR_OK;
    for (int i = 0; i < steps.count && rc == ERR_OK; i++) {
        rc = store_list_page(store, steps.list[i].name, false, "", &names,
                             &more);
        for (int n = 0; n < names.count && rc == ERR_OK; n++) {
            rc = array_room(&out->list, &out->capacity, out->count + 1);
            if (rc != ERR_OK || !is_told(names.list[n].name))
                continue;
            out->list[out->count++] = names.list[n];
            names.list[n].name = NULL;
        }
        store_names_free(&names);
    }
    store_names_free(&steps);
    return rc;
}

/* What there is, as a text. */
static enum err list(const struct home_copy *copy, struct store *store,
                     struct buffer *text)
{
    enum err rc = ERR_OK;
    struct store_names names = { 0 };
    int last = -1;
    bool more, whole = copy->kind != KIND_CHECKPOINT;
    if (copy->kind == KIND_RUN && copy->what == HOME_BEST)
        TRY_OUT(list_steps(store, &names));
    else if (copy->kind == KIND_FILE) /* the first that begins so */
        TRY_OUT(store_list_page(store, copy->only, false, "", &names, &more));
    else
        TRY_OUT(store_list(store, "", copy->kind == KIND_FOLDER, &names));
    for (int i = 0; i < names.count; i++) {
        if (!is_wanted(copy, names.list[i].name))
            continue;
        TRY_OUT(add_line(copy, &names.list[i], text));
        if (copy->kind == KIND_RUN &&
            mirror_names_step(names.list[i].name) >= 0) {
            if (last >= 0 && !mirror_names_go_together(names.list[last].name,
                                                       names.list[i].name))
                TRY_OUT(err_set(ERR_USAGE,
                                "%s: has checkpoints of several runs, %.63s "
                                "and %.63s: give a folder of one, or a "
                                "checkpoint",
                                copy->exact, names.list[last].name,
                                names.list[i].name));
            last = i;
        }
        whole = whole || strcmp(names.list[i].name, CKPT_MANIFEST_FILE) == 0;
    }
    if (text->bytes == 0)
        rc = err_set(ERR_DATA, "%s: there is nothing", copy->exact);
    else if (!whole)
        rc = err_set(ERR_CHECKPOINT,
                     "%s: has no " CKPT_MANIFEST_FILE ", which comes last: "
                     "its upload was cut off, or still goes on",
                     copy->exact);
out:
    store_names_free(&names);
    return rc;
}

static enum err make_index(void *arg, struct store *store, const char *to)
{
    struct buffer text = { 0 };
    enum err rc = list(arg, store, &text);
    if (rc == ERR_OK)
        rc = fsio_write_hint(to, text.data, text.bytes);
    buffer_free(&text);
    return rc;
}

static enum err read_index(struct home_copy *copy)
{
    char path[FSIO_PATH_MAX], *rest = NULL;
    size_t bytes;
    TRY(fsio_path(path, "%s/" INDEX, cache_folder(copy->cache)));
    TRY(fsio_read_file(path, STORE_BYTES_MAX, &copy->text, &bytes));
    for (char *line = strtok_r(copy->text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *tag = strchr(line, '\t');
        char *name = tag != NULL ? strchr(tag + 1, '\t') : NULL;
        if (name == NULL || !is_safe(name + 1) || line[0] == '-')
            return err_set(ERR_DATA, "%s: is damaged: remove it", path);
        TRY(array_room(&copy->entries, &copy->room, copy->count + 1));
        copy->entries[copy->count++] =
            (struct home_entry){ name + 1, strtoll(line, NULL, 10) };
    }
    return ERR_OK;
}

static void shard_of(const void *of, int64_t i, struct cache_shard *out)
{
    const struct home_copy *copy = of;
    *out = (struct cache_shard){ .raw.bytes = copy->entries[i].bytes };
    snprintf(out->raw.name, sizeof out->raw.name, "%s", copy->entries[i].name);
}

/* --- the tree --- */

/* Where a file lies in the copy: as/NAME/..., so that names of runs and models are
 * found as in other paths. */
static enum err place(const struct home_copy *copy, const char *name,
                      char out[FSIO_PATH_MAX])
{
    char above[FSIO_PATH_MAX], step[64] = "";
    const char *called = home_last(copy->exact);
    const char *folder = cache_place(copy->cache);
    int64_t number = mirror_names_step(called);
    TRY(fsio_path(above, "%s", copy->exact));
    if (copy->kind != KIND_CHECKPOINT)
        number = -1;
    if (number >= 0)
        above[called - 1 - copy->exact] = '\0';
    if (strcmp(home_last(above), "checkpoints") == 0)
        *strrchr(above, '/') = '\0';
    if (copy->kind == KIND_RUN) {
        number = mirror_names_step(name);
        name = strchr(name, '/') != NULL ? strchr(name, '/') + 1 : "";
    }
    if (number >= 0)
        snprintf(step, sizeof step, "/checkpoints/" CKPT_STEP_PREFIX "%0*lld",
                 CKPT_STEP_DIGITS, (long long)number);
    called = home_last(above)[0] != '\0' ? home_last(above) : "model";
    if (copy->kind == KIND_FILE)
        return fsio_path(out, "%s/" CACHE_NAMES "/%s", folder, called);
    return fsio_path(out, "%s/" CACHE_NAMES "/%s%s%s%s", folder, called, step,
                     name[0] != '\0' ? "/" : "", name);
}

/* Another process may do the same. */
static enum err link_to(const char *from, const char *path)
{
    struct stat is, was;
    for (int i = 0; i < 10; i++) {
        if (link(from, path) == 0)
            return ERR_OK;
        if (stat(from, &is) == 0 && lstat(path, &was) == 0 &&
            is.st_ino == was.st_ino && is.st_dev == was.st_dev)
            return ERR_OK;
        (void)unlink(path);
    }
    return err_errno("%s: link", path);
}

static enum err make_empty(const char *path, int64_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    enum err rc =
        fd >= 0 && ftruncate(fd, bytes) == 0 ? ERR_OK : err_errno("%s", path);
    fsio_close(fd);
    return rc;
}

static bool is_fetched(const struct home_copy *copy, int64_t i)
{
    return copy->what == HOME_ALL || copy->what == HOME_FILES ||
           copy->entries[i].bytes == 0 || is_told(copy->entries[i].name);
}

static enum err put(struct home_copy *copy, int64_t i)
{
    char path[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    const struct home_entry *entry = &copy->entries[i];
    struct cache_hold hold;
    struct stat is;
    if (copy->kind == KIND_RUN && mirror_names_step(entry->name) < 0)
        return ERR_OK;
    TRY(place(copy, entry->name, path));
    TRY(fsio_parent(path, parent));
    enum err rc = fsio_mkdirs(parent);
    if (lstat(parent, &is) == 0 ? !S_ISDIR(is.st_mode) : errno == ENOTDIR)
        return err_set(
            ERR_DATA,
            "%s: has '%s' and an object that is named as a folder of "
            "its: here that can be no file and folder at once",
            copy->exact, entry->name);
    TRY(rc);
    if (entry->bytes == 0 || !is_fetched(copy, i))
        return make_empty(path, entry->bytes);
    TRY(cache_hold(copy->cache, i, &hold));
    rc = link_to(hold.path, path);
    cache_release(&hold);
    return rc;
}

static enum err need_room(const struct home_copy *copy, int64_t bytes)
{
    uint64_t free_bytes;
    char needs[32], has_room[32];
    TRY(fsio_free_bytes(cache_folder(copy->cache), &free_bytes));
    if ((uint64_t)bytes <= free_bytes)
        return ERR_OK;
    units_bytes((double)bytes, needs, sizeof needs);
    units_bytes((double)free_bytes, has_room, sizeof has_room);
    return err_set(ERR_SPACE,
                   "%s: %s are to come to %s, which has room for %s: set "
                   "TMPDIR to a larger place",
                   copy->exact, needs, cache_place(copy->cache), has_room);
}

/* Whether all of it is of one moment, also where another process has fetched it. */
static enum err check_list(const struct home_copy *copy)
{
    enum err rc = ERR_OK;
    char path[FSIO_PATH_MAX], *was = NULL;
    size_t bytes = 0;
    struct buffer text = { 0 };
    struct store *store = NULL;
    const struct store_options options = { deadline_s, 0.0, ended };
    TRY_OUT(fsio_path(path, "%s", copy->exact));
    if (copy->kind == KIND_FILE)
        *strrchr(path, '/') = '\0';
    TRY_OUT(store_open(path, &options, &store));
    TRY_OUT(list(copy, store, &text));
    TRY_OUT(fsio_path(path, "%s/" INDEX, cache_folder(copy->cache)));
    TRY_OUT(fsio_read_file(path, STORE_BYTES_MAX, &was, &bytes));
    if (bytes != text.bytes || memcmp(was, text.data, bytes) != 0)
        rc = err_set(ERR_DATA,
                     "%s: changed while it was fetched, or another process of "
                     "this node still uses an older copy: begin again when it "
                     "stays as it is, and the other has ended",
                     copy->exact);
out:
    store_close(store);
    free(was);
    buffer_free(&text);
    return rc;
}

static enum err fetch(struct home_copy *copy)
{
    bool heads = copy->what != HOME_ALL && copy->what != HOME_FILES;
    int64_t bytes = heads ? 0 : cache_missing(copy->cache);
    if (bytes > 0)
        TRY(need_room(copy, bytes));
    if (bytes >> 20 > 0)
        log_info("%s: %s are fetched to %s", copy->exact, UNITS_BYTES(bytes),
                 cache_place(copy->cache));
    for (int64_t i = 0; i < copy->count; i++) {
        for (int64_t a = i; a < i + AHEAD && a < copy->count; a++)
            if (copy->entries[a].bytes > 0 && is_fetched(copy, a))
                cache_want(copy->cache, a);
        TRY(put(copy, i));
    }
    return check_list(copy);
}

/* --- copies --- */

static void copy_free(struct home_copy *copy)
{
    if (copy == NULL)
        return;
    cache_close(copy->cache);
    free(copy->entries);
    free(copy->text);
    free(copy);
}

static enum err bring(struct home_copy *copy)
{
    static const char *const names[] = { INDEX };
    char address[FSIO_PATH_MAX], of[FSIO_PATH_MAX];
    struct cache_options options = cache_defaults;
    TRY(fsio_path(address, "%s", copy->exact));
    if (copy->kind == KIND_FILE)
        *strrchr(address, '/') = '\0';
    TRY(fsio_path(of, "%d %s", (int)copy->what, copy->only));
    options.deadline_s = deadline_s;
    options.threads = AHEAD;
    options.index = make_index;
    options.arg = copy;
    options.of = of;
    options.ended = ended;
    TRY(cache_open(address, &options, names, 1, 1, &copy->cache));
    TRY(read_index(copy));
    TRY(cache_describe(copy->cache,
                       &(struct cache_list){ shard_of, copy, copy->count }));
    TRY(fetch(copy));
    return place(copy, "", copy->path);
}

/* Under the mutex. */
static enum err find_copy(const char *url, int64_t step, enum home_what what,
                          struct home_copy **out)
{
    enum err rc = ERR_OK;
    char given[FSIO_PATH_MAX];
    struct home_copy *copy = NULL;
    const struct store_options options = { deadline_s, 0.0, ended };
    TRY(fsio_path(given, "%s#%lld", url, (long long)step));
    for (struct home_copy *c = copies; c != NULL; c = c->next)
        if (c->what == what && (strcmp(c->given, given) == 0 ||
                                (step < 0 && strcmp(c->exact, url) == 0))) {
            *out = c;
            return ERR_OK;
        }
    TRY(new_zeroed(&copy, 1));
    copy->what = what;
    memcpy(copy->given, given, sizeof given);
    TRY_OUT(fsio_path(copy->exact, "%s", url));
    TRY_OUT(home_find(copy, step, &options));
    TRY_OUT(bring(copy));
    copy->next = copies;
    if (copies == NULL)
        (void)atexit(home_end);
    copies = copy;
out:
    return new_or_none(rc, copy, out, copy_free);
}

/* A signal ends a fetch and nothing stays of it, also in a program that has said
 * nothing of signals (home_terms). */
static enum err find_or_stop(const char *url, int64_t step, enum home_what what,
                             struct home_copy **out)
{
    if (ended != NULL)
        return find_copy(url, step, what, out);
    TRY(stop_install());
    ended = stop_is_requested;
    enum err rc = find_copy(url, step, what, out);
    ended = NULL;
    stop_uninstall();
    return rc == ERR_OK && stop_is_requested()
               ? err_set(ERR_IO, "%s: given up, the program ends", url)
               : rc;
}

enum err home_open(const char *given, enum home_what what,
                   char path[FSIO_PATH_MAX], char exact[FSIO_PATH_MAX])
{
    char url[FSIO_PATH_MAX], name[64];
    int64_t step;
    struct home_copy *copy = NULL;
    TRY(home_cut(given, url, &step, name));
    if (strcmp(name, "#best") == 0) {
        TRY(home_open(url, HOME_BEST, path, exact));
        TRY(ckpt_index_best(path, false, &step));
        name[0] = '\0';
        if (step < 0)
            return err_set(ERR_USAGE,
                           "%s: none of its checkpoints says how it was "
                           "evaluated: give one's step, %s#STEP",
                           given, url);
    }
    pthread_mutex_lock(&mutex);
    enum err rc = find_or_stop(url, step, what, &copy);
    if (rc == ERR_OK)
        rc = fsio_path(path, "%s%s", copy->path, name);
    if (rc == ERR_OK)
        rc = fsio_path(exact, "%s%s", copy->exact, name);
    pthread_mutex_unlock(&mutex);
    return rc;
}

void home_end(void)
{
    if (pthread_mutex_trylock(&mutex) != 0)
        return; /* a thread is at it, and the process ends */
    while (copies != NULL) {
        struct home_copy *next = copies->next;
        copy_free(copies);
        copies = next;
    }
    pthread_mutex_unlock(&mutex);
}

/* Whether the path is of this checkpoint of a run. */
static bool is_of(const struct home_copy *copy, const char *name,
                  const char *path)
{
    char lies[FSIO_PATH_MAX];
    size_t bytes = strlen(path);
    return strcmp(home_last(name), CKPT_MANIFEST_FILE) == 0 &&
           mirror_names_step(name) >= 0 && place(copy, name, lies) == ERR_OK &&
           strncmp(lies, path, bytes) == 0 &&
           strcmp(lies + bytes, "/" CKPT_MANIFEST_FILE) == 0;
}

const char *home_where(const char *path, char out[FSIO_PATH_MAX])
{
    enum err rc = ERR_USAGE;
    pthread_mutex_lock(&mutex);
    for (struct home_copy *c = copies; c != NULL; c = c->next) {
        if (strcmp(c->path, path) == 0)
            rc = fsio_path(out, "%s", c->exact);
        for (int64_t i = 0; c->kind == KIND_RUN && i < c->count; i++)
            if (is_of(c, c->entries[i].name, path))
                rc = fsio_path(out, "%s/%.*s", c->exact,
                               (int)strcspn(c->entries[i].name, "/"),
                               c->entries[i].name);
    }
    pthread_mutex_unlock(&mutex);
    return rc == ERR_OK ? out : path;
}
