/* The plan of an exchange of gradients in levels, as data: which messages a rank
 * sends and receives, of which pieces of a block, and what it adds to what. Nothing
 * is sent here, and nothing asks a communicator: a rank makes its own route by
 * itself, of a machine that is there or only described (topology.h).
 *
 * A piece is the partition of a block that one rank owns (owner.h), and is named by
 * that rank. Units of ranks lie in each other: a rank, a node, and by `radix` more
 * and more nodes. At each level the members of a unit, which are the units of the level
 * below, bring together what they have of a piece, on one rank of the unit:
 *
 *     level 0   the rank      its own leaves are added, nothing is sent
 *     level 1   its node      each rank gets its own pieces and those of N - 1 others
 *     level 2   all nodes     the owner gets its piece, from a rank of each node
 *     or, of more than ROUTE_NODES nodes,
 *     level 2   of R nodes    each rank gets its own pieces and those of some others
 *     level 3   all nodes     the owner gets its piece, from a rank of each R nodes
 *
 * So (N - 1) / N of a block goes between N nodes, by few peers. What is added on the
 * way is what the tree of all leaves adds as well (tree.h): a unit has
 * neighbouring leaves, and is left with the complete subtrees that they have, so
 * that the sum has the bits of a sum in one place. It is one value where a unit's leaves
 * are a power of two. Leaves of a chain are added one after the other; those whose
 * chain begins in another unit travel as they are.
 *
 * Leaves are dealt in turn to all ranks (scatter.h), and all levels are a
 * microstep's. Or each group of nodes has a range of the batch's leaves, dealt in
 * turn to its ranks: then the levels within a group are a microstep's, what they leave
 * is held by the group, spread over it, and the levels beyond are once a step.
 *
 * A route takes a look at every rank a level, and holds what its own does: its messages,
 * and a list of values for each member of its units. Gathers of weights go the same ways
 * back up to 64 nodes; beyond, to every node by itself. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/comm/topology.h"
#include "src/parallel/owner.h"

#define ROUTE_LEVELS_MAX 20
#define ROUTE_NODES 64 /* that may be one level, where the radix is not given */

struct route_options {
    int64_t leaves; /* of a batch */
    int chain;      /* leaves that are one leaf of the tree; divides `leaves` */
    int own_leaves; /* of a rank in a microstep, neighbours */
    int group_nodes; /* nodes of a group with a range of its own; 0: all nodes */
    int radix; /* nodes, or groups, of a level: a power of two; 0: chosen */
    int degree; /* of shard groups, where pieces of a place in them lie together, and not
                 * neighbours' (owner.h); 0, or nodes unlike: neighbours' */
};

/* Pieces that follow each other: see route_piece(). */
struct route_pieces {
    int peer;         /* whose message they are in */
    int first, count; /* numbers */
};

struct route_message {
    int peer;
    int lists, list; /* how many lists of pieces, from which on */
    int values;      /* of each piece, now; 0: nothing is sent */
    int at; /* what is received: which of the inputs is the first of them */
};

/* Value `from` is added to value `into`, on the right. */
struct route_add {
    int into, from;
};

struct route_messages {
    struct route_message *list;
    int count;
    struct route_pieces *pieces; /* of all of them */
    int lists, room;
};

/* What a rank does at a level, now. The inputs of every piece that it brings
 * together are numbered alike, in the order of leaves: what it holds of it, then what each
 * member has. Those that are left after the adds, in order, are what it sends at the
 * next level, keeps, or at last owns. Arrays belong to the route. */
struct route_level {
    struct route_messages sends, receives;
    struct route_messages brought; /* lists of what it brings together ... */
    struct route_messages here;    /* ... with own inputs of all of it */
    int members;                   /* of its unit, without its own */
    int inputs;
    int held;        /* inputs that it held before */
    int own_at, own; /* inputs that it has itself from the level below; at
                          * level 0 its leaves */
    int add_count;
    struct route_add *adds;
    int left_count;
    int *left;
};

struct route_plan;

/* ERR_USAGE in words where groups do not go with the nodes. The topology is
 * borrowed. */
enum err route_create(const struct topology *topology, int rank,
                      const struct route_options *options,
                      struct route_plan **out);
void route_destroy(struct route_plan *route);

/* How often all ranks have leaves at the same time. */
int route_microsteps(const struct route_plan *route);
/* This rank's first leaf of the microstep now; how many they are says level 0. */
int64_t route_first_leaf(const struct route_plan *route);

/* Levels are those of this microstep now, any one; or, with
 * route_microsteps(), those at the end of a step, after which an owner has one value
 * of each of its pieces. False: there are none of the kind. */
bool route_microstep(struct route_plan *route, int microstep);
/* Which levels there are now: [first, end). */
void route_levels(const struct route_plan *route, int *first, int *end);
/* One of these levels, or of those at the end of a step, which are always known. */
const struct route_level *route_level(const struct route_plan *route,
                                      int level);

/* Levels of a microstep, from 0 on, and of all. */
int route_turn_levels(const struct route_plan *route);
int route_all_levels(const struct route_plan *route);
/* The first rank of the last unit of the highest level, to which most pieces come. */
int route_last_unit(const struct route_plan *route);
/* The most values of a piece that anybody sends at each level in any microstep or at the
 * end: most[ROUTE_LEVELS_MAX], of which 0 is none. False: nodes would send more in a microstep
 * than three quarters of what there are leaves, or it takes too long to look. The same on all ranks;
 * route_microstep() comes after it. */
bool route_saves(struct route_plan *route, int most[ROUTE_LEVELS_MAX]);

/* The owner of piece `i` of a list. */
int route_piece(const struct route_plan *route, const struct route_pieces *list,
                int i);

/* What the levels of now send and need of a block. */
struct route_traffic {
    int messages;              /* sent */
    int64_t sent, between;     /* bytes, and of them to other nodes */
    int64_t smallest, largest; /* bytes of messages to other nodes; 0: none */
    int64_t memory; /* bytes at most, beside own gradients and what is held */
    int64_t held;   /* bytes after these levels */
};
/* Adds it up over calls; zeros to begin with. Of memory and largest the most. */
void route_traffic(const struct route_plan *route, const struct owner *owner,
                   int block, struct route_traffic *out);
