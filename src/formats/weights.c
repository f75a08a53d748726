/* The table of kinds of MODEL, and what is the same for all of them: finding a
 * tensor by name, comparing with a parameter table, filling an interval.
 *
 * A kind lists its tensors as params.h sees them and reads any interval of one;
 * all else is here, once. Two lists of names are compared by bisection in
 * sorted copies, in both directions: a parameter that is not there, and a
 * tensor that is none. All that do not match are told together, as whoever
 * converts models mends them together. An embedding may have fewer rows there,
 * for vocabularies are padded, and the rows that are missing are 0.
 *
 * What is filled is an interval of the flat space in which a rank owns its
 * part, so it may begin and end anywhere in a parameter. Gaps between
 * parameters are 0; one that is ignored keeps the fresh values that it has. */
#include "src/formats/weights.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/clean.h"
#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/base/regular.h"
#include "src/formats/weights_impl.h"
#include "src/mirror/home.h"

/* The first whose signs are there is it. */
static const struct weights_ops *const table[] = {
    &weights_ckpt,
    &weights_peft,
    &weights_hf,
    &weights_gguf,
};

#define KINDS (sizeof table / sizeof table[0])
#define MISMATCHES_LOGGED 10

struct weights {
    const struct weights_ops *ops;
    struct weights_source source;
    char path[FSIO_PATH_MAX];
    char place[FSIO_PATH_MAX], named[FSIO_PATH_MAX]; /* of an address */
    struct ckpt_named *names; /* of the source's list, sorted, each once */
    size_t name_count;
};

/* --- opening --- */

static enum err find_ops(const char *path, const struct weights_ops **out)
{
    char what[ERR_TEXT_BYTES] = "";
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode) &&
        !S_ISDIR(status.st_mode))
        return err_set(ERR_USAGE,
                       "%s: is %s, not a regular file, and no folder", path,
                       regular_kind(status.st_mode));
    for (size_t i = 0; i < KINDS; i++) {
        if (table[i]->is(path)) {
            *out = table[i];
            return ERR_OK;
        }
        clean_join(what, sizeof what, i + 1 == KINDS ? " or " : ", ", "%s",
                   table[i]->what);
    }
    if (!fsio_exists(path))
        return err_set(ERR_USAGE, "%s: no such file or folder", path);
    return err_set(ERR_USAGE, "%s: holds no model: a model is %s", path, what);
}

/* Where two have one name, the one that is a parameter stays. */
static void join_names(struct weights *weights)
{
    struct ckpt_named *names = weights->names;
    size_t kept = 0;
    for (int i = 0; i < weights->source.count; i++) {
        if (kept == 0 || strcmp(names[kept - 1].name, names[i].name) != 0)
            names[kept++] = names[i];
        else if (weights->source.list[names[kept - 1].index].other)
            names[kept - 1] = names[i];
    }
    weights->name_count = kept;
}

static enum err sort_names(struct weights *weights)
{
    const struct weights_source *source = &weights->source;
    size_t count = (size_t)source->count;
    TRY(new_zeroed(&weights->names, count + 1));
    for (size_t i = 0; i < count; i++)
        weights->names[i] = (struct ckpt_named){ .name = source->list[i].name,
                                                 .index = (int)i };
    ckpt_named_sort(weights->names, count);
    join_names(weights);
    return ERR_OK;
}

/* A copy's names are of no use to others. */
static void take_place(struct weights *weights)
{
    struct weights_about *about = &weights->source.about;
    about->place = about->path;
    if (weights->named[0] == '\0')
        return;
    about->place = weights->place;
    about->named = weights->named;
    snprintf(weights->place, sizeof weights->place, "%.*s",
             (int)strcspn(weights->named, "#"), weights->named);
}

enum err weights_open(const char *path, struct weights **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct weights *weights = NULL;
    *out = NULL;
    TRY(new_zeroed(&weights, 1));
    if (home_is(path))
        TRY_OUT(home_open(path, HOME_ALL, weights->path, weights->named));
    else
        TRY_OUT(fsio_path(weights->path, "%s", path));
    path = weights->path;
    TRY_OUT(find_ops(path, &weights->ops));
    weights->source.about = (struct weights_about){
        .kind = weights->ops->kind,
        .path = weights->path,
        .named = weights->path,
        .step = -1,
        .tokens = -1,
        .bos = -1,
        .eos = -1,
        .pad = -1,
        .named_bos = -1,
        .named_eos = -1,
    };
    TRY_OUT(weights->ops->open(path, &weights->source));
    take_place(weights);
    TRY_OUT(sort_names(weights));
out:
    return new_or_none(rc, weights, out, weights_close);
}

void weights_close(struct weights *weights)
{
    if (weights == NULL)
        return;
    if (weights->ops != NULL)
        weights->ops->close(&weights->source);
    free(weights->names);
    free(weights);
}

const struct weights_about *weights_about(const struct weights *weights)
{
    return &weights->source.about;
}

bool weights_is(const struct weights *weights, const char *sha256)
{
    const struct weights_about *about = &weights->source.about;
    return sha256 != NULL && (strcmp(sha256, about->sha256) == 0 ||
                              (about->sha256_files != NULL &&
                               strcmp(sha256, about->sha256_files) == 0));
}

/* --- reading --- */

/* NULL: the source has none of this name. */
static const struct weights_tensor *find(const struct weights *weights,
                                         const char *name)
{
    int index = ckpt_named_find(weights->names, weights->name_count, name);
    return index >= 0 ? &weights->source.list[index] : NULL;
}

/* May the source have fewer rows of it than the model? */
static bool is_padded(const struct param *param)
{
    return param->role == PARAM_WTE || param->role == PARAM_LM_HEAD;
}

static bool fits(const struct weights_tensor *tensor, const struct param *param)
{
    if (tensor->other || tensor->dims != param->dims)
        return false;
    if (param->dims == 2 && tensor->shape[1] != param->shape[1])
        return false;
    return tensor->shape[0] == param->shape[0] ||
           (is_padded(param) && tensor->shape[0] < param->shape[0]);
}

static void shape_text(int dims, const int64_t *shape, char text[64])
{
    if (dims == 2)
        snprintf(text, 64, "[%" PRId64 ", %" PRId64 "]", shape[0], shape[1]);
    else if (dims == 1)
        snprintf(text, 64, "[%" PRId64 "]", shape[0]);
    else
        snprintf(text, 64, "something else");
}

static void differs(const struct weights_tensor *tensor,
                    const struct param *param, char text[192])
{
    char is[64], wanted[64];
    const char *why = "";
    shape_text(param->dims, param->shape, wanted);
    if (tensor == NULL) {
        snprintf(text, 192, "is %s in the model and not there", wanted);
        return;
    }
    shape_text(tensor->dims, tensor->shape, is);
    if (tensor->other)
        why = ", but not as its configuration says";
    snprintf(text, 192, "is %s there, %s in the model%s", is, wanted, why);
}

enum err weights_read(struct weights *weights, const struct param *param,
                      int64_t begin, int64_t end, float *out)
{
    const struct weights_tensor *tensor = find(weights, param->name);
    assert(begin >= 0 && begin <= end && end <= param->numel);
    if (tensor == NULL || !fits(tensor, param)) {
        char text[192];
        differs(tensor, param, text);
        return err_set(ERR_DATA, "%s: %s %s", weights->source.about.path,
                       param->name, text);
    }
    int64_t has = tensor->shape[0] * (tensor->dims == 2 ? tensor->shape[1] : 1);
    /* what the source has of it, and zeros behind */
    int64_t last = end < has ? end : has;
    for (int64_t i = begin > last ? begin : last; i < end; i++)
        out[i - begin] = 0.0f;
    if (begin >= last)
        return ERR_OK;
    return weights->ops->read(&weights->source,
                              (int)(tensor - weights->source.list), begin, last,
                              out);
}

enum err weights_read_lora(struct weights *weights, const char *name,
                           int64_t rows, int64_t cols, float **out)
{
    assert(weights->source.about.lora != NULL);
    return weights->ops->read_lora(&weights->source, name, rows, cols, out);
}

/* --- comparing --- */

bool weights_ignored(const char *ignore, const char *name)
{
    return ignore != NULL && globs_match(ignore, name);
}

static bool matches_any(const struct weights *weights,
                        const struct params *params, const char *glob)
{
    for (int i = 0; i < weights->source.count; i++)
        if (globs_match(glob, weights->source.list[i].name))
            return true;
    for (int i = 0; i < params->count; i++)
        if (globs_match(glob, params->list[i].name))
            return true;
    return false;
}

static void warn_of_globs(const struct weights *weights,
                          const struct params *params, const char *ignore)
{
    char glob[GLOBS_GLOB_MAX];
    while (ignore != NULL && globs_next(&ignore, glob))
        if (!matches_any(weights, params, glob))
            log_warn("weights: %s, which is to be ignored, matches no tensor",
                     glob);
}

struct mismatches {
    const char *settings; /* logged before the first */
    int count;
    char text[320]; /* the first few */
};

static void mismatch(struct mismatches *list, const char *name,
                     const char *text)
{
    size_t used = strlen(list->text);
    if (list->count == 0 && list->settings[0] != '\0')
        log_error("weights: %s", list->settings);
    if (list->count++ < MISMATCHES_LOGGED)
        log_error("weights: %s %s", name, text);
    if (used + strlen(name) + strlen(text) + 4 < sizeof list->text)
        snprintf(list->text + used, sizeof list->text - used, "%s%s %s",
                 used == 0 ? "" : "; ", name, text);
}

/* The tensors of the source that are no parameter of the model, or have the
 * name of one beside it. */
static void find_others(const struct weights *weights,
                        const struct params *params,
                        const struct ckpt_named *names, const char *ignore,
                        struct mismatches *list)
{
    for (int i = 0; i < weights->source.count; i++) {
        const struct weights_tensor *tensor = &weights->source.list[i];
        char is[64], text[192];
        bool ours =
            ckpt_named_find(names, (size_t)params->count, tensor->name) >= 0;
        if ((ours && find(weights, tensor->name) == tensor) ||
            weights_ignored(ignore, tensor->name))
            continue;
        shape_text(tensor->dims, tensor->shape, is);
        snprintf(text, sizeof text,
                 ours ? "is there once more, %s, as no parameter"
                      : "is %s there and not in the model",
                 is);
        mismatch(list, tensor->name, text);
    }
}

enum err weights_match(struct weights *weights, const struct params *params,
                       const char *ignore, const char *settings)
{
    assert(weights != NULL && params != NULL);
    struct mismatches list = { .settings = settings };
    struct ckpt_named *names = NULL;
    TRY(new_zeroed(&names, (size_t)params->count + 1));
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        const struct weights_tensor *tensor = find(weights, param->name);
        char text[192];
        names[i] = (struct ckpt_named){ .name = param->name, .index = i };
        if ((tensor != NULL && fits(tensor, param)) ||
            weights_ignored(ignore, param->name))
            continue;
        differs(tensor, param, text);
        mismatch(&list, param->name, text);
    }
    ckpt_named_sort(names, (size_t)params->count);
    find_others(weights, params, names, ignore, &list);
    free(names);
    warn_of_globs(weights, params, ignore);
    if (list.count == 0)
        return ERR_OK;
    if (list.count > MISMATCHES_LOGGED)
        log_error("weights: and %d more", list.count - MISMATCHES_LOGGED);
    return err_set(ERR_DATA,
                   "%s: %d tensors do not match the model's (the log has "
                   "more): %s",
                   weights->source.about.path, list.count, list.text);
}

/* --- filling --- */

static int64_t within(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

enum err weights_fill(struct weights *weights, const struct params *params,
                      const char *ignore, int64_t begin, int64_t end,
                      float *out)
{
    int64_t done = begin; /* all before it has its value */
    assert(begin >= 0 && begin <= end && end <= params->elements);
    for (int p = 0; p <= params->count; p++) {
        const struct param *param = p < params->count ? &params->list[p] : NULL;
        int64_t first = param != NULL ? within(param->offset, begin, end) : end;
        for (; done < first; done++)
            out[done - begin] = 0.0f;
        if (param == NULL)
            break;
        int64_t last = within(param->offset + param->numel, first, end);
        if (first < last && !weights_ignored(ignore, param->name))
            TRY(weights_read(weights, param, first - param->offset,
                             last - param->offset, out + (first - begin)));
        done = last > done ? last : done;
    }
    return ERR_OK;
}
