/* Tensors in every sharding, for the tests of loading: values are a function of
 * (step, tensor, element), also after a conversion; destinations are poisoned
 * and guarded. */
#pragma once

#include "checkpoint/ckpt.h"
#include "src/base/rng.h"
#include "tests/ckpt_ranks.h"

#define SMALL 300
#define GUARD 64
#define POISON 0xa5

static const struct ckpt_item large[] = {
    { .name = "wte.weight", .dims = 2, .shape = { 2100, 1024 } },
    { .name = "optimizer/exp_avg/wte.weight",
      .dims = 2,
      .shape = { 2100, 1024 } },
    { .name = "proj.weight",
      .dtype = DTYPE_BF16,
      .dims = 3,
      .shape = { 40, 300, 200 } },
    { .name = "counts", .dtype = DTYPE_I32, .dims = 1, .shape = { 640 } },
    { .name = "sums", .dtype = DTYPE_F64, .dims = 4, .shape = { 3, 4, 5, 6 } },
    { .name = "loss.sum", .dtype = DTYPE_F64, .dims = 0 },
    { .name = "nothing", .dims = 2, .shape = { 0, 4 } },
};
#define LARGE (int)(sizeof large / sizeof large[0])
#define TENSORS (LARGE + SMALL)

enum sharding {
    LAST_ONLY, /* the last rank has everything: the owner of a replica */
    FLAT,      /* one even interval of all tensors end to end */
    UNEVEN,    /* the same, unequal */
    ROWS,
    COLUMNS,
    SAVEABLE,
    REPLICATED = SAVEABLE,
    RANDOM,
    NOTHING,
    SHARDINGS
};
static const char *const names[] = { "replica owner", "flat",    "uneven",
                                     "rows",          "columns", "replicated",
                                     "random boxes",  "nothing" };

/* --- items --- */

static inline void catalogue(struct ckpt_item *items)
{
    memset(items, 0, TENSORS * sizeof *items);
    memcpy(items, large, sizeof large);
    for (int i = LARGE; i < TENSORS; i++) {
        snprintf(items[i].name, sizeof items[i].name, "layer.%d.bias", i);
        items[i].dims = 1;
        items[i].shape[0] = 37;
    }
}

/* Cut number `i` of `total` elements among `ranks`. */
static inline int64_t cut(enum sharding kind, int64_t total, int i, int ranks)
{
    if (kind == UNEVEN)
        return total * i * i / ((int64_t)ranks * ranks);
    return total * i / ranks;
}

static inline void interval_of(struct ckpt_item *item, enum sharding kind,
                               int64_t before, int64_t total, int rank,
                               int ranks)
{
    int64_t elements = fixture_elements(item);
    int64_t begin = cut(kind, total, rank, ranks) - before;
    int64_t end = cut(kind, total, rank + 1, ranks) - before;
    begin = begin < 0 ? 0 : begin > elements ? elements : begin;
    end = end < 0 ? 0 : end > elements ? elements : end;
    item->part = (struct ckpt_part){ .begin = begin, .end = end };
}

static inline void box_of(struct ckpt_item *item, enum sharding kind,
                          int number, int rank, int ranks)
{
    struct ckpt_part *part = &item->part;
    part->boxed = true;
    for (int d = 0; d < item->dims; d++)
        part->sides[d] = item->shape[d];
    for (int d = 0; d < item->dims; d++) {
        uint64_t at = (uint64_t)((number * ranks + rank) * 8 + 2 * d);
        int64_t size = item->shape[d];
        bool split = kind == ROWS ? d == 0 : d == item->dims - 1;
        if (kind == RANDOM) {
            part->origin[d] = (int64_t)(rng_uniform(3, 1, at) * (double)size);
            part->sides[d] = (int64_t)(rng_uniform(3, 1, at + 1) *
                                       (double)(size - part->origin[d] + 1));
        } else if (split) {
            part->origin[d] = size * rank / ranks;
            part->sides[d] = size * (rank + 1) / ranks - part->origin[d];
        }
    }
    /* a scalar has no dimension to split */
    if (item->dims == 0 && kind != RANDOM && rank != 0)
        *part = (struct ckpt_part){ 0 };
}

static inline void shard(struct ckpt_item *items, enum sharding kind, int rank,
                         int ranks)
{
    int64_t total = 0, before = 0;
    for (int i = 0; i < TENSORS; i++)
        total += fixture_elements(&items[i]);
    for (int i = 0; i < TENSORS; i++) {
        struct ckpt_item *item = &items[i];
        int64_t elements = fixture_elements(item);
        item->part = (struct ckpt_part){ 0 };
        if (kind == REPLICATED || (kind == LAST_ONLY && rank == ranks - 1))
            item->part.end = elements;
        else if (kind == FLAT || kind == UNEVEN)
            interval_of(item, kind, before, total, rank, ranks);
        else if (kind == ROWS || kind == COLUMNS || kind == RANDOM)
            box_of(item, kind, i, rank, ranks);
        before += elements;
    }
}

static inline size_t part_bytes(const struct ckpt_item *item)
{
    return (size_t)ckpt_part_elements(&item->part, item->dims) *
           dtype_bytes(item->dtype);
}

/* Memory for every part, poisoned, with guards before and after. */
static inline void allocate(struct ckpt_item *items)
{
    for (int i = 0; i < TENSORS; i++) {
        size_t bytes = part_bytes(&items[i]) + 2 * GUARD;
        char *memory = malloc(bytes);
        memset(memory, POISON, bytes);
        items[i].data = memory + GUARD;
    }
}

static inline void release(struct ckpt_item *items)
{
    for (int i = 0; i < TENSORS; i++)
        free((char *)items[i].data - GUARD);
}

static inline bool guarded(const struct ckpt_item *item)
{
    const unsigned char *data = item->data;
    size_t bytes = part_bytes(item);
    for (size_t i = 0; i < GUARD; i++)
        if (data[i - GUARD] != POISON || data[bytes + i] != POISON)
            return false;
    return true;
}

static inline bool poisoned(const struct ckpt_item *item)
{
    const unsigned char *data = item->data;
    for (size_t i = 0; i < part_bytes(item); i++)
        if (data[i] != POISON)
            return false;
    return true;
}

static inline bool contains(const struct ckpt_item *item, int64_t element)
{
    for (int d = item->dims - 1; d >= 0 && item->part.boxed; d--) {
        int64_t index = element % item->shape[d] - item->part.origin[d];
        element /= item->shape[d];
        if (index < 0 || index >= item->part.sides[d])
            return false;
    }
    return item->part.boxed ||
           (element >= item->part.begin && element < item->part.end);
}

/* The stored value of an element as the item's dtype; finite numbers, so that
 * conversions can be told from damage. */
static inline void value_of(const struct ckpt_item *item, enum dtype stored,
                            int tensor, int64_t step, int64_t element,
                            char *out)
{
    uint64_t value = fixture_value(step, tensor, element);
    char raw[8];
    if (stored == DTYPE_F32)
        value &= ~(1u << 30);
    if (stored == DTYPE_BF16)
        value &= ~(1u << 14);
    if (stored == DTYPE_F64)
        value = (value & ~(UINT64_C(0xf) << 59)) | UINT64_C(7) << 59;
    memcpy(raw, &value, sizeof raw);
    if (stored == item->dtype) {
        memcpy(out, raw, dtype_bytes(stored));
        return;
    }
    double wide = 0.0;
    uint32_t bits = (uint32_t)value << (stored == DTYPE_BF16 ? 16 : 0);
    float narrow;
    memcpy(&narrow, &bits, sizeof narrow);
    if (stored == DTYPE_F64)
        memcpy(&wide, raw, sizeof wide);
    else
        wide = (double)narrow;
    if (item->dtype == DTYPE_F64) {
        memcpy(out, &wide, sizeof wide);
    } else if (item->dtype == DTYPE_F32) {
        narrow = (float)wide;
        memcpy(out, &narrow, sizeof narrow);
    } else { /* from f32, in integers */
        bits += 0x7fff + (bits >> 16 & 1);
        uint16_t half = (uint16_t)(bits >> 16);
        memcpy(out, &half, sizeof half);
    }
}

/* Fill the parts with the step's values, or compare. */
static inline bool values(struct ckpt_item *items, int64_t step, bool compare)
{
    struct ckpt_item stored[TENSORS];
    catalogue(stored);
    for (int i = 0; i < TENSORS; i++) {
        struct ckpt_item *item = &items[i];
        size_t size = dtype_bytes(item->dtype);
        char *at = item->data;
        int64_t elements = part_bytes(item) == 0 ? 0 : fixture_elements(item);
        for (int64_t e = 0; e < elements; e++) {
            char value[8];
            if (!contains(item, e))
                continue;
            value_of(item, stored[i].dtype, i, step, e, value);
            if (!compare)
                memcpy(at, value, size);
            else if (memcmp(at, value, size) != 0)
                return false;
            at += size;
        }
        if (!guarded(item))
            return false;
    }
    return true;
}

static inline int64_t payload(void)
{
    struct ckpt_item items[TENSORS];
    int64_t bytes = 0;
    catalogue(items);
    for (int i = 0; i < TENSORS; i++)
        bytes +=
            fixture_elements(&items[i]) * (int64_t)dtype_bytes(items[i].dtype);
    return bytes;
}

/* --- helpers --- */

static inline int64_t over_all(struct comm *comm, int64_t value,
                               enum comm_op op)
{
    return comm_all_reduce_i64(comm, &value, 1, op) == ERR_OK ? value : -1;
}

static inline enum err save_files(struct comm *comm, const char *run,
                                  int64_t step, enum sharding kind,
                                  int file_ranks)
{
    struct ckpt_item items[TENSORS];
    struct ckpt_options options = { .attempt = "7.1",
                                    .file_ranks = file_ranks };
    catalogue(items);
    shard(items, kind, comm_rank(comm), comm_size(comm));
    allocate(items);
    values(items, step, false);
    json_t *state = comm_rank(comm) == 0 ? fixture_state(step) : NULL;
    enum err rc =
        ckpt_save(comm, run, step, state, items, TENSORS, &options, NULL);
    json_decref(state);
    release(items);
    return rc;
}

static inline enum err save(struct comm *comm, const char *run, int64_t step,
                            enum sharding kind)
{
    return save_files(comm, run, step, kind, 0);
}

/* Load the newest into a new sharding: exactly the values of `want`? */
static inline bool loads(struct comm *comm, const char *run, int64_t want,
                         enum sharding kind, struct ckpt_load_stats *stats)
{
    struct ckpt_item items[TENSORS];
    json_t *state = NULL;
    int64_t step = -2;
    catalogue(items);
    shard(items, kind, comm_rank(comm), comm_size(comm));
    allocate(items);
    enum err rc =
        ckpt_load(comm, run, NULL, items, TENSORS, &step, &state, stats);
    bool good = rc == ERR_OK && step == want && values(items, want, true);
    json_decref(state);
    release(items);
    return good;
}
