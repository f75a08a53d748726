/* Opens another BLAS library with dlopen, forces one of its kernels and
 * multiplies with it. It runs in the process of a peer (bench_peer_serve.c)
 * only. */
#include "src/cmd/bench_blas.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory.h"

#define THREAD_SPACE ((size_t)160 << 20)

/* The C interface of BLAS (Blackford et al. 2002), with integers of 32 bits. */
enum { CBLAS_ROW_MAJOR = 101, CBLAS_NO_TRANS = 111, CBLAS_TRANS = 112 };
typedef void cblas_sgemm_fn(int order, int transpose_a, int transpose_b, int m,
                            int n, int k, float alpha, const float *a, int lda,
                            const float *b, int ldb, float beta, float *c,
                            int ldc);

struct bench_blas {
    struct bench_blas_choice choice;
    void *library;
    cblas_sgemm_fn *sgemm;
};

const char *bench_blas_name(enum bench_blas_kind kind)
{
    static const char *const names[BLAS_KINDS] = { "openblas", "blis", "mkl" };
    return names[kind];
}

void bench_blas_settings(
    const struct bench_blas_choice *choice,
    struct bench_blas_setting settings[BENCH_BLAS_SETTINGS])
{
    const char *forced = choice->forced[0] != '\0' ? choice->forced : NULL;
    bool openblas = choice->kind == BLAS_OPENBLAS;
    /* OpenBLAS's threads begin when it is told their number; OpenMP's, and
     * those of MKL, stay awake for a moment and not for ever */
    const struct bench_blas_setting all[BENCH_BLAS_SETTINGS] = {
        { "OPENBLAS_NUM_THREADS", "1" },
        { "OPENBLAS_CORETYPE", openblas ? forced : NULL },
        { "OMP_WAIT_POLICY", "passive" },
        { "GOMP_SPINCOUNT", "100000" },
        { "KMP_BLOCKTIME", "5" },
        { "OMP_NUM_THREADS", NULL },
        { "BLIS_ARCH_TYPE", NULL },
        { "BLIS_NUM_THREADS", NULL },
        { "MKL_NUM_THREADS", NULL },
        { "MKL_DYNAMIC", "FALSE" },
        { "MKL_INTERFACE_LAYER", "LP64" },
        { "MKL_THREADING_LAYER", openblas ? NULL : forced },
    };
    memcpy(settings, all, sizeof all);
}

/* ISO C has no conversion of an object's address to a function's. */
static bool find(const struct bench_blas *blas, const char *name,
                 void *function)
{
    void *address = dlsym(blas->library, name);
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* The first name that opens; what the loader says of the first one otherwise,
 * which is the one that a distribution's package has. */
static enum err open_library(const struct bench_blas_choice *choice,
                             void **library)
{
    static const char *const usual[BLAS_KINDS][6] = {
        [BLAS_OPENBLAS] = { "libopenblas.so.0", "libopenblas.so" },
        [BLAS_BLIS] = { "libblis.so.4", "libblis.so.5", "libblis.so.3",
                        "libblis-mt.so", "libblis.so" },
        [BLAS_MKL] = { "libmkl_rt.so.2", "libmkl_rt.so.3", "libmkl_rt.so.1",
                       "libmkl_rt.so" },
    };
    const char *const given[] = { choice->file, NULL };
    const char *const *names =
        choice->file[0] != '\0' ? given : usual[choice->kind];
    char problem[256] = "";
    for (int i = 0; names[i] != NULL; i++) {
        /* its own functions come before those of the same names that this
         * program or another library has: each has a sgemm_ */
        *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (*library != NULL)
            return ERR_OK;
        const char *text = dlerror();
        if (problem[0] == '\0')
            snprintf(problem, sizeof problem, "%s", text);
    }
    return err_set(ERR_UNSUPPORTED, "%s", problem);
}

/* BLIS numbers its kernels, in another way in each version: generic ones are
 * the last. It reads the number at its first product. */
static enum err force_blis(const struct bench_blas *blas)
{
    const char *(*name_of)(int);
    const char *name = "";
    char number[16];
    if (!find(blas, "bli_arch_string", &name_of))
        return err_set(ERR_UNSUPPORTED, "it has no bli_arch_string");
    for (int i = 0; strcmp(name, "generic") != 0; i++) {
        name = name_of(i);
        if (strcmp(name, blas->choice.forced) != 0)
            continue;
        snprintf(number, sizeof number, "%d", i);
        return setenv("BLIS_ARCH_TYPE", number, 1) == 0
                   ? ERR_OK
                   : err_errno("BLIS_ARCH_TYPE");
    }
    return err_set(ERR_UNSUPPORTED, "it has no kernels '%s'",
                   blas->choice.forced);
}

static enum err set_threads(const struct bench_blas *blas)
{
    static const char *const names[BLAS_KINDS] = {
        [BLAS_OPENBLAS] = "openblas_set_num_threads",
        [BLAS_BLIS] = "bli_thread_set_num_threads",
        [BLAS_MKL] = "MKL_Set_Num_Threads",
    };
    const char *name = names[blas->choice.kind];
    void (*set)(int) = NULL;
    void (*set_wide)(int64_t) = NULL; /* BLIS's dim_t */
    bool found = blas->choice.kind == BLAS_BLIS ? find(blas, name, &set_wide)
                                                : find(blas, name, &set);
    if (!found)
        return err_set(ERR_UNSUPPORTED, "it has no %s", name);
    if (blas->choice.kind == BLAS_BLIS)
        set_wide(blas->choice.threads);
    else
        set(blas->choice.threads);
    return ERR_OK;
}

/* OpenBLAS asks for 128 MiB per thread, again and again for ever where it can't
 * have them; others fail in ways of their own. */
static enum err check_space(int threads)
{
    size_t space = memory_address_space();
    size_t wanted = (size_t)threads * THREAD_SPACE;
    if (space >= wanted)
        return ERR_OK;
    return err_set(ERR_MEMORY,
                   "ulimit -v or -d leaves %zu MiB of address space, and %d "
                   "threads of such a library may want %zu MiB",
                   space >> 20, threads, wanted >> 20);
}

enum err bench_blas_open(const struct bench_blas_choice *choice,
                         struct bench_blas **out)
{
    enum err rc = ERR_OK;
    struct bench_blas *blas = calloc(1, sizeof *blas);
    *out = NULL;
    if (blas == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    blas->choice = *choice;
    TRY_OUT(check_space(choice->threads));
    TRY_OUT(open_library(choice, &blas->library));
    if (!find(blas, "cblas_sgemm", &blas->sgemm)) {
        rc = err_set(ERR_UNSUPPORTED, "it has no cblas_sgemm");
        goto out;
    }
    if (choice->kind == BLAS_BLIS && choice->forced[0] != '\0')
        TRY_OUT(force_blis(blas));
    TRY_OUT(set_threads(blas));
    *out = blas;
    blas = NULL;
out:
    bench_blas_destroy(blas);
    return rc;
}

void bench_blas_destroy(struct bench_blas *blas)
{
    free(blas);
}

enum err bench_blas_multiply(void *arg, const struct bench_product *p,
                             const struct bench_operands *operands)
{
    const struct bench_blas *blas = arg;
    bool a_transposed = p->form == GEMM_TN;
    bool b_transposed = p->form == GEMM_NT;
    int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    for (int64_t g = 0; g < p->groups; g++)
        blas->sgemm(CBLAS_ROW_MAJOR,
                    a_transposed ? CBLAS_TRANS : CBLAS_NO_TRANS,
                    b_transposed ? CBLAS_TRANS : CBLAS_NO_TRANS, m, n, k, 1.0f,
                    operands->a + g * p->m * p->k, a_transposed ? m : k,
                    operands->b + g * p->n * p->k, b_transposed ? k : n, 0.0f,
                    operands->c + g * p->m * p->n, n);
    return ERR_OK;
}

/* "OpenBLAS 0.3.21 DYNAMIC_ARCH ... MAX_THREADS=64": the first two words. */
static void describe_openblas(const struct bench_blas *blas,
                              struct bench_blas_about *about)
{
    const char *(*config)(void);
    const char *(*core)(void);
    if (find(blas, "openblas_get_config", &config)) {
        const char *text = config();
        size_t name = strcspn(text, " ");
        size_t version = name + (text[name] == ' ');
        version += strcspn(text + version, " ");
        snprintf(about->version, sizeof about->version, "%.*s", (int)version,
                 text);
    }
    if (find(blas, "openblas_get_corename", &core))
        snprintf(about->core, sizeof about->core, "%s", core());
}

static void describe_blis(const struct bench_blas *blas,
                          struct bench_blas_about *about)
{
    const char *(*version)(void);
    const char *(*name_of)(int);
    int (*arch)(void);
    if (find(blas, "bli_info_get_version_str", &version))
        snprintf(about->version, sizeof about->version, "BLIS %s", version());
    if (find(blas, "bli_arch_query_id", &arch) &&
        find(blas, "bli_arch_string", &name_of))
        snprintf(about->core, sizeof about->core, "%s", name_of(arch()));
}

/* MKL has a library for each kind of processor, of which it loads one. */
static int find_mkl_kernels(struct dl_phdr_info *info, size_t bytes, void *arg)
{
    static const char *const kinds[] = { "libmkl_def", "libmkl_mc",
                                         "libmkl_avx" };
    struct bench_blas_about *about = arg;
    const char *name = strrchr(info->dlpi_name, '/');
    (void)bytes;
    for (size_t i = 0; name != NULL && i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(name + 1, kinds[i], strlen(kinds[i])) == 0) {
            name += 1 + strlen("libmkl_");
            snprintf(about->core, sizeof about->core, "%.*s",
                     (int)strcspn(name, "."), name);
            return 1;
        }
    return 0;
}

static void describe_mkl(const struct bench_blas *blas,
                         struct bench_blas_about *about)
{
    void (*version)(char *, int);
    char text[512] = "";
    if (find(blas, "MKL_Get_Version_String", &version)) {
        version(text, (int)sizeof text - 1);
        /* "... Version 2025.0 Product Build 20241009 for ... applications" */
        char *end = strstr(text, " for ");
        if (end != NULL)
            *end = '\0';
        snprintf(about->version, sizeof about->version, "%.*s",
                 (int)sizeof about->version - 1, text);
    }
    dl_iterate_phdr(find_mkl_kernels, about);
}

void bench_blas_describe(const struct bench_blas *blas,
                         struct bench_blas_about *about)
{
    Dl_info info;
    void *address;
    *about =
        (struct bench_blas_about){ .version = "unknown", .core = "unknown" };
    memcpy(&address, &blas->sgemm, sizeof address);
    if (dladdr(address, &info) != 0 && info.dli_fname != NULL)
        snprintf(about->file, sizeof about->file, "%s", info.dli_fname);
    if (blas->choice.kind == BLAS_OPENBLAS)
        describe_openblas(blas, about);
    else if (blas->choice.kind == BLAS_BLIS)
        describe_blis(blas, about);
    else
        describe_mkl(blas, about);
}
