/* Kills or stops the process at a named place of the commit protocol, for
 * tests. A shipped build has none of it. */
#include "checkpoint/files/ckpt_crash.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = { CKPT_CRASH_RUN, CKPT_CRASH_NODES };

static bool crash_known(const char *name)
{
    size_t i = 0, count = sizeof names / sizeof names[0];
    while (i < count && strcmp(names[i], name) != 0)
        i++;
    return i < count;
}

#ifdef CKPT_CRASH_POINTS

/* One write of a short line: whole lines, also from several ranks. */
static void crash_trace(const char *name, int rank)
{
    const char *path = getenv("TESSERA_CRASH_TRACE");
    if (path == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    dprintf(fd, "%s %d\n", name, rank);
    close(fd);
}

/* Whether TESSERA_CRASH_AT means this place and rank. */
static bool crash_meant(const char *at, const char *name, int rank)
{
    size_t length = strcspn(at, ":");
    if (strlen(name) != length || strncmp(at, name, length) != 0)
        return false;
    return at[length] == '\0' || strtol(at + length + 1, NULL, 10) == rank;
}

void ckpt_crash_point(const char *name, int rank)
{
    assert(crash_known(name));
    crash_trace(name, rank);
    const char *at = getenv("TESSERA_CRASH_AT");
    const char *stop = getenv("TESSERA_CRASH_STOP");
    const char *wait_s = getenv("TESSERA_CRASH_WAIT");
    if (at == NULL || !crash_meant(at, name, rank))
        return;
    /* raise(), not kill(): a SIGSTOP to the process may be taken by another of
     * its threads, and this one would run on for a while. */
    if (wait_s != NULL)
        sleep((unsigned)strtoul(wait_s, NULL, 10));
    else
        raise(stop != NULL ? SIGSTOP : SIGKILL);
}

#else

void ckpt_crash_point(const char *name, int rank)
{
    assert(crash_known(name));
    (void)crash_known;
    (void)name;
    (void)rank;
}

#endif
