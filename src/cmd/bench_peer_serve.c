/* The process of a peer: opens one BLAS library and answers the requests of
 * bench_peer.c on its stdin. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/cmd/bench_peer.h"
#include "src/cmd/bench_peer_wire.h"

#define SETTLE_STEP_S 0.002
#define SETTLE_BUSY 0.1 /* of a processor: threads still spin */
#define SETTLE_STEPS 150

static bool receive(void *data, size_t bytes)
{
    char *at = data;
    while (bytes > 0) {
        ssize_t n = read(STDIN_FILENO, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static double processor_s(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) != 0)
        return 0.0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Idle threads that wait actively would take the processors of whoever is
 * measured next. */
static void settle(void)
{
    for (int i = 0; i < SETTLE_STEPS; i++) {
        double used = processor_s();
        double begin = clock_now();
        clock_sleep(SETTLE_STEP_S);
        used = processor_s() - used;
        if (used < SETTLE_BUSY * (clock_now() - begin))
            return;
    }
}

static enum err answer(const struct bench_multiplier *multiplier,
                       const struct bench_peer_request *request,
                       struct bench_product *product,
                       struct bench_operands *operands, double *seconds)
{
    if (request->calls == 0) {
        *product = request->product;
        TRY(bench_product_prepare(product, multiplier, operands));
    } else {
        TRY(bench_product_time(product, multiplier, operands, request->calls,
                               seconds));
    }
    settle();
    return ERR_OK;
}

enum err bench_peer_serve(const struct bench_options *options, json_t **result)
{
    enum err rc = ERR_OK;
    struct bench_blas *blas = NULL;
    struct bench_blas_choice choice;
    struct bench_peer_request request;
    struct bench_product product = { .groups = 0 };
    struct bench_operands operands = { .a = NULL };
    struct stat status;
    (void)options;
    (void)result;
    if (fstat(STDIN_FILENO, &status) != 0 || !S_ISSOCK(status.st_mode))
        return err_set(ERR_USAGE, "gemm-peer is started by tessera-bench gemm "
                                  "and step only");
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return err_errno("prctl");
    if (!receive(&choice, sizeof choice))
        return ERR_OK;
    enum err opened = bench_blas_open(&choice, &blas);
    struct bench_multiplier multiplier = { bench_blas_multiply, blas };
    while (receive(&request, sizeof request)) {
        struct bench_peer_reply reply = { .rc = opened };
        if (opened == ERR_OK)
            reply.rc = answer(&multiplier, &request, &product, &operands,
                              &reply.seconds);
        if (reply.rc != ERR_OK)
            snprintf(reply.text, sizeof reply.text, "%s", err_text());
        if (blas != NULL)
            bench_blas_describe(blas, &reply.about);
        if (write(STDIN_FILENO, &reply, sizeof reply) !=
            (ssize_t)sizeof reply) {
            rc = err_errno("reply");
            break;
        }
    }
    bench_operands_destroy(&operands);
    bench_blas_destroy(blas);
    return rc;
}
