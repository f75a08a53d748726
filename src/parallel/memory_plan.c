/* Adds up what a rank will take: the arenas by the layout code of the model and
 * the replica, the rest by measured constants. It looks at no machine;
 * src/train/plan/train_memory.c compares the plan with one.
 *
 * What is laid out by the same code that a run uses cannot be forgotten here; a
 * new kind of memory that is not in an arena must be added, and tests/plan_memory.bats
 * compares processes with their plans. */
#include "src/parallel/memory_plan.h"

#include <assert.h>
#include <string.h>

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_stream.h"
#include "checkpoint/local/ckpt_xor.h"
#include "src/comm/comm_nccl_library.h"
#include "src/data/remote/store_write.h"
#include "src/data/set/loader.h"
#include "src/parallel/frozen.h"
#include "src/formats/weights.h"

#define MIB ((size_t)1 << 20)

/* Measured 2026-11-29 as the peak of a process minus the arenas of its model
 * (DESIGN.md). Program and libraries, heap: */
#define RUNTIME_BYTES (43 * MIB / 2)
/* ... the two buffers of a checkpoint's writer, of huge pages: */
#define WRITER_BYTES (2 * (size_t)CKPT_STREAM_BUFFER_BYTES)
#define HUGE_BYTES (2 * MIB)
/* ... for each tensor and moment what the program has of it, a save's manifest
 * and view among it, and what HDF5 keeps of each that the rank writes, up to a
 * bound of its own (measured 2026-11-28 with 72 to 7,002 tensors and two moments
 * each, in one file and in two): */
#define ITEM_BYTES (7 * (size_t)1024 / 2)
#define DATASET_BYTES (17 * (size_t)1024 / 4)
#define DATASETS_BYTES (27 * MIB)
/* ... OpenMPI, where there is more than one rank: */
#define MPI_BYTES (10 * MIB)
/* ... what each thread touches of its stack: */
#define THREAD_BYTES (MIB / 8)
/* ... and for each peer, requests of two communicators and OpenMPI's buffers
 * (the library itself is loaded in any case), and those of one more: */
#define PEER_BYTES (64 * (size_t)1024)
#define PEER_ROLL_BYTES (32 * (size_t)1024)

/* NCCL's buffers on a device, by its sources of versions 2.18 to 2.28, where
 * nothing in the environment says otherwise; nobody has measured it here. For
 * each peer on the node and each channel for messages, 4 MiB (NCCL_BUFFSIZE),
 * 0.5 (LL) and 4.7 (LL128), in two pieces of multiples of 2 MiB. */
#define NCCL_CONNECTION_BYTES (12 * MIB)
/* GPUs of a node. Channels between two of them, where they are all that there are, as
 * on machines with NVSwitch, are as many as NCCL is allowed to have
 * (comm_nccl_library_ctas()); among nodes it is 2 at most. */
#define NCCL_NODE 8
#define NCCL_CHANNELS_FAR 2
/* All peers on other nodes share a pool each way: 16 pieces of 128 KiB for each
 * channel. */
#define NCCL_POOLS_BYTES(channels) (2 * (channels)*16 * (MIB / 8))

/* A rank saves a part of the row of all tensors, or of each of them. */
static size_t item_bytes(const struct memory_plan_input *input,
                         const struct replica_bytes *replica)
{
    size_t items = replica->items / sizeof(struct ckpt_item), written = items;
    if (!replica->by_block)
        written /= (size_t)input->ranks;
    size_t datasets = written * DATASET_BYTES;
    return items * ITEM_BYTES +
           (datasets < DATASETS_BYTES ? datasets : DATASETS_BYTES);
}

/* Where blocks are cut for many ranks, any may have small parts alone. */
static size_t writer_bytes(const struct memory_plan_input *input,
                           const struct replica_bytes *replica)
{
    bool all = replica->by_block && input->ranks > 2;
    bool staged = input->stage || input->kernels->memory->device;
    size_t bytes = staged && !all ? replica->small : replica->staging;
    bytes = bytes / HUGE_BYTES * HUGE_BYTES + 2 * HUGE_BYTES;
    return bytes < WRITER_BYTES ? bytes : WRITER_BYTES;
}

static size_t nccl_bytes(const struct memory_plan_input *input)
{
    bool used = input->kernels->memory->device &&
                input->replica.exchange != EXCHANGE_STAGED;
    size_t near = NCCL_NODE - 1;
    size_t channels = (size_t)comm_nccl_library_ctas();
    if (!used || input->ranks == 1)
        return 0;
    if (input->ranks > NCCL_NODE)
        return near * NCCL_CHANNELS_FAR * NCCL_CONNECTION_BYTES +
               NCCL_POOLS_BYTES(channels);
    near = (size_t)input->ranks - 1;
    return near * channels * NCCL_CONNECTION_BYTES;
}

static size_t sum(const size_t *bytes, int count)
{
    size_t all = 0;
    for (int i = 0; i < count; i++)
        all = arena_sum(all, bytes[i]);
    return all;
}

/* Buffers of the host that make or read weights. */
static size_t filling(const struct memory_plan_input *input)
{
    const struct params *frozen = input->params->frozen;
    size_t bytes = input->reads ? WEIGHTS_READING_BYTES : 0;
    if (frozen != NULL)
        bytes += frozen_fill_plan(input->kernels, frozen, input->replica.dtype);
    return bytes;
}

static size_t beyond(size_t bytes, size_t other)
{
    return bytes > other ? bytes - other : 0;
}

/* The start, when weights are filled, moments and what is kept are zero, and nothing else has
 * been touched; `program` is what the process has then. */
static void add_start(const struct memory_plan_input *input, size_t program,
                      struct memory_plan *out)
{
    size_t opened = arena_sum(program, input->index_text);
    size_t begun = arena_sum(program, filling(input));
    if (input->kernels->memory->device) {
        begun = begun > opened ? begun : opened;
        out->reading = beyond(begun, out->host);
        out->host = arena_sum(out->host, out->reading);
        return;
    }
    begun =
        arena_sum(begun, sum((size_t[]){ out->weights, out->master,
                                         out->moments, out->kept, out->frozen },
                             5));
    begun = begun > opened ? begun : opened;
    out->reading = beyond(begun, out->total);
    out->total = arena_sum(out->total, out->reading);
}

enum err memory_plan(const struct memory_plan_input *input,
                     struct memory_plan *out)
{
    const struct model_options *options = &input->options;
    struct replica_options state = input->replica;
    struct replica_bytes replica;
    assert(input->ranks >= 1);
    state.adds_once = input->kernels->adds_once;
    state.node_ranks = input->node_ranks;
    state.uneven = input->uneven;
    state.near =
        (input->node_ranks == 0 || input->node_ranks >= input->ranks) &&
        !input->kernels->memory->device;
    *out = (struct memory_plan){ 0 };
    TRY(model_plan(input->config, input->kernels, options, &out->model));
    TRY(replica_plan(input->params, input->ranks, &state, &replica));
    out->weights = replica.weights;
    out->frozen = replica.frozen;
    out->shared = input->kernels->memory->device
                      ? 0
                      : replica.shared + replica.frozen + input->indexes;
    out->master = replica.master;
    out->moments = replica.moments;
    out->kept = replica.kept;
    out->gradients = replica.gradients;
    out->partial_sums = replica.partial_sums;
    out->once = replica.once;
    out->staging =
        input->stage || input->kernels->memory->device ? replica.staging : 0;
    out->staging *= 1 + input->kept; /* each saver has its own */
    if (input->kept)
        out->node_files =
            2 * ckpt_xor_folder_bytes(replica.staging, input->parity_nodes,
                                      input->parity_group) +
            (input->parity_nodes > 1 ? replica.staging : 0);
    out->parity = ckpt_xor_bytes(replica.staging, input->parity_nodes,
                                 input->parity_group);
    out->data = (size_t)(1 + input->prefetch) *
                    batch_bytes(options->samples, options->seq_len) +
                input->order + input->indexes;
    out->comm = replica.exchange;
    if (input->ranks > 1)
        out->comm += (size_t)input->ranks * (2 + input->kept) * PEER_BYTES / 2;
    if (input->replica.expert_degree > 1 || input->replica.sequence_degree > 1)
        out->comm += (size_t)input->ranks * PEER_ROLL_BYTES;
    size_t writer = writer_bytes(input, &replica);
    out->runtime = RUNTIME_BYTES + (1 + input->kept) * writer +
                   (input->ranks > 1 ? MPI_BYTES : 0) +
                   (size_t)options->threads * THREAD_BYTES + replica.sums +
                   input->norms +
                   (1 + input->kept) * item_bytes(input, &replica) +
                   /* a saver has two, and what is in files */
                   (1 + input->kept) * (7 * replica.items / 2);
    if (input->mirrors)
        out->runtime += STORE_PART_BYTES;
    size_t tensors = sum((size_t[]){ out->weights, out->master, out->moments,
                                     out->kept, out->frozen, out->gradients,
                                     out->partial_sums, out->model.total },
                         8);
    size_t others = sum((size_t[]){ out->staging, out->parity, out->node_files,
                                    out->data, out->comm, out->runtime },
                        6);
    bool device = input->kernels->memory->device;
    size_t nccl = nccl_bytes(input);
    out->host = device ? arena_sum(others, out->model.host) : 0;
    out->comm += nccl;
    out->total = arena_sum(tensors, device ? replica.exchange + nccl : others);
    add_start(input, input->order + input->indexes + out->runtime - writer,
              out);
    return ERR_OK;
}

void memory_plan_kinds(const struct memory_plan *plan,
                       struct memory_plan_kind kinds[MEMORY_PLAN_KINDS])
{
    const struct memory_plan_kind all[MEMORY_PLAN_KINDS] = {
        { "weights", plan->weights },
        { "master", plan->master },
        { "moments", plan->moments },
        { "algorithms", plan->kept },
        { "frozen", plan->frozen },
        { "gradients", plan->gradients },
        { "partial_sums", plan->partial_sums },
        { "activations", plan->model.saved },
        { "workspace", plan->model.workspace },
        { "logits", plan->model.logits },
        { "scratch", plan->model.scratch },
        { "staging", plan->staging },
        { "parity", plan->parity },
        { "node_files", plan->node_files },
        { "data", plan->data },
        { "comm", plan->comm },
        { "runtime", plan->runtime },
        { "reading", plan->reading },
    };
    memcpy(kinds, all, sizeof all);
}
