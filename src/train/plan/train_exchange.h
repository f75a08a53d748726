/* What each rank exchanges with others in a step, as a list: of it costs of ways are made
 * (train_memory_cost.c) and a plan's time (src/plan/plan_time.c). A pure function. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct params;
struct train_memory_place;
struct train_memory_way;
struct train_settings;

/* A tensor whose parts, one of each rank, are summed or brought together, so often in a
 * step. In levels each node has all parts once; otherwise each rank sends to each other
 * what is that one's, a part of `bytes`. */
struct train_exchange {
    double bytes, times;
    int ranks, stride; /* each so many ranks from the next */
    bool flat;         /* not in levels */
};

/* Bytes that a rank sends each time, within its node and to other nodes, where a node has
 * node_ranks neighbours. */
struct train_exchange_sent {
    double near, far;
};
struct train_exchange_sent
train_exchange_sent(const struct train_exchange *exchange, int node_ranks);

/* Leaves that a rank computes in a step; without a batch a step is one of each. */
double train_exchange_leaves(const struct train_settings *settings,
                             int64_t microbatch, int ranks);

/* Weights, gradients, both of shards that several groups have, gradients and new weights of
 * experts that are apart, their rows, sequences' keys and values; `times` is 0 where there
 * is none. */
#define TRAIN_EXCHANGES 8
void train_exchanges(const struct train_settings *settings,
                     const struct train_memory_place *place,
                     const struct params *params,
                     const struct train_memory_way *way,
                     struct train_exchange out[TRAIN_EXCHANGES]);
