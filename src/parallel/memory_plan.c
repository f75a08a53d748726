#include "src/parallel/memory_plan.h"

#include <assert.h>

#include "src/data/loader.h"

#define MIB ((size_t)1 << 20)

/* Measured 2026-11-21 as the peak of a process minus the arenas of its model
 * (src/DESIGN.md). Program and libraries, heap, the writer's two buffers of a
 * checkpoint: */
#define RUNTIME_BYTES (36 * MIB)
/* ... OpenBLAS's buffer and the stack of each thread: */
#define THREAD_BYTES MIB
/* ... and for each peer, requests of two communicators and OpenMPI's buffers
 * (the library itself is loaded in any case), and those of one more: */
#define PEER_BYTES (64 * (size_t)1024)
#define PEER_ROLL_BYTES (32 * (size_t)1024)

enum err memory_plan(const struct memory_plan_input *input,
                     struct memory_plan *out)
{
    enum err rc = ERR_OK;
    const struct model_options *options = &input->options;
    struct replica_bytes replica;
    assert(input->ranks >= 1);
    *out = (struct memory_plan){ 0 };
    TRY(model_plan(input->config, input->kernels, options, &out->model));
    TRY(replica_plan(input->params, input->ranks, &input->replica, &replica));
    out->weights = replica.weights;
    out->master = replica.master;
    out->moments = replica.moments;
    out->gradients = replica.gradients;
    out->partial_sums = replica.partial_sums;
    out->staging =
        input->stage || input->kernels->memory->device ? replica.staging : 0;
    out->data = batch_bytes(options->samples, options->seq_len);
    out->comm = replica.exchange;
    if (input->ranks > 1)
        out->comm += (size_t)input->ranks * PEER_BYTES;
    if (input->replica.expert_degree > 1 || input->replica.sequence_degree > 1)
        out->comm += (size_t)input->ranks * PEER_ROLL_BYTES;
    out->runtime = RUNTIME_BYTES + (size_t)options->threads * THREAD_BYTES +
                   replica.sums + 3 * replica.items; /* the saver has two */
    size_t tensors = out->weights + out->master + out->moments +
                     out->gradients + out->partial_sums + out->model.total;
    size_t others = out->staging + out->data + out->comm + out->runtime;
    bool device = input->kernels->memory->device;
    out->host = device ? others + out->model.host : 0;
    out->total = device ? tensors + replica.exchange : tensors + others;
out:
    return rc;
}
