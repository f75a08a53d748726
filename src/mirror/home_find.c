/* Which thing an address means: by its name where that says all, else by what lies
 * there, in a few short lists. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/data/remote/store_url.h"
#include "src/data/remote/store_write.h"
#include "src/mirror/home_impl.h"
#include "src/mirror/mirror.h"

#define GGUF ".gguf"

const char *home_last(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

enum err home_cut(const char *given, char url[FSIO_PATH_MAX], int64_t *step,
                  char name[64])
{
    const char *mark = strchr(given, '#');
    size_t bytes = mark != NULL ? (size_t)(mark - given) : strlen(given);
    struct store_url parsed;
    *step = -1;
    name[0] = '\0';
    while (bytes > 0 && given[bytes - 1] == '/' && strlen("s3://b") < bytes)
        bytes--;
    TRY(fsio_path(url, "%.*s", (int)bytes, given));
    TRY(store_url_parse(
        url, &parsed)); /* before it is said, with what it may have */
    if (strcmp(parsed.scheme, "s3") != 0)
        return err_set(ERR_USAGE,
                       "%s: a model or run at an address is at "
                       "s3://BUCKET/PREFIX; data.train alone reads others",
                       url);
    if (mark != NULL && strspn(mark + 1, "0123456789") > 0) {
        char *end;
        *step = strtoll(mark + 1, &end, 10);
        if (*step == INT64_MAX)
            return err_set(ERR_USAGE, "%s: no step is so large", url);
        mark = *end == '#' ? end : NULL;
        if (*end != '\0' && mark == NULL)
            return err_set(ERR_USAGE, "%s: '#' and a step, or a name", given);
    }
    if (mark != NULL && (strlen(mark) >= 64 || strchr(mark + 1, '#') != NULL))
        return err_set(ERR_USAGE, "%s: more than a step and a name", given);
    if (mark != NULL)
        snprintf(name, 64, "%s", mark);
    return ERR_OK;
}

enum err home_check(const char *given)
{
    char url[FSIO_PATH_MAX], name[64];
    int64_t step;
    return home_is(given) ? home_cut(given, url, &step, name) : ERR_OK;
}

static enum err has(struct store *store, const char *name, bool *there)
{
    int64_t bytes;
    TRY(store_size(store, name, &bytes));
    *there = bytes > 0;
    return ERR_OK;
}

/* The newest in a mirror or a folder `checkpoints`, or that of a step. */
static enum err find_step(struct store *store, int64_t step,
                          struct home_copy *copy)
{
    struct mirror_step found;
    TRY(mirror_newest(store, step < 0 ? -1 : step - 1,
                      step < 0 ? INT64_MAX : step + 1, "", &found));
    if (found.step < 0 && step >= 0)
        return err_set(ERR_CHECKPOINT,
                       "%s: has no whole checkpoint of step %lld", copy->exact,
                       (long long)step);
    if (found.step < 0)
        return err_set(ERR_CHECKPOINT,
                       "%s: holds neither a whole checkpoint (MANIFEST.json "
                       "comes last) nor a model: is the prefix right?",
                       copy->exact);
    copy->kind = KIND_CHECKPOINT;
    return fsio_path(copy->exact, "%s/%s", store_address(store), found.folder);
}

/* Asks what lies there. */
static enum err look(struct home_copy *copy, int64_t step,
                     const struct store_options *options)
{
    enum err rc = ERR_OK;
    struct store *store = NULL, *inner = NULL;
    struct store_names names = { 0 };
    char below[FSIO_PATH_MAX];
    bool there = false, more;
    TRY_OUT(store_open(copy->exact, options, &store));
    TRY_OUT(has(store, CKPT_MANIFEST_FILE, &there));
    copy->kind = KIND_CHECKPOINT;
    if (!there) {
        TRY_OUT(has(store, "config.json", &there));
        if (!there)
            TRY_OUT(has(store, "adapter_config.json", &there));
        copy->kind = KIND_FOLDER;
    }
    if (there && step >= 0)
        TRY_OUT(err_set(ERR_USAGE, "%s: is no run: leave #%lld out",
                        copy->exact, (long long)step));
    if (there)
        goto out;
    TRY_OUT(store_list_page(store, "checkpoints/", true, "", &names, &more));
    bool run = names.count > 0;
    TRY_OUT(fsio_path(below, "%s%s", copy->exact, run ? "/checkpoints" : ""));
    TRY_OUT(store_open(below, options, &inner));
    copy->kind = KIND_RUN;
    if (copy->what == HOME_RUN || copy->what == HOME_BEST)
        TRY_OUT(fsio_path(copy->exact, "%s", below));
    else
        rc = find_step(inner, step, copy);
out:
    store_names_free(&names);
    store_close(inner);
    store_close(store);
    return rc;
}

static enum err find_files(struct home_copy *copy,
                           const struct store_options *options)
{
    int64_t bytes;
    char parent[FSIO_PATH_MAX];
    struct store *store = NULL;
    copy->kind = KIND_TREE;
    TRY(fsio_path(parent, "%s", copy->exact));
    char *slash = strrchr(parent, '/');
    if (slash < parent + strlen("s3://b"))
        return ERR_OK; /* a bucket */
    *slash = '\0';
    TRY(store_open(parent, options, &store));
    enum err rc = store_size(store, slash + 1, &bytes);
    store_close(store);
    if (rc == ERR_OK && bytes >= 0) {
        copy->kind = KIND_FILE;
        copy->only = home_last(copy->exact);
    }
    return rc;
}

enum err home_find(struct home_copy *copy, int64_t step,
                   const struct store_options *options)
{
    const char *last = home_last(copy->exact);
    size_t bytes = strlen(last), end = strlen(GGUF);
    copy->only = "";
    if (copy->what == HOME_FILES && step < 0)
        return find_files(copy, options);
    if (bytes > end && strcmp(last + bytes - end, GGUF) == 0) {
        copy->kind = KIND_FILE;
        copy->only = last;
    } else if (mirror_names_step(last) >= 0) {
        copy->kind = KIND_CHECKPOINT;
    } else {
        return look(copy, step, options);
    }
    return step < 0 ? ERR_OK
                    : err_set(ERR_USAGE, "%s: is no run: leave #%lld out",
                              copy->exact, (long long)step);
}
