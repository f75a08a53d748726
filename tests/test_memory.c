/* What a process may still take: on recorded nodes, in cgroups of both versions
 * one in another, and by its own limits. */
#include "src/base/memory.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "src/base/arena.h"
#include "tests/tap.h"

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

static void test_machines(void)
{
    static const struct {
        const char *root;
        size_t bytes;
    } cases[] = {
        { "tests/machines/busy", 512 * MIB },
        { "tests/machines/slurm-cgroup2", 4 * GIB + 768 * MIB },
        { "tests/machines/slurm-cgroup1", 4 * GIB },
        { "tests/machines/container", GIB + 512 * MIB },
        { "tests/machines/cgroup-full", 0 },
        { "tests/machines/none", SIZE_MAX },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_is_int((long long)memory_available(cases[i].root),
                   (long long)cases[i].bytes, "%s", cases[i].root);
    size_t here = memory_available("");
    tap_ok(here > MIB && here < SIZE_MAX, "this machine has some: %zu MiB",
           here >> 20);
}

/* In a process of its own, for a limit can't be raised again. */
static bool within(__rlimit_resource_t resource, bool (*test)(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        size_t bytes = GIB;
        struct rlimit limit = { bytes, bytes };
        _exit(setrlimit(resource, &limit) == 0 && test() ? 0 : 1);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static bool is_limited(void)
{
    size_t before = memory_address_space();
    void *map = mmap(NULL, 100 * MIB, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t after = memory_address_space();
    return map != MAP_FAILED && before < GIB && before - after >= 100 * MIB &&
           before - after < 101 * MIB;
}

static void *allocate(void *out)
{
    void **block = out;
    *block = malloc(100);
    return NULL;
}

/* A thread's own heap would take 64 MiB. */
static bool is_shared(void)
{
    pthread_t thread;
    void *block = NULL;
    memory_share_heap();
    size_t before = memory_address_space();
    bool ran = pthread_create(&thread, NULL, allocate, &block) == 0 &&
               pthread_join(thread, NULL) == 0;
    size_t after = memory_address_space();
    free(block);
    return ran && block != NULL && before - after < 40 * MIB;
}

static bool is_refused(void)
{
    struct arena arena;
    return arena_create(2 * GIB, &arena) == ERR_MEMORY &&
           strstr(err_text(), "ulimit") != NULL;
}

/* The sanitizer takes terabytes of addresses. */
#ifdef __SANITIZE_ADDRESS__
#define CAN_LIMIT false
#else
#define CAN_LIMIT true
#endif

static void test_limits(void)
{
    if (!CAN_LIMIT) {
        tap_skip("limits of a process, with AddressSanitizer");
        return;
    }
    tap_ok(within(RLIMIT_AS, is_limited), "ulimit -v is seen");
    tap_ok(within(RLIMIT_DATA, is_limited), "ulimit -d is seen");
    tap_ok(within(RLIMIT_AS, is_shared), "threads share a heap");
    tap_ok(within(RLIMIT_AS, is_refused), "an arena beyond it names the limit");
}

int main(void)
{
    test_machines();
    tap_ok(memory_address_space() == SIZE_MAX || memory_address_space() > 0,
           "address space");
    test_limits();
    size_t resident = memory_resident(); /* it may grow with each question */
    tap_ok(resident > MIB / 2 && memory_peak() >= resident,
           "what this process has");
    return tap_done();
}
