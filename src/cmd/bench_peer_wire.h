/* What bench_peer.c and bench_peer_serve.c say to each other, over a socket
 * that is the peer's stdin: first a struct bench_blas_choice, then requests,
 * and a reply to each of them. Both ends are the same program. */
#pragma once

#include "src/cmd/bench_blas.h"

struct bench_peer_request {
    struct bench_product product; /* with calls = 0: prepare this one */
    int calls;
};

struct bench_peer_reply {
    enum err rc;
    char text[256]; /* of the error */
    double seconds;
    struct bench_blas_about about;
};
