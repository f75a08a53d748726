/* Adds a timeline's ops by name and shape.
 *
 * A hash table of fixed size with open addresses: a model has some dozens of
 * shapes, a profile a quarter of a million events, and nothing is ever taken out.
 * When it is half full what is new is left out, which keeps every search short;
 * then there are more shapes than anybody would read a table of. A name is
 * compared as text, for equal names may come from two tables. */
#include "src/train/profile/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

/* Slots of a table of hashes, a power of two; when it is half full, shapes that
 * were not seen before are left out. */
#define SLOTS 4096

static bool same(const struct profile_shape *shape, const char *name,
                 const struct timeline_detail *detail)
{
    return strcmp(shape->name, name) == 0 &&
           memcmp(shape->detail.dim, detail->dim, sizeof detail->dim) == 0;
}

static size_t hash_of(const char *name, const struct timeline_detail *detail)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a's */
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int i = 0; i < TIMELINE_DIMS; i++)
        hash = (hash ^ (uint64_t)detail->dim[i]) * 1099511628211u;
    return (size_t)(hash >> 32);
}

/* NULL: there is no room for it. */
static struct profile_shape *find(struct profile_shape *slots, int *used,
                                  const char *name,
                                  const struct timeline_detail *detail)
{
    size_t at = hash_of(name, detail) % SLOTS;
    while (slots[at].name != NULL && !same(&slots[at], name, detail))
        at = (at + 1) % SLOTS;
    if (slots[at].name != NULL)
        return &slots[at];
    assert(*used >= 0 && *used <= SLOTS / 2); /* the search has an end */
    if (*used >= SLOTS / 2)
        return NULL;
    ++*used;
    slots[at].name = name;
    slots[at].detail = *detail;
    slots[at].detail.flop = slots[at].detail.bytes = 0.0;
    return &slots[at];
}

static void add(const struct timeline *timeline,
                const struct timeline_event *event, struct profile_shape *slots,
                int *used)
{
    const struct timeline_kind *kind = &timeline->kinds[event->kind];
    if (kind->place != TIMELINE_OP || event->absorbed)
        return;
    const char *label = event->detail.label;
    struct profile_shape *shape =
        find(slots, used, label != NULL ? label : kind->name, &event->detail);
    if (shape == NULL)
        return;
    shape->count++;
    shape->ns += event->end_ns - event->begin_ns;
    shape->detail.flop += event->detail.flop;
    shape->detail.bytes += event->detail.bytes;
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
    int used = 0;
    struct profile_shape *slots = NULL;
    *count = 0;
    TRY(new_zeroed(&slots, SLOTS));
    for (size_t i = 0; i < timeline->count; i++)
        add(timeline, &timeline->events[i], slots, &used);
    qsort(slots, SLOTS, sizeof *slots, longest_first);
    *count = used < PROFILE_SHAPES ? used : PROFILE_SHAPES;
    memcpy(out, slots, (size_t)*count * sizeof *out);
    free(slots);
    return ERR_OK;
}
