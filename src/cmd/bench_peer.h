/* Peers: other BLAS libraries (bench_blas.h), each in a process of its own that
 * this program starts from its own file, with an environment that forces the
 * library's kernels. A peer that hangs is killed, and what multiplies wrong is
 * not a peer. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "src/cmd/bench_blas.h"
#include "src/cmd/bench_product.h"
#include "src/cmd/bench_step.h"

struct bench_peer;

/* Starts the process and opens the library there. */
enum err bench_peer_start(const struct bench_blas_choice *choice,
                          struct bench_peer **out);
void bench_peer_stop(struct bench_peer *peer);

/* Makes the operands there, computes once and checks the result. After an error
 * the peer can only be stopped; ERR_NUMERIC: the result is wrong. */
enum err bench_peer_prepare(struct bench_peer *peer,
                            const struct bench_product *product);
/* Seconds of one of `calls` calls of what was prepared last. The peer's threads
 * sleep when this returns, or had 0.3 s for it. */
enum err bench_peer_time(struct bench_peer *peer, int calls, double *seconds);

/* Known after the first product. Lent. */
const struct bench_blas_about *bench_peer_about(const struct bench_peer *peer);

/* What became of one library with one choice of its kernels. */
struct bench_peer_note {
    struct bench_blas_choice choice;
    struct bench_blas_about about;
    double flops_per_s; /* of a product of 256 x 2304 x 768; 0: none */
    char problem[256];  /* why it is no peer; "": it is one */
    bool kept;          /* the fastest choice of its library */
};

#define BENCH_PEER_NOTES 16

struct bench_peers {
    struct bench_peer *best[BLAS_KINDS]; /* NULL: that library is not here */
    struct bench_peer_note notes[BENCH_PEER_NOTES];
    int note_count;
};

/* Opens every library that is here with every choice of kernels that this
 * processor runs, times them in turns and keeps the fastest of each library.
 * Having no peer at all is no error; `mkl` that does not exist is ERR_USAGE. */
enum err bench_peers_open(const struct bench_options *options,
                          struct bench_peers *out);
void bench_peers_close(struct bench_peers *peers);

/* The fastest of all that are left, NULL if there is none. */
const struct bench_peer_note *
bench_peers_fastest(const struct bench_peers *peers);

/* Stops a peer that has failed, and notes the error's text. */
void bench_peers_drop(struct bench_peers *peers, enum bench_blas_kind kind);

/* [{library, forced, file, version, core, gflops, kept, problem}, ...] */
json_t *bench_peers_report(const struct bench_peers *peers);

/* "OpenBLAS 0.3.21, SkylakeX kernels, FILE" */
void bench_peers_describe(const struct bench_peer_note *note, char *text,
                          size_t bytes);

/* tessera-bench gemm-peer: the peer's process. */
enum err bench_peer_serve(const struct bench_options *options, json_t **result);
