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

static const char *const names[] = {
    "staged",           /* the state is copied, no file was touched */
    "begin",            /* rank 0 is about to make the temporary folder */
    "folder-made",      /* the temporary folder exists */
    "owner-written",    /* and says whose it is */
    "folder-agreed",    /* every rank knows of it */
    "shard-created",    /* HDF5 metadata is written, no payload */
    "shard-half",       /* part of the payload is written */
    "shard-written",    /* all of it, not yet synced */
    "shard-synced",     /* synced under its .part name */
    "shard-renamed",    /* under its final name */
    "shards-agreed",    /* every rank's shard is durable */
    "records-gathered", /* rank 0 has every shard's record */
    "manifest-checked", /* the manifest is in memory and proven */
    "view-written",     /* checkpoint.h5 is there */
    "manifest-written", /* the temporary folder is a whole checkpoint */
    "owner-removed",    /* nothing but the checkpoint is in the folder */
    "old-aside",        /* only where two folders can't be exchanged */
    "commit-renamed",   /* committed, the rename not yet synced */
    "commit-synced",    /* committed and durable */
    "latest-written",   /* LATEST names the new step */
    "prune-renamed",    /* an old step is trash, not yet deleted */
    "pruned",           /* retention is done */
    "result-agreed",    /* every rank knows of the commit */
    "done",             /* everything is done */
    NULL
};

static const char *const local_names[] = {
    "local-folder-made",   /* the temporary folder exists on this node */
    "local-shard-written", /* this rank's shard is in it */
    "local-prepared",      /* room for the parity is reserved */
    "local-folded",        /* part of the parity is there */
    "local-sealed",        /* the parity files are complete */
    "local-verified",      /* the parity is here and good */
    "local-agreed",        /* every node has all that it must have */
    "local-committed",     /* this node has the step */
    "local-tidied",        /* all nodes have it, older ones are gone */
    "local-rebuilding",    /* loading: a lost shard is about to be made again */
    "local-rebuilt",       /* it is good, but has not its name yet */
    NULL
};

const char *const *ckpt_crash_names(void)
{
    return names;
}

static bool is_in(const char *const *list, const char *name)
{
    while (*list != NULL && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

static bool crash_known(const char *name)
{
    return is_in(names, name) || is_in(local_names, name);
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
