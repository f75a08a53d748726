/* What ranks are at when one of them is missed: places as lines for people, whoever has
 * begun something else than the others, the stack of a thread, the state of a process. */
#include <errno.h>
#include <execinfo.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clean.h"
#include "src/base/clock.h"
#include "src/base/map.h"
#include "src/base/processes.h"
#include "src/comm/comm_impl.h"

#define FRAMES_MAX 48
#define STACK_S 1.0
#define RANGES_BYTES 160
#define NAMED_MAX 4
#define OP_BITS 32 /* of them, what it is; above which */

static const char *const states[][2] = {
    [COMM_SILENT] = { "does not answer", "do not answer" },
    [COMM_WAITS] = { "waits", "wait" },
    [COMM_WORKS] = { "computes", "compute" },
    [COMM_RESTS] = { "is busy", "are busy" },
};

uint64_t comm_place_op(const struct comm_request *request, uint64_t size)
{
    uint32_t what = map_hash_bytes(request->what, strlen(request->what)) ^
                    (uint32_t)(size * 2654435761U);
    uint64_t which = (uint64_t)(uint16_t)request->comm->number << 16 |
                     (uint64_t)request->tag;
    return (which + 1) << OP_BITS | what;
}

void comm_place_spans(const struct timeline_here *here,
                      char at[COMM_PLACE_BYTES])
{
    int depth = atomic_load(&here->depth);
    at[0] = '\0';
    for (int i = 0; i < depth && i < TIMELINE_DEPTH; i++) {
        const char *name = atomic_load(&here->names[i]);
        if (name != NULL)
            clean_join(at, COMM_PLACE_BYTES, ", ", "%s", name);
    }
}

static bool same(const struct comm_place *a, const struct comm_place *b)
{
    return a->state == b->state && a->step == b->step &&
           strncmp(a->at, b->at, sizeof a->at) == 0;
}

/* The ranks that are where the first is, "0-6, 8"; how many, and since when at most. */
static int ranges(const struct comm_place *places, int size, int first,
                  char *text, double *since_s)
{
    int count = 0;
    size_t used = 0;
    *since_s = 0.0;
    for (int r = first; r < size; r++) {
        int begin = r;
        for (; r < size && same(&places[first], &places[r]); r++, count++)
            *since_s = fmax(*since_s, places[r].since_s);
        if (r == begin)
            continue;
        if (used > RANGES_BYTES - 32)
            snprintf(text + used, RANGES_BYTES - used, ", ...");
        else
            used += (size_t)snprintf(text + used, 16, "%s%d",
                                     used > 0 ? ", " : "", begin);
        if (r > begin + 1 && used <= RANGES_BYTES - 16)
            used += (size_t)snprintf(text + used, 16, "-%d", r - 1);
    }
    return count;
}

/* Is it the first at its place? */
static bool leads(const struct comm_place *places, int rank)
{
    for (int r = 0; r < rank; r++)
        if (same(&places[r], &places[rank]))
            return false;
    return true;
}

int comm_place_lines(const struct comm_place *places, int size,
                     char (*hosts)[COMM_HOST_BYTES],
                     char lines[COMM_PLACE_LINES][COMM_TEXT_BYTES])
{
    int count = 0, said = 0;
    for (int r = 0; r < size; r++) {
        const struct comm_place *p = &places[r];
        char who[RANGES_BYTES + 32], list[RANGES_BYTES];
        double since_s;
        if (!leads(places, r))
            continue;
        if (count == COMM_PLACE_LINES - 1) {
            snprintf(lines[count], COMM_TEXT_BYTES,
                     "%d more ranks, rank %d is the first, are elsewhere",
                     size - said, r);
            return count + 1;
        }
        int ranks = ranges(places, size, r, list, &since_s);
        said += ranks;
        if (ranks == 1)
            snprintf(who, sizeof who, "rank %d (%s)", r, hosts[r]);
        else
            snprintf(who, sizeof who, "%d ranks (%s)", ranks, list);
        size_t used = (size_t)snprintf(lines[count], COMM_TEXT_BYTES, "%s %s",
                                       who, states[p->state][ranks > 1]);
        if (p->state != COMM_SILENT || p->step > 0)
            snprintf(lines[count] + used, COMM_TEXT_BYTES - used,
                     "%s step %lld, %.*s, since %.1f s",
                     p->state == COMM_SILENT ? "; last seen at" : ":",
                     (long long)p->step, COMM_PLACE_BYTES - 1,
                     p->at[0] != '\0' ? p->at : "between two phases", since_s);
        count++;
    }
    return count;
}

/* 0: the rank has not begun it, or long ago. */
static uint64_t begun(const struct comm_place *place, uint64_t which)
{
    for (int i = 0; i < COMM_PLACE_OPS; i++)
        if (place->ops[i] >> OP_BITS == which)
            return place->ops[i];
    return 0;
}

int comm_place_odd(const struct comm_place *places, int size,
                   char (*hosts)[COMM_HOST_BYTES], uint64_t op, char *text,
                   size_t bytes)
{
    uint64_t which = op >> OP_BITS, most = 0;
    int votes = 0, odd = 0;
    text[0] = '\0';
    /* the one that more than half have is left when pairs of unlike ones are taken out */
    for (int r = 0; r < size; r++) {
        uint64_t own = begun(&places[r], which);
        if (votes == 0)
            most = own;
        votes += own == most ? 1 : -1;
    }
    votes = 0;
    for (int r = 0; r < size; r++)
        votes += begun(&places[r], which) == most;
    if (most == 0 || 2 * votes <= size)
        return 0;
    for (int r = 0; r < size; r++) {
        uint64_t own = begun(&places[r], which);
        if (own != 0 && own != most && ++odd <= NAMED_MAX)
            clean_join(text, bytes, ", ", "rank %d (%s)", r, hosts[r]);
    }
    return odd;
}

/* --- the stack --- */

static atomic_bool stack_asked, stack_written;

static void on_stack_signal(int number)
{
    static const char head[] = "stack of the main thread, for addr2line:\n";
    void *frames[FRAMES_MAX];
    int kept = errno;
    (void)number;
    if (write(STDERR_FILENO, head, sizeof head - 1) > 0)
        backtrace_symbols_fd(frames, backtrace(frames, FRAMES_MAX),
                             STDERR_FILENO);
    atomic_store(&stack_written, true);
    errno = kept;
}

void comm_place_stack_begin(void)
{
    void *frame;
    struct sigaction action = { .sa_handler = on_stack_signal,
                                .sa_flags = SA_RESTART };
    sigemptyset(&action.sa_mask);
    (void)backtrace(&frame, 1); /* opens its library now, not in the handler */
    (void)sigaction(SIGURG, &action, NULL);
}

void comm_place_stack(pthread_t thread)
{
    double end_s = clock_now() + STACK_S;
    if (atomic_exchange(&stack_asked, true) ||
        pthread_kill(thread, SIGURG) != 0)
        return;
    while (!atomic_load(&stack_written) && clock_now() < end_s)
        clock_sleep(0.01);
}

void comm_place_process(int pid, char *text, size_t bytes)
{
    char path[32], stat[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *state =
        pid > 0 ? processes_stat(path, stat, sizeof stat) : NULL;
    text[0] = '\0';
    if (state != NULL)
        snprintf(text, bytes, "; its process is in state %c%s", *state,
                 *state == 'T' ? ", stopped" : "");
}
