/* Copies stored elements to their places in a rank's memory, converted where
 * types differ.
 *
 * The two sides may have cut the tensor in different ways, say into rows for
 * the file and columns for the rank. Either cut is a list of runs, ascending in
 * the flattened tensor, so that it is enough to intersect runs: for each stored
 * one the first wanted run that ends behind its beginning is found by bisection,
 * and those after it follow while they overlap. */
#include "checkpoint/ckpt_place.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "checkpoint/ckpt.h"

/* What is converted on its way into a memory that is not the program's. */
#define EXTENT_BYTES 65536

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The stretch of the flattened tensor that run `run` shares with the stored
 * elements number [first, end). */
static void clip(const struct ckpt_part_runs *stored, int64_t run,
                 int64_t first, int64_t end, int64_t *from, int64_t *to)
{
    int64_t before = run * stored->elements;
    int64_t begin = ckpt_part_run_begin(stored, run);
    *from = begin + max_i64(0, first - before);
    *to = begin + min_i64(stored->elements, end - before);
}

bool ckpt_place_touches(int dims, const int64_t *shape,
                        const struct ckpt_part *stored, int64_t first,
                        int64_t end, const struct ckpt_part *wanted)
{
    assert(first >= 0);
    if (!stored->boxed && !wanted->boxed) /* of which a plan has millions */
        return max_i64(stored->begin + first, wanted->begin) <
               min_i64(min_i64(stored->begin + end, stored->end), wanted->end);
    struct ckpt_part_runs have = ckpt_part_runs(stored, dims, shape);
    struct ckpt_part_runs want = ckpt_part_runs(wanted, dims, shape);
    if (first >= end || have.count == 0 || want.count == 0 ||
        (stored->boxed && wanted->boxed &&
         ckpt_part_boxes_apart(stored, wanted, dims)))
        return false;
    int64_t want_end =
        ckpt_part_run_begin(&want, want.count - 1) + want.elements;
    int64_t run =
        max_i64(first / have.elements,
                ckpt_part_run_after(&have, ckpt_part_run_begin(&want, 0)));
    for (; run < have.count && run * have.elements < end; run++) {
        int64_t from, to;
        clip(&have, run, first, end, &from, &to);
        if (from >= want_end)
            break;
        int64_t hit = ckpt_part_run_after(&want, from);
        if (hit < want.count && ckpt_part_run_begin(&want, hit) < to)
            return true;
    }
    return false;
}

/* `count` elements to `target`, which lies in the place's memory. */
static enum err put_elements(const struct ckpt_place *place, const char *source,
                             char *target, int64_t count)
{
    const struct ckpt_memory *memory = place->memory;
    enum dtype stored = place->stored_dtype, wanted = place->wanted_dtype;
    size_t size = dtype_bytes(wanted);
    char extent[EXTENT_BYTES];
    if (memory == NULL)
        ckpt_place_convert(stored, source, wanted, target, count);
    else if (stored == wanted)
        TRY(memory->copy_in(memory->arg, target, source, (size_t)count * size));
    else
        for (int64_t done = 0; done < count;) {
            int64_t n = min_i64(count - done, (int64_t)(sizeof extent / size));
            ckpt_place_convert(stored, source, wanted, extent, n);
            TRY(memory->copy_in(memory->arg, target, extent, (size_t)n * size));
            source += (size_t)n * dtype_bytes(stored);
            target += (size_t)n * size;
            done += n;
        }
    return ERR_OK;
}

/* Elements [from, to) of the flattened tensor are at `source`. */
static enum err copy_run(const struct ckpt_place *place,
                         const struct ckpt_part_runs *want, int64_t from,
                         int64_t to, const char *source)
{
    int64_t size = (int64_t)dtype_bytes(place->wanted_dtype);
    int64_t stored_size = (int64_t)dtype_bytes(place->stored_dtype);
    for (int64_t run = ckpt_part_run_after(want, from); run < want->count;
         run++) {
        int64_t run_from = ckpt_part_run_begin(want, run);
        int64_t begin = max_i64(from, run_from);
        int64_t end = min_i64(to, run_from + want->elements);
        if (begin >= end)
            break;
        int64_t at = run * want->elements + begin - run_from;
        char *target = (char *)place->data + at * size;
        TRY(put_elements(place, source + (begin - from) * stored_size, target,
                         end - begin));
    }
    return ERR_OK;
}

enum err ckpt_place_copy(const struct ckpt_place *place, int64_t first,
                         int64_t end, const void *elements)
{
    assert(first >= 0);
    struct ckpt_part_runs have =
        ckpt_part_runs(&place->stored, place->dims, place->shape);
    struct ckpt_part_runs want =
        ckpt_part_runs(&place->wanted, place->dims, place->shape);
    int64_t size = (int64_t)dtype_bytes(place->stored_dtype);
    if (first >= end || want.count == 0)
        return ERR_OK;
    assert(have.count > 0 && end <= have.count * have.elements);
    for (int64_t run = first / have.elements; run * have.elements < end;
         run++) {
        int64_t from, to;
        clip(&have, run, first, end, &from, &to);
        int64_t number = max_i64(first, run * have.elements);
        TRY(copy_run(place, &want, from, to,
                     (const char *)elements + (number - first) * size));
    }
    return ERR_OK;
}

bool ckpt_place_converts(enum dtype from, enum dtype to)
{
    return from == to || (dtype_is_real(from) && dtype_is_real(to));
}

double ckpt_place_value(enum dtype dtype, const void *data, int64_t i)
{
    const char *at = (const char *)data + (size_t)i * dtype_bytes(dtype);
    double wide = 0;
    float narrow;
    uint16_t half;
    uint32_t bits;
    int32_t whole;
    switch (dtype) {
    case DTYPE_F32:
        memcpy(&narrow, at, sizeof narrow);
        return (double)narrow;
    case DTYPE_BF16:
        memcpy(&half, at, sizeof half);
        bits = (uint32_t)half << 16;
        memcpy(&narrow, &bits, sizeof narrow);
        return (double)narrow;
    case DTYPE_I32:
        memcpy(&whole, at, sizeof whole);
        return whole;
    case DTYPE_U8:
        return *(const unsigned char *)at;
    case DTYPE_F64:
        memcpy(&wide, at, sizeof wide);
        break;
    case DTYPES:
        break;
    }
    return wide;
}

/* Rounded once: the float in between is rounded to odd (cut off, the last bit
 * set where anything was lost), which can't move the value onto or over the
 * middle of two bf16 numbers. */
static uint16_t to_bf16(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    if ((double)narrow != value) {
        if (fabs((double)narrow) > fabs(value))
            bits--;
        bits |= 1;
    }
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void put(enum dtype dtype, char *at, double value)
{
    if (dtype == DTYPE_F64) {
        memcpy(at, &value, sizeof value);
    } else if (dtype == DTYPE_BF16) {
        uint16_t half = to_bf16(value);
        memcpy(at, &half, sizeof half);
    } else {
        float narrow = (float)value;
        memcpy(at, &narrow, sizeof narrow);
    }
}

void ckpt_place_convert(enum dtype from, const void *source, enum dtype to,
                        void *target, int64_t count)
{
    size_t size = dtype_bytes(to);
    char *out = target;
    assert(count >= 0);
    assert(ckpt_place_converts(from, to));
    if (from == to) {
        memcpy(target, source, (size_t)count * size);
        return;
    }
    for (int64_t i = 0; i < count; i++, out += size)
        put(to, out, ckpt_place_value(from, source, i));
}
