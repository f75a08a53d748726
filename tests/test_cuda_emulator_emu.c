/* The emulator of CUDA: right kernels compute, wrong ones are found. */
#include "tests/cuda_emulator_cases.h"
#include "tests/kernel_check.h"

#include <signal.h>
#include <sys/wait.h>

/* Launches among which an order of chance must show. */
#define LAUNCHES 50

static bool case_right(enum cuda_emulator_case which)
{
    float out[CASE_THREADS];
    bool right = true;
    cuda_emulator_case(which, out);
    for (int i = 0; i < CASE_THREADS; i++)
        right &= out[i] == (float)((i + 1) % CASE_THREADS);
    return right;
}

static void check_barriers(void)
{
    int right = 0, dynamic = 0, without = 0;
    for (int i = 0; i < LAUNCHES; i++) {
        right += case_right(CASE_BARRIER);
        dynamic += case_right(CASE_DYNAMIC);
        without += case_right(CASE_NO_BARRIER);
    }
    tap_is_int(right, LAUNCHES, "threads meet at a barrier");
    tap_is_int(dynamic, LAUNCHES, "and in dynamic shared memory");
    tap_is_int(without, 0, "a missing barrier shows");
}

static void check_orders(void)
{
    float out[CASE_THREADS];
    unsigned last = 0;
    for (int i = 0; i < LAUNCHES; i++) {
        cuda_emulator_case(CASE_LAST_BLOCK, out);
        last |= 1u << (int)out[0];
    }
    tap_is_int(last, (1 << CASE_BLOCKS) - 1, "any block may be the last one");
    cuda_emulator_case(CASE_LEFT_OVER, out);
    tap_ok(check_all_nan(out, CASE_THREADS),
           "no block finds what another left in shared memory");
}

static void check_shuffles(void)
{
    float out[CASE_THREADS];
    bool right = true;
    for (int i = 0; i < LAUNCHES; i++) {
        cuda_emulator_case(CASE_SHUFFLES, out);
        for (int j = 0; j < CASE_THREADS; j++)
            right &= out[j] == 1;
    }
    tap_ok(right, "warp collectives");
}

/* How the process of a fault ends, and all that it says. */
static int ending_of(enum cuda_emulator_case which, char *text, size_t bytes)
{
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        float *out = check_poisoned(CASE_THREADS);
        dup2(ends[1], STDERR_FILENO);
        cuda_emulator_case(which, out);
        _exit(0);
    }
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "r");
    text[stream == NULL ? 0 : fread(text, 1, bytes - 1, stream)] = '\0';
    if (stream != NULL)
        fclose(stream);
    waitpid(child, &status, 0);
    return status;
}

/* It ends with SIGABRT and says why. */
static void check_fault(enum cuda_emulator_case which, const char *says)
{
    char text[4096];
    int status = ending_of(which, text, sizeof(text));
    text[strcspn(text, "\n")] = '\0';
    tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT &&
               strstr(text, says) != NULL,
           "%s", text);
}

/* What the compiler's sanitizers find. */
static void check_found(enum cuda_emulator_case which, const char *what,
                        const char *says)
{
    char text[4096];
#if defined(__SANITIZE_ADDRESS__)
    int status = ending_of(which, text, sizeof(text));
    if (!tap_ok(status != 0 && strstr(text, says) != NULL, "%s: %s", what,
                says))
        tap_note("status %d: %s", status, text);
#else
    if (which != CASE_LOAD_ALIGNMENT) {
        tap_skip("%s is found with AddressSanitizer: make sanitize", what);
        return;
    }
    int status = ending_of(which, text, sizeof(text));
    tap_ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGILL, "%s", what);
    (void)says;
#endif
}

int main(void)
{
    static const struct {
        enum cuda_emulator_case which;
        const char *says;
    } faults[] = {
        { CASE_EARLY_END, "at __syncthreads, and the other 1 have ended" },
        { CASE_HALF_WARP, "at __shfl_xor_sync, and the other 48 have ended" },
        { CASE_TWO_KINDS, "different collectives" },
        { CASE_MASK, "whole warps" },
        { CASE_WIDE_BLOCK, "no device grants" },
        { CASE_NO_BLOCKS, "no device grants" },
        { CASE_MUCH_SHARED, "no device grants" },
        { CASE_STORE_ALIGNMENT, "no multiple" },
    };
    static const char overflow[] = "buffer-overflow";
    check_barriers();
    check_orders();
    check_shuffles();
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        check_fault(faults[i].which, faults[i].says);
    check_found(CASE_LOAD_ALIGNMENT, "a vector at an odd address",
                "misaligned address");
    check_found(CASE_DYNAMIC_END, "a read behind dynamic shared memory",
                overflow);
    check_found(CASE_STATIC_END, "a read behind a static array",
                "cuda_emulator_cases.cu");
    check_found(CASE_TENSOR_END, "a vector over a tensor's end", overflow);
    return tap_done();
}
