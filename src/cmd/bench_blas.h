/* Another BLAS than ours, opened at run time: a peer of our products. For a
 * process of its own (bench_peer.h), because such libraries choose their
 * kernels once, keep threads, and some end the program when they don't like it.
 *
 * Nothing is linked with or compiled against any of them. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/base/fsio.h"
#include "src/cmd/bench_product.h"

enum bench_blas_kind { BLAS_OPENBLAS, BLAS_BLIS, BLAS_MKL, BLAS_KINDS };

/* "openblas", "blis", "mkl" */
const char *bench_blas_name(enum bench_blas_kind kind);

/* Which library, and which of its kernels. */
struct bench_blas_choice {
    enum bench_blas_kind kind;
    int threads;
    char file[FSIO_PATH_MAX]; /* "": what the loader finds by its usual names */
    /* openblas, blis: the kernels' name there; mkl: its threads' library.
     * "": as the library decides. */
    char forced[32];
};

/* What was opened. */
struct bench_blas_about {
    char file[FSIO_PATH_MAX];
    char version[96];
    char core[48]; /* the kernels that it uses, in its own words */
};

struct bench_blas;

/* What a process must have in its environment when it starts, so that the
 * library takes choice->forced and nothing else decides in its place; a value
 * of NULL: must not be there. */
struct bench_blas_setting {
    const char *name;
    const char *value;
};
#define BENCH_BLAS_SETTINGS 12
void bench_blas_settings(
    const struct bench_blas_choice *choice,
    struct bench_blas_setting settings[BENCH_BLAS_SETTINGS]);

/* ERR_UNSUPPORTED says what is missing. The library stays open as long as the
 * process lives. */
enum err bench_blas_open(const struct bench_blas_choice *choice,
                         struct bench_blas **out);
void bench_blas_destroy(struct bench_blas *blas);

/* Groups are as many calls. arg: struct bench_blas. */
enum err bench_blas_multiply(void *arg, const struct bench_product *product,
                             const struct bench_operands *operands);

/* Known after a first product. */
void bench_blas_describe(const struct bench_blas *blas,
                         struct bench_blas_about *about);
