/* NCCL's interface as declared by us against its own header, where that is
 * installed; its errors; the library itself, where it is installed. */
#include "src/comm/comm_nccl_library.h"

#include <limits.h>

#include "tests/tap.h"

#if __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)

SAME(COMM_NCCL_SUCCESS, ncclSuccess);
SAME(COMM_NCCL_CUDA_ERROR, ncclUnhandledCudaError);
SAME(COMM_NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(COMM_NCCL_INTERNAL_ERROR, ncclInternalError);
SAME(COMM_NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(COMM_NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(COMM_NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(COMM_NCCL_IN_PROGRESS, ncclInProgress);
SAME(COMM_NCCL_BYTE, ncclInt8);
SAME(COMM_NCCL_FLOAT, ncclFloat32);
SAME(COMM_NCCL_SUM, ncclSum);
SAME(sizeof(struct comm_nccl_id), sizeof(ncclUniqueId));
SAME(sizeof(ncclResult_t), sizeof(int));
SAME(sizeof(ncclDataType_t), sizeof(int));
SAME(offsetof(struct comm_nccl_config, bytes), offsetof(ncclConfig_t, size));
SAME(offsetof(struct comm_nccl_config, magic), offsetof(ncclConfig_t, magic));
SAME(offsetof(struct comm_nccl_config, version),
     offsetof(ncclConfig_t, version));
SAME(offsetof(struct comm_nccl_config, blocking),
     offsetof(ncclConfig_t, blocking));
SAME(offsetof(struct comm_nccl_config, cga_cluster),
     offsetof(ncclConfig_t, cgaClusterSize));
SAME(offsetof(struct comm_nccl_config, ctas_min),
     offsetof(ncclConfig_t, minCTAs));
SAME(offsetof(struct comm_nccl_config, ctas_max),
     offsetof(ncclConfig_t, maxCTAs));
SAME(offsetof(struct comm_nccl_config, net_name),
     offsetof(ncclConfig_t, netName));
SAME(offsetof(struct comm_nccl_config, split_share),
     offsetof(ncclConfig_t, splitShare));

/* Their prototypes, with our types in place of theirs. */
#define IS(symbol, type)                                                       \
    _Static_assert(_Generic(&symbol, type : 1, default : 0), #symbol)

IS(ncclGetVersion, ncclResult_t (*)(int *));
IS(ncclGetUniqueId, ncclResult_t (*)(ncclUniqueId *));
IS(ncclCommInitRankConfig,
   ncclResult_t (*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *));
IS(ncclCommInitAll, ncclResult_t (*)(ncclComm_t *, int, const int *));
IS(ncclCommFinalize, ncclResult_t (*)(ncclComm_t));
IS(ncclCommDestroy, ncclResult_t (*)(ncclComm_t));
IS(ncclCommAbort, ncclResult_t (*)(ncclComm_t));
IS(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t *));
IS(ncclGetErrorString, const char *(*)(ncclResult_t));
IS(ncclGetLastError, const char *(*)(ncclComm_t));
IS(ncclGroupStart, ncclResult_t (*)(void));
IS(ncclGroupEnd, ncclResult_t (*)(void));
IS(ncclSend, ncclResult_t (*)(const void *, size_t, ncclDataType_t, int,
                              ncclComm_t, cudaStream_t));
IS(ncclRecv, ncclResult_t (*)(void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t));

IS(ncclAllReduce, ncclResult_t (*)(const void *, void *, size_t, ncclDataType_t,
                                   ncclRedOp_t, ncclComm_t, cudaStream_t));

static void test_header(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    tap_ok(config.magic == COMM_NCCL_CONFIG_MAGIC &&
               config.cgaClusterSize == INT_MIN,
           "the configuration is marked as nccl.h does");
}
#else
static void test_header(void)
{
    tap_skip("there is no nccl.h here");
}
#endif

static int fake_version;

static int version_of(int *version)
{
    *version = fake_version;
    return COMM_NCCL_SUCCESS;
}

/* 2.14 knew 24 bytes, and has its limit by the environment. */
static void test_config(void)
{
    static const struct comm_nccl_library library = { .version = version_of };
    struct comm_nccl_config config;
    unsetenv("NCCL_MAX_NCHANNELS");
    fake_version = 21700;
    comm_nccl_library_config(&library, &config);
    tap_ok(config.bytes == sizeof config && config.version == 21700 &&
               config.ctas_max == COMM_NCCL_CTAS && config.blocking == 0 &&
               getenv("NCCL_MAX_NCHANNELS") == NULL,
           "2.17 is asked for %d CTAs at most", COMM_NCCL_CTAS);
    fake_version = 21601;
    comm_nccl_library_config(&library, &config);
    const char *limit = getenv("NCCL_MAX_NCHANNELS");
    tap_ok(config.bytes == 24 && config.version == 21400 &&
               config.cga_cluster == INT_MIN && limit != NULL &&
               atoi(limit) == COMM_NCCL_CTAS,
           "2.16 by its environment, with 2.14's configuration");
    setenv("NCCL_MAX_NCHANNELS", "32", 1);
    comm_nccl_library_config(&library, &config);
    tap_is_str(getenv("NCCL_MAX_NCHANNELS"), "32",
               "unless the user has said otherwise");
    unsetenv("NCCL_MAX_NCHANNELS");
    char why[256];
    fake_version = 21700;
    setenv("NCCL_MIN_CTAS", "24", 1);
    setenv("NCCL_MAX_CTAS", "8", 1);
    setenv("NCCL_MIN_NCHANNELS", "9999", 1);
    comm_nccl_library_config(&library, &config);
    comm_nccl_library_ctas_why(why, sizeof why);
    tap_ok(config.ctas_max == 24 && comm_nccl_library_ctas() == 64,
           "a site's least is asked for, its most is planned");
    tap_is_str(why,
               "maxCTAs=24: the memory plan counts buffers of 64, "
               "NCCL_MIN_CTAS=24, NCCL_MAX_CTAS=8, NCCL_MIN_NCHANNELS=9999",
               "and told");
    unsetenv("NCCL_MIN_CTAS");
    unsetenv("NCCL_MIN_NCHANNELS");
    tap_is_int(comm_nccl_library_ctas(), COMM_NCCL_CTAS,
               "what has fewer changes no plan");
    unsetenv("NCCL_MAX_CTAS");
}

static const char *error_text(int result)
{
    return result == COMM_NCCL_REMOTE_ERROR ? "remote" : "other";
}

static const char *last_error(void *comm)
{
    return comm;
}

static void test_errors(void)
{
    static const struct comm_nccl_library library = { .error_text = error_text,
                                                      .last_error =
                                                          last_error };
    static const struct {
        int result;
        enum err rc;
        char last[16];
        const char *text;
    } cases[] = {
        { COMM_NCCL_SUCCESS, ERR_OK, "", NULL },
        { COMM_NCCL_IN_PROGRESS, ERR_OK, "", NULL },
        { COMM_NCCL_CUDA_ERROR, ERR_IO, "", "NCCL: sending: other; NCCL_" },
        { COMM_NCCL_SYSTEM_ERROR, ERR_IO, "", "NCCL: sending: other; NCCL_" },
        { COMM_NCCL_INTERNAL_ERROR, ERR_INTERNAL, "", "NCCL: sending: other;" },
        { COMM_NCCL_INVALID_USAGE, ERR_UNSUPPORTED, "Duplicate GPU",
          "NCCL: sending: other: Duplicate GPU; NCCL_" },
        { COMM_NCCL_REMOTE_ERROR, ERR_COMM, "", "NCCL: sending: remote; NCCL" },
        { 99, ERR_INTERNAL, "", "NCCL: sending: other; NCCL_" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum err rc = comm_nccl_library_error(&library, (char *)cases[i].last,
                                              cases[i].result, "sending");
        tap_ok(rc == cases[i].rc &&
                   (rc == ERR_OK || strncmp(err_text(), cases[i].text,
                                            strlen(cases[i].text)) == 0),
               "result %d is %s", cases[i].result, err_name(rc));
    }
}

static void test_library(void)
{
    struct comm_nccl_library library;
    struct comm_nccl_id id = { { 0 } };
    int version = 0;
    enum err rc = comm_nccl_library_open(&library);
    if (rc != ERR_OK) {
        tap_ok(rc == ERR_UNSUPPORTED && library.opened == NULL, "%s",
               err_text());
        tap_skip("NCCL is not here");
        return;
    }
    bool told = library.version(&version) == COMM_NCCL_SUCCESS;
    tap_ok(told && version >= 21400, "NCCL is version %d", version);
    tap_ok(library.unique_id(&id) == COMM_NCCL_SUCCESS &&
               memcmp(&id, &(struct comm_nccl_id){ { 0 } }, sizeof id) != 0,
           "and makes an id");
    comm_nccl_library_close(&library);
    tap_ok(library.opened == NULL && library.send == NULL, "closed");
    int again = 0;
    for (; again < 20; again++) {
        if (comm_nccl_library_open(&library) != ERR_OK ||
            library.unique_id(&id) != COMM_NCCL_SUCCESS)
            break;
        comm_nccl_library_close(&library);
    }
    tap_ok(again == 20, "its threads outlive being closed %d times", again);
}

int main(void)
{
    test_header();
    test_config();
    test_errors();
    test_library();
    return tap_done();
}
