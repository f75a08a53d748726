/* Copies of records on their way to several sinks: each is made once, and used
 * again when the last sink has it. The owner of a pool has a mutex; all calls
 * are made under it. */
#pragma once

#include "src/tracking/tracking_record.h"

struct tracking_packet {
    struct tracking_record record; /* owns its arrays, but no names */
    int64_t turn, turn_step; /* of the last begin before it, and its step */
    int workers;             /* that still need it */
    int room;                /* of record.scalars */
    struct tracking_packet *next; /* of those that nobody needs */
};

/* Zeros: an empty one. */
struct tracking_pool {
    struct tracking_packet *unused;
};

/* A copy that no worker has yet; NULL: out of memory. */
struct tracking_packet *
tracking_packet_make(struct tracking_pool *pool,
                     const struct tracking_record *record);
/* By one worker, which does not need it any more. */
void tracking_packet_give(struct tracking_pool *pool,
                          struct tracking_packet *packet);
/* The packets that were given back. */
void tracking_pool_free(struct tracking_pool *pool);
