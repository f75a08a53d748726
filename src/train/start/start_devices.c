/* Checks that every rank has a GPU of its own and that no GPU of a node is left
 * idle. Choosing a device is kernels/cuda/device/cuda_device.c.
 *
 * Both go unnoticed otherwise: two ranks on one GPU train at half the speed with
 * the right bits, and an idle one is paid for. Each rank tells the address of its
 * device and how many it sees; a device is one by its host and that address, for
 * its number depends on what a rank is shown. */
#include "src/train/start/start.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"

struct facts {
    char device[64]; /* its PCI address; empty: not known */
    int visible;     /* to the rank; 0: not known */
};

struct ranks {
    struct comm *comm;
    struct facts *facts; /* [ranks] */
    bool allowed;
};

/* The first rank that has the device of rank r. */
static int first_with(const struct ranks *all, int r)
{
    int other = 0;
    if (all->facts[r].device[0] == '\0')
        return r;
    while (!comm_same_host(all->comm, other, r) ||
           strcmp(all->facts[other].device, all->facts[r].device) != 0)
        other++;
    assert(other <= r); /* it has its own */
    return other;
}

static int ranks_beside(const struct ranks *all, int r)
{
    int count = 0;
    for (int other = 0; other < comm_size(all->comm); other++)
        count += comm_same_host(all->comm, other, r);
    assert(count > 0);
    return count;
}

static bool is_first_of_host(const struct ranks *all, int r)
{
    int other = 0;
    while (!comm_same_host(all->comm, other, r))
        other++;
    return other == r;
}

__attribute__((format(printf, 2, 3))) static enum err
object(const struct ranks *all, const char *format, ...)
{
    char what[384];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    if (!all->allowed)
        return err_set(ERR_USAGE, "%s; hardware.fallback = \"warn\" lets it be",
                       what);
    if (comm_rank(all->comm) == 0)
        log_warn("%s", what);
    return ERR_OK;
}

static enum err check_shared(const struct ranks *all, int r)
{
    int other = first_with(all, r);
    if (other == r)
        return ERR_OK;
    return object(all,
                  "rank %d shares GPU %s of %s with rank %d: start as many "
                  "ranks on a node as it has GPUs (--ntasks-per-node), and let "
                  "each see all of them (--gpus-per-node, --gpu-bind=none)",
                  r, all->facts[r].device, comm_host(all->comm, r), other);
}

static enum err check_idle(const struct ranks *all, int r)
{
    int visible = all->facts[r].visible, ranks = ranks_beside(all, r);
    if (visible <= ranks)
        return ERR_OK;
    return object(all,
                  "%s has %d GPUs for %d %s, so %d would be idle: start %d "
                  "ranks there (--ntasks-per-node), or ask for fewer GPUs, or "
                  "hide them (CUDA_VISIBLE_DEVICES)",
                  comm_host(all->comm, r), visible, ranks,
                  ranks == 1 ? "rank" : "ranks", visible - ranks, visible);
}

/* A variable hides GPUs from the program only, a cgroup from NCCL as well; the
 * difference can't be seen from here. */
static void note_isolated(const struct ranks *all, int host)
{
    int ranks = ranks_beside(all, host);
    bool alone = ranks > 1;
    for (int r = host; r < comm_size(all->comm); r++)
        if (comm_same_host(all->comm, r, host))
            alone =
                alone && all->facts[r].visible == 1 && first_with(all, r) == r;
    if (alone && comm_rank(all->comm) == 0)
        log_warn("each of the %d ranks of %s sees its own GPU only: if a "
                 "cgroup hides the others (--gpus-per-task), NCCL has no "
                 "NVLink between them; ask for --gpus-per-node and "
                 "--gpu-bind=none",
                 ranks, comm_host(all->comm, host));
}

static enum err check(const struct ranks *all)
{
    for (int r = 0; r < comm_size(all->comm); r++) {
        TRY(check_shared(all, r));
        if (!is_first_of_host(all, r))
            continue;
        TRY(check_idle(all, r));
        note_isolated(all, r);
    }
    return ERR_OK;
}

static enum err ask(const struct kernel_memory *memory, struct facts *own)
{
    if (memory->identify != NULL)
        TRY(memory->identify(own->device, sizeof own->device));
    if (memory->visible != NULL)
        TRY(memory->visible(&own->visible));
    return ERR_OK;
}

enum err start_devices(struct comm *comm, const struct kernel_memory *memory,
                       bool allowed, char *text, size_t bytes)
{
    enum err rc = ERR_OK;
    struct ranks all = { .comm = comm, .allowed = allowed };
    int devices = 0, ranks = comm_size(comm);
    text[0] = '\0';
    if (!memory->device)
        return ERR_OK;
    rc = new_zeroed(&all.facts, (size_t)ranks);
    TRY_OUT(comm_agree(comm, rc));
    TRY_OUT(comm_agree(comm, ask(memory, &all.facts[comm_rank(comm)])));
    TRY_OUT(comm_gather_rows(comm, all.facts, sizeof *all.facts));
    TRY_OUT(check(&all));
    for (int r = 0; r < ranks; r++)
        devices += first_with(&all, r) == r;
    snprintf(text, bytes, "%d %s for %d %s", devices,
             devices == 1 ? "GPU" : "GPUs", ranks,
             ranks == 1 ? "rank" : "ranks");
out:
    free(all.facts);
    return rc;
}
