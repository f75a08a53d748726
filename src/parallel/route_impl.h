/* What the parts of a route share; nobody else includes this. */
#pragma once

#include "src/parallel/route.h"

struct route_plan {
    const struct topology *topology;
    int rank;
    int behind; /* the rank from which pieces of neighbours are numbered */
    int degree;
    struct route_options options;
    int levels, turn_levels;    /* all; of a microstep */
    int unit[ROUTE_LEVELS_MAX]; /* nodes of a unit */
    int first, end;             /* levels of now */
    int microstep;
    struct route_level level[ROUTE_LEVELS_MAX];
};

/* Leaves [begin, end) of the batch. */
struct route_interval {
    int64_t begin, end;
};

static inline int route_least(int a, int b)
{
    return a < b ? a : b;
}

/* The unit of a level that has this node: its first one, and how many. */
static inline int route_unit(const struct route_plan *route, int level,
                             int node, int *size)
{
    int begin = node - node % route->unit[level];
    *size = route_least(route->unit[level], route->topology->nodes - begin);
    return begin;
}

/* Ranks of a group, and its leaves. */
int route_group_ranks(const struct route_plan *route);
struct route_interval route_range(const struct route_plan *route, int group);

/* Room for the values of a level, and what they are now (route_adds.c). */
enum err route_adds_room(struct route_plan *route, int level);
void route_adds_fill(struct route_plan *route, int level);
