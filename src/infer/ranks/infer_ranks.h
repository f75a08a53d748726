/* The engine (src/infer/infer.h) on the ranks of a job: one model's weights laid out
 * over them, and slots of each rank's own. What is computed has the same bits on any
 * number of ranks, wherever the weights lie. */
#pragma once

#include "src/comm/comm.h"
#include "src/comm/comm_window.h"
#include "src/formats/weights.h"
#include "src/infer/infer.h"
#include "src/parallel/spread.h"

/* The same on all ranks. */
struct infer_ranks_options {
    enum infer_weights weights;
    enum infer_backend backend;
    enum spread_way spread;
    int threads;
    int64_t sequences, positions, rows; /* of the engine; positions 0: none */
    bool forward; /* training's forward computes with the weights, too */
    int readers;  /* threads that read; all but one take some 80 MiB each */
    /* Asked while one reads; NULL: not. */
    bool (*interrupted)(void *arg);
    void *arg;
};

/* Zeros before it is opened. */
struct infer_ranks {
    struct comm *comm;
    struct infer_ranks_options options;
    struct kernel_ctx ctx; /* threads, stream */
    const struct kernels *kernels;
    struct params *params;
    enum spread_way way;
    struct spread *spread; /* NULL: the engine has panels of its own, or ... */
    struct comm_window *window; /* ... those that the node's ranks share */
    struct infer_room room;
    struct weights_readers *readers;
    struct infer *infer; /* NULL: none */
};

/* Reads the weights, and logs what they take and where they lie. Collective; fails on
 * all ranks or on none. ERR_MEMORY, before, says what could be chosen instead. Closed
 * by the caller in any case. */
enum err infer_ranks_open(struct weights *weights, struct comm *comm,
                          const struct infer_ranks_options *options,
                          struct infer_ranks *out);
/* Zeros are fine. Collective after infer_ranks_open(), but after ERR_COMM. */
void infer_ranks_close(struct infer_ranks *ranks);

/* Whether all ranks must walk through the model together. Then who has a call asks
 * before it whether anybody has one (*any), and who has none, or has failed, asks, too,
 * and lends its weights until nobody has. */
bool infer_ranks_together(const struct infer_ranks *ranks);
enum err infer_ranks_ask(struct infer_ranks *ranks, bool mine, bool *any);
/* Before infer_forward(), and after it with what it has returned: what counts. */
void infer_ranks_begin(struct infer_ranks *ranks);
enum err infer_ranks_end(struct infer_ranks *ranks, enum err rc);
/* Both, of a call of at most `rows` tokens; count 0: only lends. */
enum err infer_ranks_forward(struct infer_ranks *ranks,
                             const struct infer_tokens *list, int count);
/* What infer_forward() is given. Lent; NULL: nothing is needed. */
const struct param_access *infer_ranks_access(const struct infer_ranks *ranks);
