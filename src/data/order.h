/* Which sample of which data set is at a position of a run's endless stream of
 * samples. An order is made of a specification and nothing else, so the same
 * one gives the same samples on every rank, topology and resume.
 *
 * A data set of the run is a stream of it. Canonical is our own order
 * (src/data/order_canonical.h), straight is 0, 1, 2, ... in every epoch, for
 * evaluation. */
#ifndef TESSERA_DATA_ORDER_H
#define TESSERA_DATA_ORDER_H

#include <stdint.h>

#include "src/base/err.h"

struct order;

enum order_kind { ORDER_CANONICAL, ORDER_STRAIGHT };

struct order_stream {
    int64_t samples; /* > 0 */
};

struct order_spec {
    enum order_kind kind;
    uint64_t seed;
    int count; /* of streams, > 0 */
    const struct order_stream *streams;
};

/* The specification need not outlive the call. */
enum err order_create(const struct order_spec *spec, struct order **out);
/* NULL is fine. */
void order_destroy(struct order *order);

/* How many streams it was made of. */
int order_streams(const struct order *order);
int64_t order_samples(const struct order *order, int stream);

/* The stream and the sample in it at position >= 0. Several threads may ask one
 * order, at any positions. */
enum err order_sample(struct order *order, int64_t position, int *stream,
                      int64_t *sample);

#endif
