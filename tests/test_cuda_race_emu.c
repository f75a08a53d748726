/* The search for data races: every wrong kernel is named, in whatever order it
 * runs, and no right one. */
#include "tests/cuda_race_cases.h"
#include "tests/kernel_check.h"

#include <signal.h>
#include <sys/wait.h>

/* Launches of other orders. */
#define ORDERS 3

static float *in, *out;

/* Whether out[i] is the number of the thread after i's, in blocks of `in` or
 * warps. */
static bool is_right(enum cuda_race_case which)
{
    bool warps = which == RACE_WARP_BARRIER || which == RACE_SHUFFLE;
    int among = warps ? 32 : RACE_THREADS;
    for (int i = 0; i < RACE_NUMBERS; i++) {
        int thread = i % RACE_THREADS;
        int next = thread / among * among + (thread + 1) % among;
        if (out[i] != (float)next)
            return false;
    }
    return true;
}

static void check_right(enum cuda_race_case which, const char *what)
{
    bool right = true;
    for (int i = 0; i < ORDERS; i++) {
        memset(out, 0xff, RACE_NUMBERS * sizeof *out);
        cuda_race_case(which, in, out);
        right &= is_right(which);
    }
    tap_ok(right, "nothing is said of %s", what);
}

/* The process of a fault ends with SIGABRT and says why. */
static bool ends_with(enum cuda_race_case which, char *text, size_t bytes)
{
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe(ends) != 0)
        abort();
    pid_t child = fork();
    if (child < 0)
        abort();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        cuda_race_case(which, in, out);
        _exit(0);
    }
    close(ends[1]);
    FILE *stream = fdopen(ends[0], "r");
    if (stream == NULL || fgets(text, (int)bytes, stream) == NULL)
        text[0] = '\0';
    if (stream != NULL)
        fclose(stream);
    waitpid(child, &status, 0);
    text[strcspn(text, "\n")] = '\0';
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void check_wrong(enum cuda_race_case which, const char *what,
                        const char *says)
{
    char text[1024] = "";
    bool found = true;
    for (int i = 0; i < ORDERS && found; i++) {
        cuda_race_case(RACE_BARRIER, in, out);
        found = ends_with(which, text, sizeof text) && strstr(text, says) &&
                strstr(text, "tests/cuda_race_cases.cu:");
    }
    if (!tap_ok(found, "%s: %s", what, says))
        tap_note("said was: %s", text);
}

int main(void)
{
    static const struct {
        const char *what;
        const char *says; /* NULL: nothing */
    } cases[RACE_CASES] = {
        [RACE_BARRIER] = { "barriers", NULL },
        [RACE_DYNAMIC] = { "dynamic shared memory", NULL },
        [RACE_WARP_BARRIER] = { "barriers of a warp", NULL },
        [RACE_SHUFFLE] = { "shuffles", NULL },
        [RACE_COPY] = { "copies that are waited for", NULL },
        [RACE_NO_BARRIER] = { "no barrier", "shared memory at" },
        [RACE_NO_BARRIER_AFTER] = { "no barrier before the next round",
                                    "and no barrier is in between" },
        [RACE_NO_WARP_BARRIER] = { "a shuffle for a barrier",
                                   "and no barrier is in between" },
        [RACE_ONLY_WARP] = { "a warp's barrier for the block's",
                             "shared memory at" },
        [RACE_ONE_ELEMENT] = { "threads write one element",
                               "of this block has written" },
        [RACE_BLOCKS_WRITE] = { "blocks write one element",
                                "of another block has written" },
        [RACE_BLOCKS_READ] = { "a block reads what another writes",
                               "of another block has" },
        [RACE_COPY_EARLY] = { "a copy that begins early",
                              "and no barrier is in between" },
        [RACE_COPY_LATE] = { "a copy's bytes before its wait",
                             "not there yet" },
        [RACE_COPY_NO_BARRIER] = { "a wait, but no barrier",
                                   "shared memory at" },
        [RACE_UNWRITTEN] = { "shared memory at first",
                             "which nobody in its block has written" },
    };
    in = check_random(RACE_NUMBERS, 1, 1);
    out = check_poisoned(RACE_NUMBERS);
    for (int i = 0; i < RACE_NUMBERS; i++)
        in[i] = (float)(i % RACE_THREADS);
    for (int i = 0; i < RACE_CASES; i++) {
        if (cases[i].says == NULL)
            check_right((enum cuda_race_case)i, cases[i].what);
        else
            check_wrong((enum cuda_race_case)i, cases[i].what, cases[i].says);
    }
    free(out);
    free(in);
    return tap_done();
}
