/* Finds a table of ops by name among those of this build that this machine can
 * run, and sets up threads. The ops are in the cpu_*.c and cuda_* files.
 *
 * The same files are compiled once for each kernel set, with the instructions
 * that it may use, and each makes a table; which one runs is found out here, at
 * run time, so that a program that was built once runs on every node of a
 * partition, on each as fast as that can. Any of them has the same bits
 * (DESIGN.md), so ranks on unlike processors may share a run, and a run may go
 * on elsewhere. */
#include "kernels/kernels.h"

#include <assert.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "src/base/clean.h"

#define TABLES_MAX 5
#define NAMES_BYTES 64

/* Those of this build are there. */
extern const struct kernels cpu_table_avx512, cpu_table_avx2, cpu_table_neon,
    cpu_table_generic;

/* A kernel set of this build. */
struct kernel_set {
    const struct kernels *table;
    const char *(*missing)(void); /* what this processor lacks, or NULL */
};

#define NEED(feature)                                                          \
    do {                                                                       \
        if (!__builtin_cpu_supports(feature))                                  \
            return feature;                                                    \
    } while (0)

#if defined(KERNEL_SET_avx512) || defined(KERNEL_SET_avx2)
static const char *avx2_missing(void)
{
    NEED("avx2");
    NEED("fma");
    NEED("bmi");
    NEED("bmi2");
    return NULL;
}
#endif

#if defined(KERNEL_SET_avx512)
/* AVX-512 comes in parts, of which these five were together from Skylake's
 * servers on; its code also has AVX2's instructions. */
static const char *avx512_missing(void)
{
    NEED("avx512f");
    NEED("avx512bw");
    NEED("avx512cd");
    NEED("avx512dq");
    NEED("avx512vl");
    return avx2_missing();
}
#endif

/* For kernel sets that every processor of their machine runs. */
static const char *nothing_missing(void)
{
    return NULL;
}

/* The CUDA kernels on the processor, which only tests are linked with: the
 * symbol is missing elsewhere. */
extern const struct kernels cuda_table_emulated __attribute__((weak));

#if defined(KERNELS_CUDA)
extern const struct kernels cuda_table;
enum err cuda_device_check(void);
#endif

/* Best first. */
static const struct kernel_set sets[] = {
#if defined(KERNEL_SET_avx512)
    { &cpu_table_avx512, avx512_missing },
#endif
#if defined(KERNEL_SET_avx2)
    { &cpu_table_avx2, avx2_missing },
#endif
#if defined(KERNEL_SET_neon)
    { &cpu_table_neon, nothing_missing },
#endif
#if defined(KERNEL_SET_generic)
    { &cpu_table_generic, nothing_missing },
#endif
};

#define SET_COUNT (sizeof(sets) / sizeof(*sets))
_Static_assert(SET_COUNT + 1 < TABLES_MAX, "a terminating NULL must fit");

static const struct kernels *tables[TABLES_MAX];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void tables_fill(void)
{
    size_t count = 0;
    for (size_t i = 0; i < SET_COUNT; i++)
        if (sets[i].missing() == NULL)
            tables[count++] = sets[i].table;
    if (&cuda_table_emulated != NULL)
        tables[count++] = &cuda_table_emulated;
    assert(count < TABLES_MAX && tables[count] == NULL);
}

const struct kernels *const *kernels_all(void)
{
    pthread_once(&tables_once, tables_fill);
    return tables;
}

/* "avx2, generic": the sets that run here. */
static const char *names_here(char names[NAMES_BYTES])
{
    names[0] = '\0';
    for (const struct kernels *const *t = kernels_all(); *t != NULL; t++)
        if (strcmp((*t)->backend, "cpu") == 0)
            clean_join(names, NAMES_BYTES, ", ", "%s", (*t)->kernel_set);
    return names;
}

static enum err find_cpu(const char *kernel_set, const struct kernels **out)
{
    char names[NAMES_BYTES];
    const struct kernels *const *all = kernels_all();
    if (strcmp(kernel_set, "auto") == 0 && all[0] != NULL) {
        *out = all[0];
        return ERR_OK;
    }
    for (size_t i = 0; i < SET_COUNT; i++) {
        if (strcmp(kernel_set, sets[i].table->kernel_set) != 0)
            continue;
        const char *missing = sets[i].missing();
        if (missing != NULL)
            return err_set(ERR_UNSUPPORTED,
                           "kernel set '%s': this processor lacks %s; use "
                           "auto or one of: %s",
                           kernel_set, missing, names_here(names));
        *out = sets[i].table;
        return ERR_OK;
    }
    return err_set(ERR_UNSUPPORTED,
                   "kernel set '%s' is not in this build; use auto or one of: "
                   "%s",
                   kernel_set, names_here(names));
}

static enum err find_cuda(const char *kernel_set, bool planned,
                          const struct kernels **out)
{
    if (&cuda_table_emulated != NULL &&
        strcmp(kernel_set, cuda_table_emulated.kernel_set) == 0) {
        *out = &cuda_table_emulated;
        return ERR_OK;
    }
#if defined(KERNELS_CUDA)
    TRY(planned ? ERR_OK : cuda_device_check());
    if (strcmp(kernel_set, "auto") != 0 &&
        strcmp(kernel_set, cuda_table.kernel_set) != 0)
        return err_set(ERR_UNSUPPORTED,
                       "kernel set '%s' is not in this build; backend 'cuda' "
                       "has %s",
                       kernel_set, cuda_table.kernel_set);
    *out = &cuda_table;
    return ERR_OK;
#else
    char names[NAMES_BYTES];
    (void)planned;
    return err_set(ERR_UNSUPPORTED,
                   "backend 'cuda': this build has no CUDA kernels; use cpu "
                   "(kernel sets here: %s)",
                   names_here(names));
#endif
}

/* Eight bits are a number for each element and a scale for each row. */
size_t kernels_packed_bytes(enum packing packing, int64_t rows, int64_t cols)
{
    assert(rows >= 0 && cols >= 0);
    size_t bytes = (size_t)(rows * cols) * sizeof(float);
    if (packing == PACKING_BF16)
        bytes /= 2;
    else if (packing == PACKING_INT8)
        bytes = (size_t)(rows * cols) + (size_t)rows * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

/* A panel is KERNEL_PANEL rows of a matrix, one element of each beside the
 * other, as a product with a few rows reads them; the last one is filled up. */
static int64_t panels_of(const struct panels *shape)
{
    assert(shape->groups >= 1 && shape->n >= 1 && shape->k >= 1);
    return shape->groups * ((shape->n + KERNEL_PANEL - 1) / KERNEL_PANEL);
}

size_t kernels_panels_elements_bytes(const struct panels *shape)
{
    static const size_t bytes[] = {
        [PANEL_F32] = 4, [PANEL_BF16] = 2, [PANEL_INT8] = 1
    };
    size_t panel = (size_t)shape->k * KERNEL_PANEL * bytes[shape->type];
    return (size_t)panels_of(shape) * ((panel + 63) / 64 * 64);
}

size_t kernels_panels_bytes(const struct panels *shape)
{
    assert(shape->type <= PANEL_INT8);
    size_t scales = shape->type == PANEL_INT8
                        ? (size_t)panels_of(shape) * KERNEL_PANEL * 4
                        : 0;
    return kernels_panels_elements_bytes(shape) + scales;
}

static enum err find(const char *backend, const char *kernel_set, bool planned,
                     const struct kernels **out)
{
    char names[NAMES_BYTES];
    *out = NULL;
    if (strcmp(backend, "cpu") == 0)
        return find_cpu(kernel_set, out);
    if (strcmp(backend, "cuda") == 0)
        return find_cuda(kernel_set, planned, out);
    return err_set(ERR_UNSUPPORTED,
                   "backend '%s' is unknown; use cpu (kernel sets here: %s)",
                   backend, names_here(names));
}

enum err kernels_find(const char *backend, const char *kernel_set,
                      const struct kernels **out)
{
    return find(backend, kernel_set, false, out);
}

enum err kernels_find_planned(const char *backend, const char *kernel_set,
                              const struct kernels **out)
{
    return find(backend, kernel_set, true, out);
}

size_t kernels_thread_space(void)
{
    pthread_attr_t attributes;
    size_t stack = 0, guard = 0;
    if (pthread_getattr_default_np(&attributes) != 0)
        return 0;
    pthread_attr_getstacksize(&attributes, &stack);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    return stack + guard;
}

static long processors_in_mask(void)
{
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) == 0)
        return CPU_COUNT(&mask);
    return sysconf(_SC_NPROCESSORS_ONLN); /* more than CPU_SETSIZE */
}

int kernels_threads_default(int shared_by)
{
    long threads = processors_in_mask() / (shared_by < 1 ? 1 : shared_by);
    const char *text = getenv("SLURM_CPUS_PER_TASK");
    long granted = text == NULL ? 0 : strtol(text, NULL, 10);
    if (granted > 0 && granted < threads)
        threads = granted;
    return threads < 1 ? 1 : (int)threads;
}

/* The processor number `index` of the mask. */
static void keep_to(const cpu_set_t *mask, int index)
{
    cpu_set_t one;
    assert(index >= 0 && index < CPU_COUNT(mask));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, mask) && index-- == 0) {
            CPU_SET(cpu, &one);
            (void)sched_setaffinity(0, sizeof one, &one);
            return;
        }
}

void kernels_spread_threads(int threads)
{
    cpu_set_t mask;
    if (threads < 2 || sched_getaffinity(0, sizeof mask, &mask) != 0 ||
        CPU_COUNT(&mask) != threads)
        return;
#pragma omp parallel num_threads(threads)
    if (omp_get_thread_num() > 0)
        keep_to(&mask, omp_get_thread_num());
}

void kernels_wait_passively(char **argv)
{
    char self[4096];
    const char *policy = getenv("OMP_WAIT_POLICY");
    bool chosen = policy != NULL && strcasecmp(policy, "passive") != 0;
    if (chosen || getenv("GOMP_SPINCOUNT") != NULL)
        return;
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length <= 0 || setenv("OMP_WAIT_POLICY", "passive", 0) != 0 ||
        setenv("GOMP_SPINCOUNT", KERNEL_SPINS, 0) != 0)
        return;
    self[length] = '\0';
    /* returns only if it fails: then threads spin, which is merely slower */
    (void)execv(self, argv);
}
