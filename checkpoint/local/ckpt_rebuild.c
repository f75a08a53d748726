/* Finds out which lost shards of a node-local checkpoint can be made again from
 * parity, and which ranks do it. ckpt_rebuild_chain.c does it.
 *
 * After a restart ranks are elsewhere, and nodes come back in another order, so
 * nothing is concluded from who a rank is: it reads what files its node has and
 * offers to stand for the member whose parity and shard it finds. All get all
 * offers, and plan alike: a lost shard can be made again if each other member of
 * its set has somebody who stands for it. That is judged for all lost shards
 * before any is begun, since a step with one shard missing is of no use. */
#include "checkpoint/local/ckpt_rebuild.h"

#include <assert.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_holders.h"
#include "checkpoint/local/ckpt_rebuild_private.h"
#include "src/base/array.h"
#include "src/base/fsio.h"
#include "src/base/log.h"
#include "src/base/new.h"

/* --- what is there --- */

static int offer_here(const struct ckpt_rebuild_run *b, const char *name,
                      struct ckpt_rebuild_offer *offer)
{
    char path[FSIO_PATH_MAX];
    struct ckpt_parity *parity = &offer->parity;
    *offer = (struct ckpt_rebuild_offer){ .rank = b->rank };
    enum err rc = fsio_path(path, "%s/%s", b->lost->dir, name);
    if (rc == ERR_OK)
        rc = ckpt_parity_read(path, b->lost->manifest, b->lost->manifest_crc,
                              false, parity);
    if (rc != ERR_OK) {
        log_warn("%s", err_text());
        return 0;
    }
    /* in a set of two the parity alone is the other's shard */
    int shard = parity->members > 2 ? parity->shards[parity->member] : -1;
    return shard < 0 || b->lost->holds[shard];
}

/* This rank's offers; *offers is malloc'ed. */
static enum err list_here(const struct ckpt_rebuild_run *b,
                          struct ckpt_rebuild_offer **offers, int *count)
{
    enum err rc = ERR_OK;
    DIR *folder = b->lost->here ? opendir(b->lost->dir) : NULL;
    int room = 0;
    *offers = NULL;
    *count = 0;
    for (struct dirent *entry;
         folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (strncmp(entry->d_name, CKPT_PARITY_PREFIX,
                    strlen(CKPT_PARITY_PREFIX)) != 0)
            continue;
        if ((rc = array_room(offers, &room, *count + 1)) != ERR_OK)
            break;
        *count += offer_here(b, entry->d_name, &(*offers)[*count]);
    }
    if (folder != NULL)
        closedir(folder);
    return rc;
}

/* Gives every rank the offers of all. */
static enum err gather_offers(struct ckpt_rebuild_run *b)
{
    enum err rc = ERR_OK;
    struct ckpt_rebuild_offer *mine = NULL;
    int count = 0, ranks = comm_size(b->comm);
    size_t *bytes_of = NULL;
    rc = list_here(b, &mine, &count);
    if (rc == ERR_OK)
        rc = new_zeroed(&bytes_of, (size_t)ranks);
    TRY_OUT(comm_agree(b->comm, rc));
    TRY_OUT(comm_gather_parts(b->comm, mine, (size_t)count * sizeof *mine,
                              &b->offers, bytes_of));
    for (int r = 0; r < ranks; r++)
        b->offer_count += (int)(bytes_of[r] / sizeof *mine);
out:
    free(bytes_of);
    free(mine);
    return rc;
}

/* --- what is to do --- */

/* The member of the set whose shard it is; -1: none. */
static int member_with(const struct ckpt_parity *parity, int shard)
{
    for (int m = 0; m < parity->members; m++)
        if (parity->shards[m] == shard)
            return m;
    return -1;
}

static bool stands_for(const struct ckpt_rebuild_offer *offer,
                       const struct ckpt_rebuild_job *job, int member)
{
    const struct ckpt_parity *one = &offer->parity, *set = &job->parity;
    return one->set == set->set && one->member == member &&
           one->members == set->members && one->bytes == set->bytes &&
           memcmp(one->shards, set->shards, sizeof one->shards) == 0;
}

static bool is_able(const struct ckpt_rebuild_run *b, int number,
                    const struct ckpt_rebuild_job *job, int member)
{
    const struct ckpt_rebuild_offer *offer = &b->offers[number];
    for (int i = 0; i < job->length; i++)
        if (job->ranks[i] == offer->rank)
            return false;
    return stands_for(offer, job, member);
}

/* One of the ranks that can and have no place in the chain, a different one for
 * different sets; -1: none. */
static int choose_rank(const struct ckpt_rebuild_run *b,
                       const struct ckpt_rebuild_job *job, int member)
{
    assert(member >= 0 && member < job->parity.members);
    int able = 0;
    for (int o = 0; o < b->offer_count; o++)
        able += is_able(b, o, job, member);
    int skip = able > 0 ? job->parity.set % able : 0;
    for (int o = 0; o < b->offer_count; o++)
        if (is_able(b, o, job, member) && skip-- == 0)
            return b->offers[o].rank;
    return -1;
}

/* The chain ends at another member for different sets. False: too much is lost
 * (`missing` members, with this one; 0: there is no parity of it). */
static bool plan_job(const struct ckpt_rebuild_run *b, int shard,
                     struct ckpt_rebuild_job *job, int *missing)
{
    *job = (struct ckpt_rebuild_job){ .shard = shard, .member = -1 };
    *missing = 0;
    for (int o = 0; o < b->offer_count && job->member < 0; o++) {
        job->parity = b->offers[o].parity;
        job->member = member_with(&job->parity, shard);
    }
    if (job->member < 0)
        return false;
    int members = job->parity.members;
    for (int i = 0; i < members; i++) {
        int member = (job->parity.set + i) % members;
        int rank = member == job->member ? -1 : choose_rank(b, job, member);
        *missing += rank < 0;
        if (rank < 0)
            continue;
        job->chain[job->length] = member;
        job->ranks[job->length++] = rank;
    }
    return job->length == members - 1;
}

static void tell_lost(const struct ckpt_manifest *manifest,
                      const struct ckpt_rebuild_job *job, int shard,
                      int missing)
{
    char why[64] = "";
    if (missing > 0)
        snprintf(why, sizeof why, " (%d of %d members of its XOR group are)",
                 missing, job->parity.members);
    log_warn("node-local checkpoint step %" PRId64
             " is not used: %s is lost with all that could replace it%s",
             manifest->step, manifest->shards[shard].file, why);
}

/* The same on all ranks. */
static bool plan(struct ckpt_rebuild_run *b, const struct ckpt_holders *holders)
{
    const struct ckpt_manifest *manifest = b->lost->manifest;
    for (int s = 0; s < manifest->shard_count; s++) {
        int missing;
        if (ckpt_holders_lowest(holders, s) >= 0)
            continue;
        if (plan_job(b, s, &b->jobs[b->job_count], &missing)) {
            b->job_count++;
            continue;
        }
        if (b->rank == 0)
            tell_lost(manifest, &b->jobs[b->job_count], s, missing);
        return false;
    }
    return b->job_count > 0;
}

/* --- all --- */

static enum err agree_jobs(struct ckpt_rebuild_run *b, bool *good)
{
    int64_t worst = ERR_OK;
    for (int j = 0; j < b->job_count; j++)
        if (b->jobs[j].code > worst)
            worst = b->jobs[j].code;
    TRY(comm_all_reduce_i64(b->comm, &worst, 1, COMM_MAX));
    *good = worst == ERR_OK;
    return ERR_OK;
}

static enum err rebuild_all(struct ckpt_rebuild_run *b, bool *rebuilt)
{
    bool good;
    for (int j = 0; j < b->job_count; j++) {
        b->jobs[j].code = ckpt_rebuild_chain_check(b, &b->jobs[j]);
        if (b->jobs[j].code != ERR_OK)
            log_warn("%s", err_text());
    }
    TRY(agree_jobs(b, &good));
    if (!good)
        return ERR_OK;
    ckpt_crash_point("local-rebuilding", b->rank);
    for (int j = 0; j < b->job_count; j++)
        TRY(ckpt_rebuild_chain_run(b, &b->jobs[j]));
    TRY(agree_jobs(b, rebuilt));
    if (*rebuilt && b->rank == 0)
        log_info("node-local checkpoint step %" PRId64
                 ": made %d lost shard(s) again from XOR parity",
                 b->lost->manifest->step, b->job_count);
    return ERR_OK;
}

static enum err prepare(struct ckpt_rebuild_run *b)
{
    size_t shards = (size_t)b->lost->manifest->shard_count;
    TRY(fsio_path(b->tmp, "%s/.rebuild-%d", b->lost->dir, b->rank));
    TRY(new_zeroed(&b->jobs, shards + 1));
    TRY(new_room(&b->scratch, (size_t)CKPT_REBUILD_SEGMENT_BYTES));
    for (int i = 0; i < CKPT_REBUILD_BUFFERS; i++)
        TRY(new_room(&b->buffers[i], (size_t)CKPT_REBUILD_SEGMENT_BYTES));
    return b->lost->here ? fsio_remove_tree(b->tmp) : ERR_OK;
}

enum err ckpt_rebuild(struct comm *comm, const struct ckpt_rebuild *lost,
                      bool *rebuilt)
{
    enum err rc = ERR_OK;
    struct ckpt_rebuild_run b = { .comm = comm,
                                  .rank = comm_rank(comm),
                                  .lost = lost };
    struct ckpt_holders holders = { 0 };
    *rebuilt = false;
    TRY_OUT(comm_agree(comm, prepare(&b)));
    TRY_OUT(ckpt_holders_gather(comm, lost->holds, lost->manifest->shard_count,
                                &holders));
    TRY_OUT(gather_offers(&b));
    if (plan(&b, &holders))
        TRY_OUT(rebuild_all(&b, rebuilt));
out:
    if (lost->here && b.job_count > 0)
        (void)fsio_remove_tree(b.tmp);
    /* A late peer may still write into the buffers of a broken comm. */
    for (int i = 0; i < CKPT_REBUILD_BUFFERS && rc != ERR_COMM; i++)
        free(b.buffers[i]);
    free(b.scratch);
    free(b.jobs);
    free(b.offers);
    ckpt_holders_free(&holders);
    return rc;
}
