/* Fills one arena with all parameters, in as many intervals as there are
 * threads. Sources are for one thread at a time, so each thread opens its own.
 * Floats that are to be bf16 pass through a small buffer: the whole in fp32 may
 * not fit. */
#include "src/formats/weights.h"

#include <assert.h>
#include <stdlib.h>

#include "checkpoint/ckpt_place.h"
#include "src/base/arena.h"
#include "src/base/new.h"

#define FILL_ELEMENTS ((int64_t)1 << 18) /* that are read and rounded at once */
#define READERS_MAX 8 /* of some 80 MiB each, if it is a checkpoint */

struct weights_resident {
    const struct params *params; /* lent */
    enum dtype dtype;
    struct arena arena;
    struct param_access access;
};

static enum err resident_gather(void *arg, int block, const void **weights)
{
    const struct weights_resident *resident = arg;
    int64_t offset = resident->params->blocks[block].offset;
    *weights =
        resident->arena.base + (size_t)offset * dtype_bytes(resident->dtype);
    return ERR_OK;
}

static enum err resident_release(void *arg, int block)
{
    (void)arg;
    (void)block;
    return ERR_OK;
}

/* One thread's interval of the flat space. `values` has room for
 * FILL_ELEMENTS. */
static enum err fill_interval(struct weights_resident *resident,
                              struct weights *weights, int64_t begin,
                              int64_t end, float *values)
{
    size_t size = dtype_bytes(resident->dtype);
    for (int64_t at = begin; at < end; at += FILL_ELEMENTS) {
        int64_t next = end - at < FILL_ELEMENTS ? end : at + FILL_ELEMENTS;
        char *to = resident->arena.base + (size_t)at * size;
        bool same = resident->dtype == DTYPE_F32;
        float *floats = same ? (float *)(void *)to : values;
        TRY(weights_fill(weights, resident->params, NULL, at, next, floats));
        if (!same)
            ckpt_place_convert(DTYPE_F32, values, resident->dtype, to,
                               next - at);
    }
    return ERR_OK;
}

/* Interval number `part` of `parts`, by a source of its own but for the first.
 */
static enum err fill_part(struct weights_resident *resident,
                          struct weights *weights, int part, int parts)
{
    enum err rc = ERR_OK;
    int64_t elements = resident->params->elements;
    struct weights *own = NULL;
    float *values = NULL;
    TRY(new_room(&values, (size_t)FILL_ELEMENTS));
    if (part > 0)
        TRY_OUT(weights_open(weights_about(weights)->named, &own));
    TRY_OUT(fill_interval(
        resident, own != NULL ? own : weights, elements / parts * part,
        part + 1 == parts ? elements : elements / parts * (part + 1), values));
out:
    weights_close(own);
    free(values);
    return rc;
}

static enum err fill_all(struct weights_resident *resident,
                         struct weights *weights, int threads)
{
    struct err_kept kept[READERS_MAX] = { 0 };
    int parts = threads < READERS_MAX ? threads : READERS_MAX;
    /* a thread and a source for less than one fill are not worth it */
    if (parts > resident->params->elements / FILL_ELEMENTS)
        parts = (int)(resident->params->elements / FILL_ELEMENTS);
    if (parts < 1)
        parts = 1;
#pragma omp parallel for schedule(static, 1) num_threads(parts)
    for (int part = 0; part < parts; part++)
        err_keep(&kept[part], fill_part(resident, weights, part, parts));
    for (int part = 0; part < parts; part++)
        TRY(err_again(&kept[part]));
    return ERR_OK;
}

enum err weights_resident_create(struct weights *weights,
                                 const struct params *params, enum dtype dtype,
                                 int threads, struct weights_resident **out)
{
    assert(threads > 0 && out != NULL);
    enum err rc = ERR_OK;
    struct weights_resident *resident = NULL;
    assert(dtype == DTYPE_F32 || dtype == DTYPE_BF16);
    TRY(weights_match(weights, params, NULL, ""));
    TRY(new_zeroed(&resident, 1));
    resident->params = params;
    resident->dtype = dtype;
    resident->access = (struct param_access){ .arg = resident,
                                              .gather = resident_gather,
                                              .release = resident_release };
    rc = arena_create((size_t)params->elements * dtype_bytes(dtype),
                      &resident->arena);
    if (rc == ERR_MEMORY)
        rc = err_prefix(rc, "the weights of %s", weights_about(weights)->path);
    TRY_OUT(rc);
    TRY_OUT(fill_all(resident, weights, threads));
out:
    return new_or_none(rc, resident, out, weights_resident_destroy);
}

void weights_resident_destroy(struct weights_resident *resident)
{
    if (resident == NULL)
        return;
    arena_destroy(&resident->arena);
    free(resident);
}

const struct param_access *
weights_resident_access(struct weights_resident *resident)
{
    return &resident->access;
}
