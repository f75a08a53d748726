/* Compares two checkpoints tensor by tensor and entry by entry of their states.
 * The text that people see is made in src/cmd/ckpt_cmd_diff.c.
 *
 * Equal is what has the same bits: 0 and -0 differ, and two NaN with the same
 * bits do not, which no comparison of numbers would say. Most windows of most
 * tensors are equal, so memory is compared first and elements only where it
 * differs. How the two are sharded plays no part. */
#include "checkpoint/tools/ckpt_tools.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/ckpt_place.h"
#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/new.h"

struct pair {
    struct ckpt_tensor_reader *a, *b;
    char *window_a, *window_b;
};

static void compare_element(struct ckpt_diff *diff, const struct pair *pair,
                            int64_t i)
{
    enum dtype dtype = diff->a->dtype;
    double x = ckpt_place_value(dtype, pair->window_a, i);
    double y = ckpt_place_value(dtype, pair->window_b, i);
    if (!isfinite(x) || !isfinite(y)) {
        diff->non_finite++;
        return;
    }
    double apart = fabs(x - y);
    double larger = fmax(fabs(x), fabs(y));
    diff->max_absolute = fmax(diff->max_absolute, apart);
    if (larger > 0)
        diff->max_relative = fmax(diff->max_relative, apart / larger);
}

static void compare_window(struct ckpt_diff *diff, const struct pair *pair,
                           int64_t at, int64_t count)
{
    size_t size = dtype_bytes(diff->a->dtype);
    assert(count > 0 && at + count <= diff->a->elements);
    if (memcmp(pair->window_a, pair->window_b, (size_t)count * size) == 0)
        return;
    for (int64_t i = 0; i < count; i++) {
        size_t offset = (size_t)i * size;
        if (memcmp(pair->window_a + offset, pair->window_b + offset, size) == 0)
            continue;
        if (diff->differing++ == 0)
            diff->first = at + i;
        compare_element(diff, pair, i);
    }
}

static enum err compare_values(struct pair *pair, int number_a, int number_b,
                               struct ckpt_diff *diff)
{
    assert(diff->a->elements == diff->b->elements);
    for (int64_t at = 0, count; at < diff->a->elements; at += count) {
        count = ckpt_tensor_window(diff->a, at);
        TRY(ckpt_tensor_read(pair->a, number_a, at, at + count,
                             pair->window_a));
        TRY(ckpt_tensor_read(pair->b, number_b, at, at + count,
                             pair->window_b));
        compare_window(diff, pair, at, count);
    }
    diff->kind = diff->differing == 0 ? CKPT_DIFF_EQUAL : CKPT_DIFF_VALUES;
    return ERR_OK;
}

static bool same_form(const struct ckpt_tensor *a, const struct ckpt_tensor *b)
{
    return a->dtype == b->dtype && a->dims == b->dims &&
           memcmp(a->shape, b->shape, (size_t)a->dims * sizeof a->shape[0]) ==
               0;
}

static enum err compare(struct pair *pair, const struct ckpt_manifest *a,
                        const struct ckpt_named *sorted_a,
                        const struct ckpt_manifest *b,
                        const struct ckpt_named *sorted_b, ckpt_diff_fn each,
                        void *arg)
{
    size_t count_a = (size_t)a->tensor_count, count_b = (size_t)b->tensor_count;
    for (int t = 0; t < a->tensor_count; t++) {
        struct ckpt_diff diff = { .kind = CKPT_DIFF_ONLY_A,
                                  .a = &a->tensors[t] };
        int other = ckpt_named_find(sorted_b, count_b, diff.a->name);
        if (other >= 0) {
            diff.b = &b->tensors[other];
            diff.kind = CKPT_DIFF_FORM;
            if (same_form(diff.a, diff.b))
                TRY(compare_values(pair, t, other, &diff));
        }
        TRY(each(arg, &diff));
    }
    for (int t = 0; t < b->tensor_count; t++) {
        struct ckpt_diff diff = { .kind = CKPT_DIFF_ONLY_B,
                                  .b = &b->tensors[t] };
        if (ckpt_named_find(sorted_a, count_a, diff.b->name) < 0)
            TRY(each(arg, &diff));
    }
    return ERR_OK;
}

enum err ckpt_diff_tensors(const char *dir_a, const struct ckpt_manifest *a,
                           const char *dir_b, const struct ckpt_manifest *b,
                           ckpt_diff_fn each, void *arg)
{
    enum err rc = ERR_OK;
    struct pair pair = { 0 };
    struct ckpt_named *sorted_a = NULL, *sorted_b = NULL;
    TRY_OUT(ckpt_named_tensors(a, &sorted_a));
    TRY_OUT(ckpt_named_tensors(b, &sorted_b));
    TRY_OUT(new_room(&pair.window_a, (size_t)CKPT_TENSOR_WINDOW_BYTES));
    TRY_OUT(new_room(&pair.window_b, (size_t)CKPT_TENSOR_WINDOW_BYTES));
    TRY_OUT(ckpt_tensor_create(dir_a, a, &pair.a));
    TRY_OUT(ckpt_tensor_create(dir_b, b, &pair.b));
    TRY_OUT(compare(&pair, a, sorted_a, b, sorted_b, each, arg));
out:
    ckpt_tensor_destroy(pair.a);
    ckpt_tensor_destroy(pair.b);
    free(pair.window_a);
    free(pair.window_b);
    free(sorted_a);
    free(sorted_b);
    return rc;
}

/* --- states --- */

static int compare_states(const char *entry, const json_t *a, const json_t *b,
                          json_t *out)
{
    char path[512];
    const char *key;
    json_t *value;
    int failed = 0;
    if (!json_is_object(a) || !json_is_object(b)) {
        if (json_equal(a, b))
            return 0;
        return json_array_append_new(
            out, json_pack("{s:s, s:o, s:o}", "entry", entry, "a",
                           a != NULL ? json_deep_copy(a) : json_null(), "b",
                           b != NULL ? json_deep_copy(b) : json_null()));
    }
    const char *dot = entry[0] == '\0' ? "" : ".";
    json_object_foreach((json_t *)a, key, value)
    {
        snprintf(path, sizeof path, "%s%s%s", entry, dot, key);
        failed |= compare_states(path, value, json_object_get(b, key), out);
    }
    json_object_foreach((json_t *)b, key, value)
    {
        snprintf(path, sizeof path, "%s%s%s", entry, dot, key);
        if (json_object_get(a, key) == NULL)
            failed |= compare_states(path, NULL, value, out);
    }
    return failed;
}

json_t *ckpt_diff_states(const json_t *a, const json_t *b)
{
    json_t *out = json_array();
    if (out != NULL && compare_states("", a, b, out) == 0)
        return out;
    json_decref(out);
    return NULL;
}
