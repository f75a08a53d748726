/* What norms.c and norms_update.c share: how the flat space falls into
 * fragments, and where a rank's are. */
#pragma once

#include "src/base/exact.h"
#include "src/parallel/norms.h"
#include "src/parallel/replica_impl.h"

/* A place in the flat space, and the tensor that is there or follows. */
struct cursor {
    int64_t at, end;
    int param;
};

/* A fragment of one part; or of `width` columns, from that of number `part` on
 * when it begins with the first one, of which it has `sums`, and begins with
 * `shift`. */
struct fragment {
    int64_t begin, end, part;
    int64_t sums, width, shift;
};

/* Over the fragments of this rank's partitions, in the order of the flat space. */
struct walk {
    int block;
    bool open; /* the cursor is in it */
    struct cursor cursor;
};

struct norms {
    const struct replica *replica;
    bool units;
    int64_t *first;      /* [params.count + 1] */
    int64_t *columns;    /* [params.count] elements of one expert's transposed
                          matrix, whose columns are parts; 0: no such tensor */
    struct exact *exact; /* [params.count]; NULL: units, which have: */
    double *packed;      /* fragments, rank by rank */
    size_t *at;          /* [ranks + 1] where a rank's begin */
    size_t *next;        /* [ranks] */
    struct arena host;   /* a device's chunk */

    /* of an update: */
    struct replica_watch watch;
    struct arena stretch; /* before, and of a device after it */
    int64_t stretch_elements;
    struct walk walk;
    struct fragment fragment; /* of this rank's, where there is one left */
    bool left;
};

struct cursor norms_cursor(const struct params *params, int64_t begin,
                           int64_t end);
/* The next one of the interval; false: there is none. */
bool norms_fragment(const struct norms *norms, struct cursor *c,
                    struct fragment *out);

/* The sums of tensors begin as zeros. */
void norms_begin(struct norms *norms);
/* The other ranks' fragments or sums, and all added. Collective. */
enum err norms_gather(struct norms *norms, double *sums);
