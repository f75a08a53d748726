#include "checkpoint/ckpt_crash.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const names[] = {
    "begin",            /* nothing was written */
    "folder-made",      /* the temporary folder exists */
    "shard-created",    /* HDF5 metadata is written, no payload */
    "shard-half",       /* part of the payload is written */
    "shard-written",    /* all of it, not yet synced */
    "shard-synced",     /* synced under its .part name */
    "shard-renamed",    /* under its final name */
    "shards-agreed",    /* every rank's shard is durable */
    "manifest-written", /* the temporary folder is a whole checkpoint */
    "old-aside",        /* only where two folders can't be exchanged */
    "commit-renamed",   /* committed, the rename not yet synced */
    "commit-synced",    /* committed and durable */
    "latest-written",   /* LATEST names the new step */
    "prune-renamed",    /* an old step is trash, not yet deleted */
    "done",             /* everything is done */
    NULL
};

const char *const *ckpt_crash_names(void)
{
    return names;
}

static bool crash_known(const char *name)
{
    for (const char *const *known = names; *known != NULL; known++)
        if (strcmp(*known, name) == 0)
            return true;
    return false;
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
    if (at != NULL && crash_meant(at, name, rank))
        kill(getpid(), stop != NULL ? SIGSTOP : SIGKILL);
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
