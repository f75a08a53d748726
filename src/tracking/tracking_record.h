/* What a run tells its trackers of one step: named numbers in a flat list, and
 * a few texts. Who measures something adds it here, once, by
 * tracking_list_add(), and it appears everywhere: in metrics.jsonl and in every
 * sink (tracking_sink.h).
 *
 * Names are words of letters, digits, "_", "-" and ".", with "/" between them,
 * the first of which is the group that trackers show together: train/loss,
 * throughput/device/mfu, eval/piqa, norm/grad/transformer.wte.weight. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

#define TRACKING_NAME_BYTES 192
#define TRACKING_TEXT_BYTES 65536 /* of one text; longer ones are cut */
#define TRACKING_TEXTS_MAX 64

struct tracking_map;

struct tracking_scalar {
    const char *name;
    double value; /* may be infinite or NaN */
};

struct tracking_text {
    const char *name;
    char *text; /* UTF-8 */
    size_t bytes;
};

/* Figures of one step; no name is there twice. */
struct tracking_record {
    int64_t step;
    double time_s; /* since 1970 */
    struct tracking_scalar *scalars;
    int count;
    struct tracking_text *texts;
    int text_count;
};

/* The record that is being made. Not for several threads. */
struct tracking_list;

enum err tracking_list_create(struct tracking_list **out);
void tracking_list_destroy(struct tracking_list *list);

/* Empties it, for another step. */
void tracking_list_clear(struct tracking_list *list);
/* The name is copied; what may not stand in one becomes "_". A name that is
 * there already gets this value. Allocates only for a name that is new to the
 * list. With a NULL list, as on ranks that report nothing, it does nothing. */
void tracking_list_add(struct tracking_list *list, const char *name,
                       double value);
/* The same for a text, which is copied. */
void tracking_list_text(struct tracking_list *list, const char *name,
                        const char *text, size_t bytes);
/* How much of all was left out for want of room, since the list was made. */
int64_t tracking_list_left_out(const struct tracking_list *list);

/* What is in the list, without step and time; lent until it changes. */
const struct tracking_record *
tracking_list_record(const struct tracking_list *list);
/* Where its names lie; lent. */
struct tracking_map *tracking_list_names(const struct tracking_list *list);

/* A name as records have it; true: it was one already. */
bool tracking_name_clean(const char *name, char out[TRACKING_NAME_BYTES]);

/* A table of names: each has a number, 0, 1, ... in the order in which they
 * came, and a place in memory that stays. Never shrinks. */
#define TRACKING_MAP_MAX 65536 /* names of a table */

enum err tracking_map_create(struct tracking_map **out);
/* One more owner, who calls destroy too. Only one thread adds names; others
 * may read those that were given to them. */
struct tracking_map *tracking_map_hold(struct tracking_map *map);
void tracking_map_destroy(struct tracking_map *map);

int tracking_map_count(const struct tracking_map *map);
/* The name's number, -1: it is not there. */
int tracking_map_find(const struct tracking_map *map, const char *name);
/* The same, adding it: ERR_DATA beyond TRACKING_MAP_MAX, ERR_MEMORY. */
enum err tracking_map_add(struct tracking_map *map, const char *name,
                          int *number);
const char *tracking_map_name(const struct tracking_map *map, int number);
