/* tessera-bench: figures that do not depend on how fast the machine happens to
 * be today, ratios within one run from medians of what takes turns. What each
 * benchmark prints stands here; it is a program of the tests, not installed.
 *
 * Times are medians. peak_gflops is the rate of multiply-adds in registers by
 * the same threads (peak_flops of the op table), measured beside what is timed.
 * FLOPs are counted in bench_flops.h. Rounds start until --seconds are over.
 *
 * step: how near an optimizer step comes to what the processor can do
 *   step_ms      one step (forward, backward, norm, AdamW) as one leaf of the
 *                model that is chosen (bench_model.h)
 *   gflop        of all matrix products of a step
 *   ratio_peak   gflop / peak_gflops / step_ms: nothing that a library does
 *                well or badly is in it
 *   triad_gbps   bytes per second of a[i] = b[i] + s c[i], 12 per element
 *   elastic_ms, elastic_ratio  the step as one leaf for each sample, summed in
 *                order, and step_ms / elastic_ms
 *   faults       minor page faults per round of steps, after the first one
 *   dense_ms, moe_ratio  of an expert model only: the step of the dense model
 *                of equal active FLOPs, and dense_ms / step_ms
 *
 * step --parallel: what several ranks on a node cost. Two ranks of one thread
 * under mpirun take steps as training does, on a batch of 8 slots of one leaf
 * of 512 tokens. The model has the widths of the one that is chosen, but few
 * layers and a small vocabulary, so that a step takes about a second and is
 * mostly products. While one rank alone is measured, the other one sleeps.
 *   ranks_ratio     one_rank_ms / zero1_ms: one rank of two threads against two
 *                   ranks of one, under zero1
 *   zero3_ratio     ddp_ms / zero3_ms
 *   elastic_ratio_parallel  zero1_fast_ms / zero1_ms: the same but for
 *                   parallel.determinism
 *   elastic_ratio_one_rank  one_rank_fast_ms / one_rank_ms
 * All that is not "fast" must have the same loss in every step, bit by bit.
 *
 * Why the peak is measured in registers: a bound that uses what it judges hides
 * its faults. On a processor that OpenBLAS did not know, the step and the same
 * products by OpenBLAS both ran its slowest kernels, ratio 0.998 at a quarter of
 * the machine. 8 to 28 independent sums gave the same peak, so latency does not
 * enter. Another's step is in tests/interop/torch_step.sh.
 *
 * gemm: our products by shape. Those of the step of 125m and 10m on leaves of
 * 64, 256 and 2048 tokens, forward (NT), gradient of the input (NN) and of the
 * weights (TN) of every linear layer and the head; attention's, one head of 64
 * by as many queries and keys, without the mask; those of moe's experts, 8
 * groups of 64 rows; what takes more than 256 MiB is left out.
 *   shapes       for each ours_gflops, peak_gflops, peak_fraction of the two
 *   attention    forward and backward of 12 heads of 64 on one sequence of 2048
 *                tokens, the FLOPs of the causal half
 *   peak_fraction_min, _median  over the shapes
 * Operands stay where they are, so that small ones are in a cache.
 *
 * infer: how near the engine (src/infer) comes to what the machine allows, for
 * each FORM in which it holds weights (fp32, bf16, int8), on the shape of a
 * preset or of a MODEL, with weights that mean nothing.
 *   FORM_decode_tokens_per_s  tokens after each other of one text, from 64 on
 *   FORM_decode_gbps  bytes of weights that a token reads, by that time
 *   FORM_read_gbps    of a loop that reads as many bytes by the same threads,
 *                     measured before and after every run of tokens
 *   FORM_decode_ratio  of the two
 *   FORM_prompt_tokens_per_s  512 tokens at once, logits of the last one only
 *   FORM_prompt_gflops  of their products, attention's causal half included
 *   FORM_prompt_ratio  that over peak_gflops
 *
 * data: what reading ahead hides of files and of a slow server
 *   step_tokens_per_s   of a step of mpt-tiny on 32 x 128 tokens
 *   loader_100x_share   what a trainer that is a hundred times as fast waits for
 *                       its batches, of its time (its step is a sleep: nobody
 *                       else needs the processor); two batches read ahead
 *   loader_alone_tokens_per_s  of one thread that does nothing but read
 *   remote_share        as loader_100x_share, of a data set at an http://
 *                       address that answers every request 50 ms later, once
 *                       every shard was fetched
 *   remote_cold_share   the same while they are fetched
 *   remote_start_s      from the address to the first batch
 *
 * ckpt: how near saving and loading come to the bare disk. Two ranks under
 * mpirun hold the weights and both moments of mpt-125m (1.5 GB in all) as two
 * intervals of the flat parameter space, and take turns:
 *   persist_s      ckpt_save() with commit
 *   raw_write_s    the same bytes by the same ranks into one plain file each,
 *                  with fsync; the better median of O_DIRECT and page cache
 *   persist_ratio  raw_write_s / persist_s
 *   load_s         ckpt_load(), all CRCs verified
 *   raw_read_s     the same bytes out of those plain files; likewise
 *   load_ratio     raw_read_s / load_s; files are dropped from the page cache
 *                  before each of these
 *   stall_s        what training waits for when a save is staged, of 256 MiB;
 *                  copy_s is one memcpy of them, stall_ratio stall_s / copy_s
 *   index_10k_s    to save 10,000 tensors of 16 KiB per rank, less that for the
 *                  same bytes in 10 tensors
 *   buffers_bytes  by how much the larger process has grown at most while
 *                  saving and loading, beyond its state
 *
 * comm: the exchange of a training step between two ranks of a node against the
 * library's. Both have an array of floats and sum them, so that every rank has
 * the whole sum; S is 1MiB, 64MiB, 256MiB:
 *   allreduce_S_s        reduce_finish()
 *   mpi_S_s              MPI_Allreduce() of the same arrays; the better median
 *                        of in place and into another array
 *   allreduce_S_speedup  mpi_S_s / allreduce_S_s
 *   allreduce_S_gb_s     size / allreduce_S_s
 *   mpi_S_gb_s           size / mpi_S_s
 * The two sums must have the same bits.
 *
 * comm --plan NODESxRANKS: nothing is measured. What an exchange of the gradients of
 * a preset sends, by the plan of it (src/parallel/route.h), in a step of four
 * microsteps of a leaf a rank, partitions as with shard groups of a node. Of more than
 * 128 ranks every so many are looked at, and of blocks of a size one. Ways: levels, in the
 * node and then between the nodes; ranges, a range of leaves for each node, and
 * between the nodes once a step.
 *   between_bytes   that a rank sends to other nodes in a step, mean
 *   least_bytes     one value of each element from each node to each other,
 *                   `exchanges` times
 *   ratio           of the two; without levels it is the ranks of a node
 *   messages        of a rank and block, the most
 *   smallest_bytes, largest_bytes  of messages to other nodes
 *   memory_bytes    received and waiting, of a block that travels as a whole
 *   held_bytes      partial sums between microsteps; the most of a rank
 *
 * comm --nodes N: steps over N nodes of this machine, whose links have --mbit a second
 * (tests/bench/nodes; root), on two microbatches of short samples, so that they are
 * mostly exchange. hsdp is zero3 with a node as its shard group; zero1-flat and ddp-flat
 * exchange nothing before backward has ended; experts is zero3 of another model, whose experts
 * two neighbours share (on nodes of several ranks). The bytes are those of the nodes' interfaces.
 *   strategies    for each step_ms, between_bytes of a step, all nodes', least_bytes (one
 *                 value of each element from each node to each other: of gradients
 *                 once a step, with zero2 and zero3 once a microbatch; of weights
 *                 once a step, with zero3 as often as a block is gathered, but of
 *                 experts once), ratio
 *   internode_bytes_ratio  the largest of these ratios but those of the flat ones
 *   internode_time_ratio   zero3's step_ms over that of a flat exchange, in which every
 *                          rank sends to every other
 *   elastic_ratio_nodes    zero3's step_ms over that of zero3 "fast"
 */
#pragma once

#include <assert.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/err.h"

struct bench_options {
    const char
        *dir; /* a folder that was made for this, and is removed after it */
    int threads;
    double seconds;    /* stop starting rounds after this */
    const char *model; /* of step and gemm, NULL: 125m, all of gemm's; of infer
                          a preset's name or a MODEL, NULL: smollm2-135m */
    const char *kernel_set; /* of gemm; NULL: auto */
    int tokens;             /* of gemm; 0: all */
    int plan_nodes,
        plan_ranks; /* of comm --plan, ranks of a node; 0: measure */
    int nodes;      /* of this machine, of comm; 0: none */
    int node_ranks; /* of each of them */
    int mbit;       /* of each node's link, a second; 0: as it is */
    bool parallel;  /* step by two ranks */
    bool json;      /* the result, on stdout */
};

enum err bench_step(const struct bench_options *options, json_t **result);
enum err bench_gemm(const struct bench_options *options, json_t **result);
enum err bench_infer(const struct bench_options *options, json_t **result);
enum err bench_data(const struct bench_options *options, json_t **result);
enum err bench_comm(const struct bench_options *options, json_t **result);
/* Of the command line. */
enum err bench_plan_take(void *into, char *value);

/* One of two ranks, in a process of its own; *result is that of rank 0. */
enum err bench_ckpt_rank(const struct bench_options *options, json_t **result);
enum err bench_comm_rank(const struct bench_options *options, json_t **result);
enum err bench_parallel_rank(const struct bench_options *options,
                             json_t **result);
/* One of those of several nodes. */
enum err bench_nodes_rank(const struct bench_options *options, json_t **result);
