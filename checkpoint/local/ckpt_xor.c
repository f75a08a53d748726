/* Parity of node-local shards: which nodes form a group, and the rounds in
 * which members exchange chunks.
 *
 * As RAID 5, over nodes in place of disks: each node of a group of g keeps its
 * own shard and the exclusive or of a chunk of each other's, 1/(g-1) of a
 * shard. Whoever is lost is made again, chunk by chunk, from a parity and what
 * the others gave to it. Nobody ever has more in memory than a segment of each
 * member: parity is made in rounds, in which every member gives and keeps, so
 * that all links of the group are busy alike. SCR's XOR scheme (Moody et al.
 * 2010) has the same idea. The form of the files is in ckpt_parity.c, the way
 * back in ckpt_rebuild.c. */
#include "checkpoint/local/ckpt_xor.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/local/ckpt_nodes.h"
#include "checkpoint/local/ckpt_parity.h"
#include "src/base/digest.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define TAG 2 /* and one for each set behind it */
#define TAGS 30000
#define ROUNDS_MAX 32
#define SEGMENT_MIN ((int64_t)1 << 20)
#define WINDOWS 2
/* Messages of one rank on their way, of what a communicator takes. */
#define MESSAGES_MAX 192

#define MEMBERS CKPT_PARITY_MEMBERS_MAX

struct set {
    int ranks[MEMBERS];
    bool gives[MEMBERS]; /* else its shard is in another set */
    /* of one save; shards are set then */
    struct ckpt_parity parity;
    int64_t sizes[MEMBERS]; /* of the shards; 0: none */
    int64_t segment;        /* bytes */
    int rounds;             /* 0: no member has a shard */
    char path[FSIO_PATH_MAX];
    struct ckpt_map file;
    char *windows[WINDOWS];    /* a segment from each member */
    uint32_t *sent, *received; /* [members][rounds]: CRC32C of segments */
    struct comm_request *sends[MEMBERS], *receives[MEMBERS];
};

struct ckpt_xor {
    struct comm *comm;     /* borrowed */
    int smallest, largest; /* nodes of a group; 1: nothing is protected */
    struct set *sets;
    int set_count;
    /* of one save */
    struct ckpt_map own;
    int rounds; /* the most of any set */
    int round;  /* under way: 0 for the CRCs, then the segments */
    bool damaged;
    char failure[512];
};

/* --- who is in a set ------------------------------------------------------ */

static int group_count(int nodes, int group_max)
{
    int groups = (nodes + group_max - 1) / group_max;
    if (nodes >= 2 && nodes / groups < 2)
        groups = nodes / 2;
    return groups;
}

static int64_t segment_bytes(int64_t chunk)
{
    int64_t segment = (chunk + ROUNDS_MAX - 1) / ROUNDS_MAX;
    segment = segment < SEGMENT_MIN ? SEGMENT_MIN : segment;
    return segment < chunk ? segment : chunk;
}

size_t ckpt_xor_bytes(size_t shard, int nodes, int group_max)
{
    if (nodes < 2)
        return 0;
    int groups = group_count(nodes, group_max);
    int64_t others = (nodes + groups - 1) / groups - 1;
    int64_t chunk = ((int64_t)shard + others - 1) / others;
    int64_t segment = segment_bytes(chunk);
    return (size_t)((segment < chunk ? WINDOWS : 1) * others * segment);
}

size_t ckpt_xor_folder_bytes(size_t shard, int nodes, int group_max)
{
    if (nodes < 2)
        return shard;
    size_t others = (size_t)(nodes / group_count(nodes, group_max) - 1);
    return shard + (shard + others - 1) / others;
}

/* The most ranks of any node of the group: it has so many sets. */
static int sets_of(const struct ckpt_nodes *nodes, int groups, int group)
{
    int most = 0;
    for (int n = group; n < nodes->count; n += groups)
        if (nodes->ranks[n] > most)
            most = nodes->ranks[n];
    return most;
}

static void fill_set(const struct ckpt_nodes *nodes, int groups, int group,
                     int place, int rank, struct set *set)
{
    assert(place >= 0 && group < groups);
    set->parity.members = 0;
    set->parity.member = -1;
    for (int n = group; n < nodes->count; n += groups) {
        int m = set->parity.members++;
        set->ranks[m] = ckpt_nodes_rank_at(nodes, n, place);
        set->gives[m] = place < nodes->ranks[n];
        if (set->ranks[m] == rank)
            set->parity.member = m;
    }
}

static enum err check_load(const struct ckpt_nodes *nodes, int groups)
{
    for (int n = 0; n < nodes->count; n++) {
        int group = n % groups;
        int members = (nodes->count - group + groups - 1) / groups;
        int sets = sets_of(nodes, groups, group);
        int each = (sets + nodes->ranks[n] - 1) / nodes->ranks[n];
        if (each * 2 * (members - 1) > MESSAGES_MAX)
            return err_set(ERR_UNSUPPORTED,
                           "node-local parity: a node has %d ranks and another "
                           "%d: give all nodes as many%s",
                           nodes->ranks[n], sets,
                           members > 3 ? ", or choose smaller groups" : "");
    }
    return ERR_OK;
}

static enum err find_sets(struct ckpt_xor *x, const struct ckpt_nodes *nodes,
                          int group_max)
{
    int number = 0;
    int groups = group_count(nodes->count, group_max);
    x->smallest = nodes->count / groups;
    x->largest = (nodes->count + groups - 1) / groups;
    if (nodes->count < 2)
        return ERR_OK;
    TRY(check_load(nodes, groups));
    TRY(new_zeroed(&x->sets, (size_t)comm_size(x->comm)));
    for (int g = 0; g < groups; g++) {
        int sets = sets_of(nodes, groups, g);
        for (int p = 0; p < sets; p++, number++) {
            struct set *set = &x->sets[x->set_count];
            fill_set(nodes, groups, g, p, comm_rank(x->comm), set);
            set->parity.set = number;
            x->set_count += set->parity.member >= 0;
        }
    }
    return ERR_OK;
}

void ckpt_xor_release(struct ckpt_xor *x)
{
    for (int i = 0; i < x->set_count; i++) {
        struct set *set = &x->sets[i];
        for (int w = 0; w < WINDOWS; w++) {
            free(set->windows[w]);
            set->windows[w] = NULL;
        }
        free(set->sent);
        set->sent = set->received = NULL;
        ckpt_map_release(&set->file);
    }
    ckpt_map_release(&x->own);
}

void ckpt_xor_destroy(struct ckpt_xor *x)
{
    if (x == NULL)
        return;
    ckpt_xor_release(x);
    free(x->sets);
    free(x);
}

static void tell_space(const struct ckpt_xor *x, const char *local_dir)
{
    if (x->smallest < 2) {
        log_warn("node-local checkpoints in %s: all ranks are on one node, and "
                 "nothing is kept elsewhere: they are lost with it",
                 local_dir);
        return;
    }
    double factor = (double)x->smallest / (x->smallest - 1);
    log_info("node-local checkpoints in %s: XOR parity over groups of %d to %d "
             "nodes, %.2f times the state, %.2f while saving",
             local_dir, x->smallest, x->largest, factor, 2 * factor);
}

enum err ckpt_xor_create(struct comm *comm, int group_max,
                         const char *local_dir, struct ckpt_xor **out)
{
    enum err rc = ERR_OK;
    struct ckpt_nodes nodes = { 0 };
    struct ckpt_xor *x = NULL;
    assert(group_max >= 2 && group_max <= MEMBERS);
    *out = NULL;
    TRY(new_zeroed(&x, 1));
    x->comm = comm;
    TRY_OUT(ckpt_nodes_create(comm, &nodes));
    TRY_OUT(find_sets(x, &nodes, group_max));
    if (comm_rank(comm) == 0)
        tell_space(x, local_dir);
out:
    ckpt_nodes_free(&nodes);
    return new_or_none(rc, x, out, ckpt_xor_destroy);
}

/* --- before: files, buffers, CRCs ----------------------------------------- */

/* Bytes of segment `number` of what member `of` gives to member `to`, and where
 * they are in its shard. */
static int64_t segment_at(const struct set *set, int of, int to, int number,
                          int64_t *offset)
{
    assert(number >= 0 && number < set->rounds);
    int64_t within = number * set->segment;
    int64_t chunk = ckpt_parity_chunk(&set->parity, of, to);
    *offset = chunk * set->parity.bytes + within;
    return ckpt_parity_inside(
        set->sizes[of], *offset,
        ckpt_parity_inside(set->parity.bytes, within, set->segment));
}

static void describe(struct set *set, const struct ckpt_xor_save *save)
{
    struct ckpt_parity *parity = &set->parity;
    const struct ckpt_manifest *manifest = save->manifest;
    parity->step = manifest->step;
    parity->manifest_crc = save->manifest_crc;
    for (int m = 0; m < parity->members; m++) {
        int shard = set->gives[m] ? save->shards[set->ranks[m]] : -1;
        parity->shards[m] = shard;
        set->sizes[m] = shard < 0 ? 0 : manifest->shards[shard].bytes;
    }
    parity->bytes = ckpt_parity_chunk_bytes(parity, manifest);
    set->segment = segment_bytes(parity->bytes);
    set->rounds =
        parity->bytes == 0
            ? 0
            : (int)((parity->bytes + set->segment - 1) / set->segment);
}

static enum err make_file(struct set *set, const char *dir)
{
    struct ckpt_parity *parity = &set->parity;
    size_t window = (size_t)parity->members * (size_t)set->segment;
    size_t sums = (size_t)parity->members * (size_t)set->rounds;
    TRY(new_zeroed(&set->sent, 2 * sums));
    set->received = set->sent + sums;
    for (int w = 0; w < WINDOWS && w < set->rounds; w++)
        TRY(new_room(&set->windows[w], window));
    TRY(ckpt_parity_path(set->path, dir, parity));
    return ckpt_map_file(set->path, ckpt_parity_offset(parity) + parity->bytes,
                         true, &set->file);
}

static void sum_own(const struct ckpt_xor *x, struct set *set)
{
    int me = set->parity.member;
    for (int m = 0; m < set->parity.members; m++)
        for (int i = 0; m != me && i < set->rounds; i++) {
            int64_t offset;
            int64_t bytes = segment_at(set, me, m, i, &offset);
            if (bytes > 0)
                set->sent[m * set->rounds + i] = crc32c(
                    0, (const char *)x->own.data + offset, (size_t)bytes);
        }
}

/* Checks the own shard, on which others rely, against the manifest: a flipped bit
 * in it would be in a parity of each other member, and come back from there as
 * the bit of a shard that was good. */
static enum err take_own(struct ckpt_xor *x, const struct ckpt_xor_save *save,
                         int number)
{
    enum err rc = ERR_OK;
    const struct ckpt_shard *shard = &save->manifest->shards[number];
    struct ckpt_read *reader = NULL;
    char path[FSIO_PATH_MAX];
    TRY_OUT(ckpt_read_create(save->dir, save->manifest, &reader));
    if (!save->memory)
        TRY_OUT(ckpt_read_all(reader, number, NULL, NULL));
    TRY_OUT(fsio_path(path, "%s/%s", save->dir, shard->file));
    TRY_OUT(ckpt_map_file(path, shard->bytes, false, &x->own));
out:
    ckpt_read_destroy(reader);
    return rc;
}

enum err ckpt_xor_prepare(struct ckpt_xor *x, const struct ckpt_xor_save *save)
{
    int own = save->shards[comm_rank(x->comm)];
    assert(x->own.data == NULL); /* released before */
    x->rounds = x->round = 0;
    x->damaged = false;
    if (own >= 0 && x->set_count > 0)
        TRY(take_own(x, save, own));
    for (int i = 0; i < x->set_count; i++) {
        struct set *set = &x->sets[i];
        describe(set, save);
        if (set->rounds == 0)
            continue;
        TRY(make_file(set, save->dir));
        sum_own(x, set);
        if (set->rounds > x->rounds)
            x->rounds = set->rounds;
    }
    return ERR_OK;
}

/* --- rounds --------------------------------------------------------------- */

static char *slot(const struct set *set, int segment, int member)
{
    assert(segment >= 0 && segment < set->rounds);
    return set->windows[segment % WINDOWS] + member * set->segment;
}

/* What member `of` sends to member `to` in this round: the CRCs of all its
 * segments, or one of those. */
static int64_t message_bytes(const struct set *set, int round, int of, int to)
{
    int64_t offset;
    if (round == 0)
        return set->sizes[of] > 0 ? set->rounds * (int)sizeof *set->sent : 0;
    return segment_at(set, of, to, round - 1, &offset);
}

static const void *message_data(const struct ckpt_xor *x, const struct set *set,
                                int to)
{
    int64_t offset;
    if (x->round == 0)
        return set->sent + to * set->rounds;
    (void)segment_at(set, set->parity.member, to, x->round - 1, &offset);
    return (const char *)x->own.data + offset;
}

static enum err start_set(struct ckpt_xor *x, struct set *set)
{
    int me = set->parity.member;
    int tag = TAG + set->parity.set % TAGS;
    for (int m = 0; m < set->parity.members; m++) {
        if (m == me)
            continue;
        int64_t in = message_bytes(set, x->round, m, me);
        int64_t out = message_bytes(set, x->round, me, m);
        void *to = x->round == 0 ? (void *)(set->received + m * set->rounds)
                                 : slot(set, x->round - 1, m);
        if (in > 0)
            TRY(comm_start_recv(x->comm, to, (size_t)in, set->ranks[m], tag,
                                &set->receives[m]));
        if (out > 0)
            TRY(comm_start_send(x->comm, message_data(x, set, m), (size_t)out,
                                set->ranks[m], tag, &set->sends[m]));
    }
    return ERR_OK;
}

static enum err start_round(struct ckpt_xor *x)
{
    for (int i = 0; i < x->set_count; i++)
        if (x->sets[i].rounds > 0 && x->round <= x->sets[i].rounds)
            TRY(start_set(x, &x->sets[i]));
    return ERR_OK;
}

static enum err finish_request(struct comm_request **request, double timeout_s)
{
    enum err rc = ERR_OK;
    if (*request != NULL)
        rc = comm_wait(*request, timeout_s);
    *request = NULL;
    return rc;
}

static enum err finish_round(struct ckpt_xor *x, double timeout_s)
{
    for (int i = 0; i < x->set_count; i++)
        for (int m = 0; m < x->sets[i].parity.members; m++) {
            TRY(finish_request(&x->sets[i].receives[m], timeout_s));
            TRY(finish_request(&x->sets[i].sends[m], timeout_s));
        }
    return ERR_OK;
}

static void fold_segment(struct ckpt_xor *x, struct set *set, int segment,
                         int from)
{
    int me = set->parity.member;
    int64_t offset;
    int64_t bytes = segment_at(set, from, me, segment, &offset);
    const char *data = slot(set, segment, from);
    if (bytes == 0)
        return;
    if (crc32c(0, data, (size_t)bytes) !=
            set->received[from * set->rounds + segment] &&
        !x->damaged) {
        x->damaged = true;
        snprintf(x->failure, sizeof x->failure,
                 "%.300s: bytes [%" PRId64 ", %" PRId64
                 ") of the shard of rank %d (%s) came damaged",
                 set->path, offset, offset + bytes, set->ranks[from],
                 comm_host(x->comm, set->ranks[from]));
    }
    ckpt_parity_xor((char *)set->file.data + ckpt_parity_offset(&set->parity) +
                        segment * set->segment,
                    data, bytes);
}

static void fold(struct ckpt_xor *x, int segment)
{
    for (int i = 0; i < x->set_count; i++) {
        struct set *set = &x->sets[i];
        for (int m = 0; m < set->parity.members; m++)
            if (m != set->parity.member && segment < set->rounds)
                fold_segment(x, set, segment, m);
    }
    ckpt_crash_point("local-folded", comm_rank(x->comm));
}

/* The segment of the last round is XORed while the next one travels. */
enum err ckpt_xor_exchange(struct ckpt_xor *x, double timeout_s)
{
    for (x->round = 0; x->round <= x->rounds; x->round++) {
        TRY(start_round(x));
        if (x->round > 1)
            fold(x, x->round - 2);
        TRY(finish_round(x, timeout_s));
    }
    if (x->rounds > 0)
        fold(x, x->rounds - 1);
    return ERR_OK;
}

/* Here the damage is told that was seen when segments came. */
enum err ckpt_xor_verify(struct ckpt_xor *x, const struct ckpt_xor_save *save)
{
    struct ckpt_parity again;
    for (int i = 0; i < x->set_count; i++)
        if (x->sets[i].rounds > 0)
            ckpt_parity_seal(&x->sets[i].parity, x->sets[i].file.data);
    ckpt_xor_release(x);
    ckpt_crash_point("local-sealed", comm_rank(x->comm));
    if (x->damaged)
        return err_set(ERR_IO, "%s", x->failure);
    for (int i = 0; i < x->set_count; i++)
        if (x->sets[i].rounds > 0 && !save->memory)
            TRY(ckpt_parity_read(x->sets[i].path, save->manifest,
                                 save->manifest_crc, true, &again));
    return ERR_OK;
}
