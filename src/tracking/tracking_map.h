/* A table of names: each has a number, 0, 1, ... in the order in which they
 * came, and a place in memory that stays. Never shrinks. */
#pragma once

#include "src/base/err.h"

#define TRACKING_MAP_MAX 65536 /* names of a table */

struct tracking_map;

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
