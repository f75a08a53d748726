/* How much memory a rank of a training run takes at most, by kind, without
 * making anything.
 *
 * Everything large lies in arenas; the plan counts them with the code that lays
 * them out (model_plan(), replica_plan()), so that plan and run can't differ.
 * What a process takes besides is a measured constant (memory_plan.c). Memory
 * that the ranks of a node share counts on each of them, as it does in a
 * process's resident set: were it not shared, each would need its own.
 *
 * Where tensors lie on a device, `total` is the device's share and `host` the
 * program's. What comes from other ranks counts on both sides: it may pass
 * through memory of the host. NCCL's buffers count on the device, as an
 * estimate from above: it takes them at its start, before what is counted here.
 *
 * Not counted: what a device's driver takes for itself; pages of data set
 * files, which the system takes back when memory is short, and node-local
 * checkpoints, which are files, but for those of checkpoint.keep_state. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "src/base/err.h"
#include "src/model/model.h"
#include "src/model/params.h"
#include "src/parallel/replica.h"

struct memory_plan_input {
    const struct model_config *config;
    const struct params *params; /* of the same */
    const struct kernels *kernels;
    struct model_options options; /* microbatch, sequence, threads, shares */
    struct replica_options replica;
    int ranks;
    int node_ranks;    /* of them on the node with most; 0: all */
    int uneven;        /* nodes, where not all have so many; else 0 */
    int prefetch;      /* microbatches of tokens beside the one at work */
    size_t order;      /* bytes of the sample order */
    size_t indexes;    /* and of indexes, which the ranks of a node share */
    size_t index_text; /* bytes of the longest index, while it is read */
    size_t norms;      /* and of sums of rows (norms.h) */
    bool stage;        /* asynchronous checkpoints: a copy of the state, which
                   a device needs in any case */
    bool
        mirrors; /* files to a store, in parts (src/data/remote/store_write.h) */
    bool reads;  /* weights at the start (src/formats/weights.h) */
    int parity_nodes; /* of node-local checkpoints, and of a group of them at */
    int parity_group; /* most (ckpt_xor.h); 0: there are none */
    bool
        kept; /* each step stays in the nodes' memory (checkpoint.keep_state) */
};

/* Bytes on the rank that needs most; ARENA_BYTES_MAX: that much or more. */
struct memory_plan {
    size_t weights;
    size_t master;  /* in fp32, of the part, where weights are bf16 */
    size_t moments; /* of the rank's own part */
    size_t kept;    /* beside them, by algorithms */
    size_t frozen;  /* weights that do not train */
    size_t gradients;
    size_t partial_sums; /* of slots, until they can be added */
    bool once;           /* of shards, until groups exchange them once a step */
    struct model_bytes model; /* activations and what computes them */
    size_t staging;           /* the copy that is being saved */
    size_t parity;            /* other nodes' shards on their way in a save */
    size_t node_files;        /* kept steps: two, and a lost node's shard */
    size_t data;    /* microbatches of tokens, the order of samples, indexes */
    size_t comm;    /* gradient exchange, the libraries' buffers */
    size_t runtime; /* program, libraries, threads, tables */
    size_t reading; /* what the start takes to read or make weights, as far as
                       it is more than what the steps take later */
    size_t
        shared; /* of weights, frozen ones too, and indexes, what the ranks of a node have together */
    size_t host;  /* beside tensors on a device: staging, parity, node_files,
                     data, comm, runtime, reading */
    size_t total; /* of the memory in which tensors lie: with 0 as host all */
};

/* ERR_MEMORY only when there is none for a table; ERR_USAGE by
 * replica_check(). */
enum err memory_plan(const struct memory_plan_input *input,
                     struct memory_plan *out);

/* The plan by kind, which together are the total and what the host has beside a
 * device. */
#define MEMORY_PLAN_KINDS 18
struct memory_plan_kind {
    const char *name;
    size_t bytes;
};
void memory_plan_kinds(const struct memory_plan *plan,
                       struct memory_plan_kind kinds[MEMORY_PLAN_KINDS]);
