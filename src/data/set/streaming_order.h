/* The order of the Streaming library (mosaicml-streaming 0.13): which samples
 * are in each global batch of an epoch.
 *
 * An epoch takes samples of the streams (src/data/set/streaming_sample.h),
 * shuffles them (src/data/set/streaming_shuffle.h) and deals them to canonical
 * nodes: node c has the places from c * N / nodes to (c + 1) * N / nodes, short
 * ones repeat their last, and the order takes one of each node in turn. Batches
 * are
 *
 *   random      the next samples of that order;
 *   stratified  so many of each stream's own order, the same in every batch;
 *   per_stream  of one stream each, the streams' batches shuffled.
 *
 * Streaming promises the set of samples in a global batch for any topology, but
 * not their order within it. Here they are in the order of one node with one
 * rank, so they are the same on every topology. Only whole batches count: what
 * is left of an epoch is dropped, as LLM Foundry does (drop_last). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/data/set/streaming_sample.h"
#include "src/data/set/streaming_shuffle.h"

enum streaming_batching {
    BATCHING_RANDOM,
    BATCHING_STRATIFIED,
    BATCHING_PER_STREAM
};

struct streaming_order_spec {
    enum streaming_algorithm algorithm;
    enum streaming_batching batching;
    bool fixed;         /* sampling_method = fixed, not balanced */
    uint64_t seed;      /* shuffle_seed */
    int64_t nodes;      /* num_canonical_nodes, > 0 */
    int64_t block;      /* shuffle_block_size; 0: Streaming's default */
    int64_t epoch_size; /* 0: from the streams */
    int64_t batch;      /* samples of a global batch */
};

struct streaming_order;

/* `streams` has their shards; lent as long as the order lives. ERR_USAGE where
 * no batch can be made. */
enum err streaming_order_create(const struct streaming_order_spec *spec,
                                const struct stream *streams, int count,
                                struct streaming_order **out);
void streaming_order_destroy(struct streaming_order *order);

/* Whole batches of every epoch, > 0. */
int64_t streaming_order_batches(const struct streaming_order *order);
/* Taken while an epoch is made, beside the epoch itself. */
size_t streaming_order_bytes(const struct streaming_order *order);

/* out[batches * batch]: the samples of an epoch, numbered through the streams
 * from the beginning of the first. Takes time and memory of the epoch's
 * samples. Several threads may ask. */
enum err streaming_order_epoch(const struct streaming_order *order,
                               int64_t epoch, int64_t *out);
