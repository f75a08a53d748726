/* Finds the caller's item for each tensor of a checkpoint by name, and lists
 * all that does not fit.
 *
 * Both sides are sorted by name and walked side by side, as two lists are
 * merged: a name that only one of them has is seen when the other has passed
 * it. All differences are told, not the first: one wrong setting changes many
 * tensors, and the pattern tells which. */
#include "checkpoint/ckpt_load_private.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_place.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define MISMATCHES_LOGGED 20

struct mismatches {
    int count;
    bool quiet;
    char text[320]; /* the first few */
};

static void mismatch(struct mismatches *list, const char *name,
                     const char *what)
{
    size_t used = strlen(list->text);
    int room = (int)(sizeof list->text - used);
    if (!list->quiet && list->count < MISMATCHES_LOGGED)
        log_error("checkpoint mismatch: tensor %s %s", name, what);
    list->count++;
    if ((int)(strlen(name) + strlen(what)) + 4 < room)
        snprintf(list->text + used, (size_t)room, "%s%s %s",
                 used == 0 ? "" : "; ", name, what);
}

static void shape_text(enum dtype dtype, int dims, const int64_t *shape,
                       char *text, size_t bytes)
{
    int used = snprintf(text, bytes, "%s[", dtype_name(dtype));
    for (int i = 0; i < dims; i++)
        used += snprintf(text + used, bytes - (size_t)used, "%s%" PRId64,
                         i == 0 ? "" : ",", shape[i]);
    snprintf(text + used, bytes - (size_t)used, "]");
}

struct match {
    const struct ckpt_manifest *manifest;
    const char *where;
    const struct ckpt_load_options *options;
    const struct ckpt_item *items;
    int *item_of_tensor;
    /* both sides without what is ignored, by name */
    struct ckpt_named *tensors, *wanted;
    int tensor_count, wanted_count;
    struct mismatches list;
};

static bool same_shape(const struct ckpt_tensor *tensor,
                       const struct ckpt_item *item)
{
    if (tensor->dims != item->dims)
        return false;
    for (int d = 0; d < item->dims; d++)
        if (tensor->shape[d] != item->shape[d])
            return false;
    return true;
}

static void compare(struct match *match, const struct ckpt_tensor *tensor,
                    const struct ckpt_item *item)
{
    char stored[128], wanted[128], what[300];
    bool convert = match->options != NULL && match->options->convert &&
                   ckpt_place_converts(tensor->dtype, item->dtype);
    if (same_shape(tensor, item) && (tensor->dtype == item->dtype || convert)) {
        if (ckpt_part_check(&item->part, item->dims, item->shape, match->where,
                            item->name) != ERR_OK)
            mismatch(&match->list, item->name, "is wanted beyond its elements");
        return;
    }
    shape_text(tensor->dtype, tensor->dims, tensor->shape, stored,
               sizeof stored);
    shape_text(item->dtype, item->dims, item->shape, wanted, sizeof wanted);
    snprintf(what, sizeof what, "is %s in the checkpoint, %s in the model",
             stored, wanted);
    mismatch(&match->list, tensor->name, what);
}

static void compare_all(struct match *match)
{
    const struct ckpt_named *tensors = match->tensors, *wanted = match->wanted;
    int t = 0, i = 0;
    while (t < match->tensor_count || i < match->wanted_count) {
        int order = t == match->tensor_count ? 1
                    : i == match->wanted_count
                        ? -1
                        : strcmp(tensors[t].name, wanted[i].name);
        if (order < 0) {
            mismatch(&match->list, tensors[t++].name, "is not in the model");
        } else if (order > 0) {
            mismatch(&match->list, wanted[i++].name,
                     "is not in the checkpoint");
        } else {
            compare(match, &match->manifest->tensors[tensors[t].index],
                    &match->items[wanted[i].index]);
            match->item_of_tensor[tensors[t++].index] = wanted[i++].index;
        }
    }
}

static bool ignored(const struct ckpt_load_options *options, const char *name)
{
    for (int i = 0; options != NULL && i < options->ignore_count; i++)
        if (fnmatch(options->ignore[i], name, 0) == 0)
            return true;
    return false;
}

static void add(struct ckpt_named *list, int *count, const char *name,
                int index, const struct ckpt_load_options *options)
{
    if (!ignored(options, name))
        list[(*count)++] = (struct ckpt_named){ name, index };
}

static void warn_of_globs(const struct match *match, int item_count)
{
    const struct ckpt_load_options *options = match->options;
    for (int g = options->ignore_count - options->ignore_told;
         g < options->ignore_count; g++) {
        const char *glob = options->ignore[g];
        bool found = false;
        for (int t = 0; t < match->manifest->tensor_count && !found; t++)
            found = fnmatch(glob, match->manifest->tensors[t].name, 0) == 0;
        for (int i = 0; i < item_count && !found; i++)
            found = fnmatch(glob, match->items[i].name, 0) == 0;
        if (!found)
            log_warn("%s: %s, which is to be left out, matches no tensor",
                     match->where, glob);
    }
}

enum err ckpt_match(const struct ckpt_manifest *manifest, const char *where,
                    const struct ckpt_load_options *options,
                    const struct ckpt_item *items, int item_count, bool quiet,
                    int **item_of_tensor)
{
    enum err rc = ERR_OK;
    size_t tensors = (size_t)manifest->tensor_count + 1;
    struct match match = { .manifest = manifest,
                           .where = where,
                           .options = options,
                           .items = items,
                           .list.quiet = quiet };
    *item_of_tensor = NULL;
    TRY_OUT(new_zeroed(&match.tensors, tensors));
    TRY_OUT(new_zeroed(&match.wanted, (size_t)item_count + 1));
    TRY_OUT(new_zeroed(&match.item_of_tensor, tensors));
    for (int t = 0; t < manifest->tensor_count; t++) {
        match.item_of_tensor[t] = -1;
        add(match.tensors, &match.tensor_count, manifest->tensors[t].name, t,
            options);
    }
    for (int i = 0; i < item_count; i++)
        add(match.wanted, &match.wanted_count, items[i].name, i, options);
    if (!quiet && options != NULL)
        warn_of_globs(&match, item_count);
    ckpt_named_sort(match.tensors, (size_t)match.tensor_count);
    ckpt_named_sort(match.wanted, (size_t)match.wanted_count);
    compare_all(&match);
    if (match.list.count > 0)
        TRY_OUT(err_set(ERR_CHECKPOINT,
                        "%.150s is of another model, %d mismatches: %s", where,
                        match.list.count, match.list.text));
out:
    free(match.wanted);
    free(match.tensors);
    return new_or_none(rc, match.item_of_tensor, item_of_tensor, free);
}
