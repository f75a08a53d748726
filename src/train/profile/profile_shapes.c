/* Adds a timeline's ops by name and shape.
 *
 * A model has some dozens of shapes, a profile a quarter of a million events: so
 * a shape is found by a map beside the list. A name is compared as text, for
 * equal names may come from two tables. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/map.h"

/* Those that were met, in the order in which they were. */
struct shapes {
    struct profile_shape *list; /* [count] */
    size_t count, room;
    struct map map;
};

/* Dimensions that an op does not have are 0 in both. */
static bool same(const struct profile_shape *shape, const char *name,
                 const struct timeline_detail *detail)
{
    return strcmp(shape->name, name) == 0 &&
           memcmp(shape->detail.dim, detail->dim, sizeof detail->dim) == 0;
}

/* The shape's entry, which is made where there is none. */
static enum err find(struct shapes *shapes, const char *name,
                     const struct timeline_detail *detail,
                     struct profile_shape **out)
{
    uint64_t dims = map_hash_bytes(detail->dim, sizeof detail->dim);
    uint32_t hash =
        map_hash_number(dims << 32 | map_hash_bytes(name, strlen(name)));
    for (size_t at = 0, i; map_next(&shapes->map, hash, &at, &i);)
        if (same(&shapes->list[i], name, detail)) {
            *out = &shapes->list[i];
            return ERR_OK;
        }
    assert(shapes->count == shapes->map.count);
    TRY(array_room(&shapes->list, &shapes->room, shapes->count + 1));
    TRY(map_add(&shapes->map, hash, shapes->count));
    *out = &shapes->list[shapes->count++];
    **out = (struct profile_shape){ .name = name, .detail = *detail };
    (*out)->detail.flop = (*out)->detail.bytes = 0.0;
    return ERR_OK;
}

/* Only ops have shapes; those of an evaluation or a checkpoint are absorbed by
 * their listener, and no part of what a step computes. */
static enum err add(struct shapes *shapes, const struct timeline *timeline,
                    const struct timeline_event *event)
{
    const struct timeline_kind *kind = &timeline->kinds[event->kind];
    const char *label = event->detail.label;
    struct profile_shape *shape;
    if (kind->place != TIMELINE_OP || event->absorbed)
        return ERR_OK;
    TRY(find(shapes, label != NULL ? label : kind->name, &event->detail,
             &shape));
    shape->count++;
    shape->ns += event->end_ns - event->begin_ns;
    shape->detail.flop += event->detail.flop;
    shape->detail.bytes += event->detail.bytes;
    return ERR_OK;
}

static int longest_first(const void *a, const void *b)
{
    int64_t x = ((const struct profile_shape *)a)->ns;
    int64_t y = ((const struct profile_shape *)b)->ns;
    return (x < y) - (x > y);
}

enum err profile_shapes(const struct timeline *timeline,
                        struct profile_shape out[PROFILE_SHAPES], int *count)
{
    enum err rc = ERR_OK;
    struct shapes shapes = { 0 };
    *count = 0;
    for (size_t i = 0; i < timeline->count; i++)
        TRY_OUT(add(&shapes, timeline, &timeline->events[i]));
    if (shapes.count > 0)
        qsort(shapes.list, shapes.count, sizeof *shapes.list, longest_first);
    while (*count < PROFILE_SHAPES && (size_t)*count < shapes.count) {
        out[*count] = shapes.list[*count];
        ++*count;
    }
out:
    map_free(&shapes.map);
    free(shapes.list);
    return rc;
}
