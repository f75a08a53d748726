/* Opens NCCL with dlopen, finds its functions and turns its codes into errors.
 * What travels by it is comm_tensors_nccl.c; the health check sums over the GPUs
 * of a node with it (healthcheck/health_probe_allreduce.c).
 *
 * A program that is linked with NCCL does not start where NCCL is missing, and
 * one program is to run on clusters with and without GPUs. Functions are found
 * by a table of names and places in a struct, and all of them must be there:
 * half an NCCL is none. */
#include "src/comm/comm_nccl_library.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/clean.h"
#include "src/base/process.h"

#define FILE_NAME "libnccl.so.2"
/* ncclCommInitRankConfig that does not block, and ncclCommFinalize. */
#define OLDEST 21400

#define MEMBER(type, name_, symbol_, ...)                                      \
    { .symbol = #symbol_, .offset = offsetof(struct comm_nccl_library, name_) },

static const struct process_symbol symbols[] = { COMM_NCCL_FUNCTIONS(MEMBER) };

enum err comm_nccl_library_open(struct comm_nccl_library *library)
{
    static const struct process_library what = {
        PROCESS_LIBRARY("NCCL: ", FILE_NAME, symbols),
        .missing = "install libnccl2 or add its folder to LD_LIBRARY_PATH",
        .old = "install version 2.14 or newer"
    };
    int version = 0;
    TRY(process_library_open(&what, library, sizeof *library));
    if (library->version(&version) != COMM_NCCL_SUCCESS || version < OLDEST) {
        comm_nccl_library_close(library);
        return err_set(ERR_UNSUPPORTED,
                       "NCCL: " FILE_NAME " is version %d; install 2.14 "
                       "(%d) or newer",
                       version, OLDEST);
    }
    return ERR_OK;
}

void comm_nccl_library_close(struct comm_nccl_library *library)
{
    process_library_close(library, sizeof *library);
}

/* With which a user, or a site, has others than a program asks for; to 64 of them. */
static const char *const limits[] = { "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
                                      "NCCL_MIN_NCHANNELS",
                                      "NCCL_MAX_NCHANNELS" };
#define LIMITS (sizeof limits / sizeof *limits)

static int larger_of(int most, const char *name)
{
    const char *text = getenv(name);
    long value = text != NULL ? strtol(text, NULL, 0) : 0;
    return value <= most ? most : value > 64 ? 64 : (int)value;
}

int comm_nccl_library_ctas(void)
{
    int most = COMM_NCCL_CTAS;
    for (size_t i = 0; i < LIMITS; i++)
        most = larger_of(most, limits[i]);
    return most;
}

void comm_nccl_library_ctas_why(char *text, size_t bytes)
{
    snprintf(text, bytes, "maxCTAs=%d: the memory plan counts buffers of %d",
             larger_of(COMM_NCCL_CTAS, "NCCL_MIN_CTAS"),
             comm_nccl_library_ctas());
    for (size_t i = 0; i < LIMITS; i++)
        if (getenv(limits[i]) != NULL)
            clean_join(text, bytes, ", ", "%s=%.16s", limits[i],
                       getenv(limits[i]));
}

void comm_nccl_library_config(const struct comm_nccl_library *library,
                              struct comm_nccl_config *out)
{
    int version = 0;
    (void)library->version(&version);
    bool older = version < COMM_NCCL_CONFIG_NEW;
    *out = (struct comm_nccl_config){
        .bytes = sizeof *out,
        .magic = COMM_NCCL_CONFIG_MAGIC,
        .version = older ? COMM_NCCL_CONFIG_OLD : COMM_NCCL_CONFIG_NEW,
        .cga_cluster = INT_MIN,
        .ctas_min = INT_MIN,
        .ctas_max =
            older ? INT_MIN : larger_of(COMM_NCCL_CTAS, "NCCL_MIN_CTAS"),
        .split_share = INT_MIN,
    };
    if (!older)
        return;
    char limit[16];
    snprintf(limit, sizeof limit, "%d", COMM_NCCL_CTAS);
    setenv("NCCL_MAX_NCHANNELS", limit, 0);
    out->bytes = offsetof(struct comm_nccl_config, ctas_min);
}

enum err comm_nccl_library_error(const struct comm_nccl_library *library,
                                 void *comm, int result, const char *what)
{
    enum err rc = ERR_INTERNAL;
    const char *more = NULL;
    if (result == COMM_NCCL_SUCCESS || result == COMM_NCCL_IN_PROGRESS)
        return ERR_OK;
    if (result == COMM_NCCL_CUDA_ERROR || result == COMM_NCCL_SYSTEM_ERROR)
        rc = ERR_IO;
    if (result == COMM_NCCL_INVALID_USAGE)
        rc = ERR_UNSUPPORTED;
    if (result == COMM_NCCL_REMOTE_ERROR)
        rc = ERR_COMM;
    more = library->last_error(comm);
    return err_set(rc, "NCCL: %s: %s%s%s; NCCL_DEBUG=WARN says more", what,
                   library->error_text(result),
                   more != NULL && more[0] != '\0' ? ": " : "",
                   more != NULL ? more : "");
}
