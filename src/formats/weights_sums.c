/* Adds up, keeps and compares checksums of tensors.
 *
 * They do not depend on who reads what: any intervals of the flat space of
 * params, each element once, in any order and on any ranks, whose sums are
 * joined by XOR. That works because a CRC is linear: the sum of A followed by B
 * is that of A, moved on by the length of B, XOR that of B (crc32c_shift()). So
 * an interval's sum is moved on by what follows it in its block, and XORed to
 * what is there. Blocks, and not tensors, since a reader of an interval checks
 * what it reads. */
#include "src/formats/weights_sums.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/digest.h"
#include "src/base/jsontext.h"
#include "src/base/new.h"

enum err weights_sums_create(const struct params *params,
                             struct weights_sums **out)
{
    assert(params != NULL && out != NULL);
    size_t count = (size_t)params->count;
    struct weights_sums *sums = NULL;
    enum err rc = ERR_OK;
    *out = NULL;
    TRY(new_zeroed(&sums, 1));
    sums->params = params;
    TRY_OUT(new_zeroed(&sums->first, count + 1));
    TRY_OUT(new_zeroed(&sums->known, count + 1));
    for (size_t i = 0; i < count; i++) {
        int64_t padded = params->list[i].numel + WEIGHTS_SUMS_BLOCK - 1;
        sums->first[i + 1] = sums->first[i] + padded / WEIGHTS_SUMS_BLOCK;
        sums->known[i] = true;
    }
    TRY_OUT(new_zeroed(&sums->list, (size_t)sums->first[count] + 1));
out:
    return new_or_none(rc, sums, out, weights_sums_destroy);
}

void weights_sums_destroy(struct weights_sums *sums)
{
    if (sums == NULL)
        return;
    free(sums->first);
    free(sums->list);
    free(sums->known);
    free(sums);
}

/* --- adding --- */

/* Elements [begin, end) of tensor `index`, counted from its first. */
static void add_tensor(struct weights_sums *sums, int index, int64_t begin,
                       int64_t end, const float *values)
{
    int64_t numel = sums->params->list[index].numel;
    for (int64_t at = begin; at < end;) {
        int64_t block = at / WEIGHTS_SUMS_BLOCK;
        int64_t last = (block + 1) * WEIGHTS_SUMS_BLOCK;
        last = last < numel ? last : numel;
        int64_t stop = last < end ? last : end;
        uint32_t part = crc32c(0, values + (at - begin),
                               (size_t)(stop - at) * sizeof *values);
        sums->list[sums->first[index] + block] ^=
            crc32c_shift(part, (uint64_t)(last - stop) * sizeof *values);
        at = stop;
    }
}

void weights_sums_add(struct weights_sums *sums, int64_t begin, int64_t end,
                      const float *values)
{
    for (int i = 0; i < sums->params->count; i++) {
        const struct param *param = &sums->params->list[i];
        int64_t first = param->offset > begin ? param->offset : begin;
        int64_t last = param->offset + param->numel;
        last = last < end ? last : end;
        if (first < last)
            add_tensor(sums, i, first - param->offset, last - param->offset,
                       values + (first - begin));
    }
}

/* --- as JSON --- */

json_t *weights_sums_json(const struct weights_sums *sums)
{
    json_t *json = json_object();
    for (int i = 0; i < sums->params->count; i++) {
        json_t *list = json_array();
        for (int64_t b = sums->first[i]; b < sums->first[i + 1]; b++)
            jsontext_append(&list, json_integer((json_int_t)sums->list[b]));
        jsontext_set(&json, sums->params->list[i].name, list);
    }
    return json;
}

static enum err parse_tensor(const json_t *list, const char *where, int index,
                             struct weights_sums *sums)
{
    int64_t count = sums->first[index + 1] - sums->first[index];
    const char *name = sums->params->list[index].name;
    if (!json_is_array(list) || json_array_size(list) != (size_t)count)
        return err_set(ERR_CHECKPOINT,
                       "%s: its state has not the %lld checksums of %s", where,
                       (long long)count, name);
    for (int64_t b = 0; b < count; b++) {
        const json_t *value = json_array_get(list, (size_t)b);
        json_int_t sum = json_integer_value(value);
        if (!json_is_integer(value) || sum < 0 || sum > UINT32_MAX)
            return err_set(ERR_CHECKPOINT,
                           "%s: its state has a checksum of %s that is none",
                           where, name);
        sums->list[sums->first[index] + b] = (uint32_t)sum;
    }
    return ERR_OK;
}

enum err weights_sums_parse(const json_t *json, const struct params *params,
                            const char *where, struct weights_sums **out)
{
    assert(params != NULL && where != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct weights_sums *sums = NULL;
    *out = NULL;
    if (json != NULL && !json_is_object(json))
        return err_set(ERR_CHECKPOINT, "%s: its state has no checksums", where);
    TRY(weights_sums_create(params, &sums));
    for (int i = 0; i < params->count; i++) {
        const json_t *list = json_object_get(json, params->list[i].name);
        sums->known[i] = list != NULL;
        if (list != NULL)
            TRY_OUT(parse_tensor(list, where, i, sums));
    }
out:
    return new_or_none(rc, sums, out, weights_sums_destroy);
}

/* --- comparing --- */

static bool same(const struct weights_sums *a, const struct weights_sums *b,
                 int index)
{
    int64_t first = a->first[index];
    size_t count = (size_t)(a->first[index + 1] - first);
    return !a->known[index] || !b->known[index] ||
           memcmp(a->list + first, b->list + first, count * sizeof *a->list) ==
               0;
}

enum err weights_sums_compare(const struct weights_sums *was,
                              const struct weights_sums *is, const char *path,
                              int *unknown)
{
    assert(was != NULL && is != NULL && unknown != NULL);
    char names[256] = "";
    int differ = 0;
    assert(was->params == is->params);
    *unknown = 0;
    for (int i = 0; i < was->params->count; i++) {
        const char *name = was->params->list[i].name;
        *unknown += !was->known[i];
        if (same(was, is, i))
            continue;
        if (strlen(names) + strlen(name) + 3 < sizeof names)
            clean_join(names, sizeof names, ", ", "%s", name);
        differ++;
    }
    if (differ == 0)
        return ERR_OK;
    return err_set(ERR_CHECKPOINT,
                   "%s: %d tensors have other values than when the run was "
                   "started: %s",
                   path, differ, names);
}
