/* Makes one lost shard again: the members that are left pass segments along a
 * chain, each adding what it has by XOR.
 *
 * The lost shard is the exclusive or of the group's other shards and parities
 * in a fixed arrangement (ckpt_parity.h). If one member collected them it would
 * receive all of them over one link; along a chain each link carries the lost
 * shard once, all at the same time, and nobody has more than a segment in
 * memory. Everybody checks its files before it is part of a chain, for what is
 * wrong in one of them is wrong in the sum and can no longer be told whose. */
#include <assert.h>
#include <fcntl.h>
#include <string.h>

#include "checkpoint/files/ckpt_crash.h"
#include "checkpoint/files/ckpt_read.h"
#include "checkpoint/local/ckpt_parity.h"
#include "checkpoint/local/ckpt_rebuild_private.h"
#include "src/base/fsio.h"
#include "src/base/log.h"

#define TAG 1

/* This rank's place in the chain; -1: it is not in it. */
static int place_in(const struct ckpt_rebuild_run *b,
                    const struct ckpt_rebuild_job *job)
{
    for (int i = 0; i < job->length; i++)
        if (job->ranks[i] == b->rank)
            return i;
    return -1;
}

/* The room of the lost shard, which grows there. */
static enum err make_file(const struct ckpt_rebuild_run *b,
                          const struct ckpt_rebuild_job *job)
{
    char path[FSIO_PATH_MAX];
    struct ckpt_map map;
    const struct ckpt_shard *shard = &b->lost->manifest->shards[job->shard];
    TRY(fsio_path(path, "%s/%s", b->tmp, shard->file));
    TRY(ckpt_map_file(path, shard->bytes, true, &map));
    ckpt_map_release(&map);
    return ERR_OK;
}

enum err ckpt_rebuild_chain_check(const struct ckpt_rebuild_run *b,
                                  const struct ckpt_rebuild_job *job)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = NULL;
    struct ckpt_parity parity = job->parity;
    char path[FSIO_PATH_MAX];
    int place = place_in(b, job);
    if (place < 0)
        return ERR_OK;
    parity.member = job->chain[place];
    TRY_OUT(ckpt_parity_path(path, b->lost->dir, &parity));
    TRY_OUT(ckpt_parity_read(path, b->lost->manifest, b->lost->manifest_crc,
                             true, &parity));
    int own = parity.members > 2 ? parity.shards[parity.member] : -1;
    if (own >= 0) {
        TRY_OUT(ckpt_read_create(b->lost->dir, b->lost->manifest, &reader));
        TRY_OUT(ckpt_read_all(reader, own, NULL, NULL));
    }
    if (place == job->length - 1)
        TRY_OUT(make_file(b, job));
out:
    ckpt_read_destroy(reader);
    return rc;
}

struct file {
    char path[FSIO_PATH_MAX];
    int fd; /* -1: there is none */
};

enum { PARITY, SHARD, RESULT, FILES };

/* The files of one member, for its part in a chain. */
struct part {
    const struct ckpt_rebuild_job *job;
    struct ckpt_parity parity;
    struct file files[FILES];
    int64_t shard_bytes;
    int from, to; /* ranks; -1: it begins or ends here */
    enum err rc;  /* of the first failure here */
};

static enum err open_file(struct file *file, const char *dir, const char *name,
                          int flags)
{
    TRY(fsio_path(file->path, "%s/%s", dir, name));
    file->fd = open(file->path, flags | O_NONBLOCK | O_CLOEXEC);
    return file->fd >= 0 ? ERR_OK : err_errno("%s: open", file->path);
}

static enum err open_part(const struct ckpt_rebuild_run *b,
                          const struct ckpt_rebuild_job *job, int place,
                          struct part *part)
{
    const struct ckpt_rebuild *lost = b->lost;
    const struct ckpt_shard *shards = lost->manifest->shards;
    char path[FSIO_PATH_MAX];
    bool last = place == job->length - 1;
    *part = (struct part){ .job = job,
                           .parity = job->parity,
                           .from = place > 0 ? job->ranks[place - 1] : -1,
                           .to = last ? -1 : job->ranks[place + 1] };
    for (int i = 0; i < FILES; i++)
        part->files[i].fd = -1;
    part->parity.member = job->chain[place];
    int own =
        job->parity.members > 2 ? job->parity.shards[part->parity.member] : -1;
    TRY(ckpt_parity_path(path, lost->dir, &part->parity));
    TRY(open_file(&part->files[PARITY], lost->dir, strrchr(path, '/') + 1,
                  O_RDONLY));
    if (own >= 0) {
        TRY(open_file(&part->files[SHARD], lost->dir, shards[own].file,
                      O_RDONLY));
        part->shard_bytes = shards[own].bytes;
    }
    if (last)
        TRY(open_file(&part->files[RESULT], b->tmp, shards[job->shard].file,
                      O_WRONLY));
    return ERR_OK;
}

/* XOR what this member has for the bytes [begin, begin + bytes) of the lost
 * shard, which lie in one of its chunks, into `data`. */
static enum err add_chunk(const struct ckpt_rebuild_run *b,
                          const struct part *part, int64_t begin, int64_t bytes,
                          char *data)
{
    const struct ckpt_parity *parity = &part->parity;
    assert(begin >= 0 && begin % parity->bytes + bytes <= parity->bytes);
    int chunk = (int)(begin / parity->bytes);
    int64_t within = begin % parity->bytes;
    int keeper = (part->job->member + 1 + chunk) % parity->members;
    if (keeper == parity->member) {
        const struct file *file = &part->files[PARITY];
        TRY(fsio_pread(file->fd, b->scratch, (size_t)bytes,
                       ckpt_parity_offset(parity) + within, file->path));
    } else {
        int own = ckpt_parity_chunk(parity, parity->member, keeper);
        int64_t offset = own * parity->bytes + within;
        bytes = ckpt_parity_inside(part->shard_bytes, offset, bytes);
        if (bytes > 0)
            TRY(fsio_pread(part->files[SHARD].fd, b->scratch, (size_t)bytes,
                           offset, part->files[SHARD].path));
    }
    ckpt_parity_xor(data, b->scratch, bytes);
    return ERR_OK;
}

static enum err add_segment(const struct ckpt_rebuild_run *b,
                            const struct part *part, int64_t begin,
                            int64_t bytes, char *data)
{
    for (int64_t at = begin; at < begin + bytes;) {
        int64_t rest = part->parity.bytes - at % part->parity.bytes;
        int64_t now = ckpt_parity_inside(begin + bytes, at, rest);
        TRY(add_chunk(b, part, at, now, data + (at - begin)));
        at += now;
    }
    const struct file *result = &part->files[RESULT];
    return result->fd < 0 ? ERR_OK
                          : fsio_pwrite(result->fd, data, (size_t)bytes, begin,
                                        result->path);
}

/* While segment i is added to and passed on, segment i + 1 comes into the other
 * buffer, which is free as soon as the send of i - 1 has ended.
 *
 * A rank that failed passes on all the same, so that nobody waits in vain; the
 * result will not match the manifest. */
static enum err run_chain(struct ckpt_rebuild_run *b, struct part *part)
{
    struct comm_request *receives[CKPT_REBUILD_BUFFERS] = { NULL };
    struct comm_request *sends[CKPT_REBUILD_BUFFERS] = { NULL };
    int64_t bytes = b->lost->manifest->shards[part->job->shard].bytes;
    int64_t count =
        (bytes + CKPT_REBUILD_SEGMENT_BYTES - 1) / CKPT_REBUILD_SEGMENT_BYTES;
    for (int64_t i = -1; i < count; i++) {
        int now = (int)(i % CKPT_REBUILD_BUFFERS),
            next = (int)((i + 1) % CKPT_REBUILD_BUFFERS);
        int64_t begin = i * CKPT_REBUILD_SEGMENT_BYTES;
        int64_t length =
            ckpt_parity_inside(bytes, begin, CKPT_REBUILD_SEGMENT_BYTES);
        if (i + 1 < count && sends[next] != NULL) {
            TRY(comm_wait(sends[next], 0.0));
            sends[next] = NULL;
        }
        if (i + 1 < count && part->from >= 0)
            TRY(comm_start_recv(b->comm, b->buffers[next],
                                (size_t)ckpt_parity_inside(
                                    bytes, begin + CKPT_REBUILD_SEGMENT_BYTES,
                                    CKPT_REBUILD_SEGMENT_BYTES),
                                part->from, TAG, &receives[next]));
        if (i < 0)
            continue;
        if (part->from >= 0)
            TRY(comm_wait(receives[now], 0.0));
        else
            memset(b->buffers[now], 0, (size_t)length);
        if (part->rc == ERR_OK)
            part->rc = add_segment(b, part, begin, length, b->buffers[now]);
        if (part->to >= 0)
            TRY(comm_start_send(b->comm, b->buffers[now], (size_t)length,
                                part->to, TAG, &sends[now]));
    }
    for (int i = 0; i < CKPT_REBUILD_BUFFERS; i++)
        if (sends[i] != NULL)
            TRY(comm_wait(sends[i], 0.0));
    return ERR_OK;
}

/* Gives the file its name if it is what the manifest says. */
static enum err take(const struct ckpt_rebuild_run *b,
                     const struct ckpt_rebuild_job *job)
{
    enum err rc = ERR_OK;
    struct ckpt_read *reader = NULL;
    const char *file = b->lost->manifest->shards[job->shard].file;
    char from[FSIO_PATH_MAX], to[FSIO_PATH_MAX], parent[FSIO_PATH_MAX];
    TRY_OUT(ckpt_read_create(b->tmp, b->lost->manifest, &reader));
    TRY_OUT(ckpt_read_all(reader, job->shard, NULL, NULL));
    ckpt_crash_point("local-rebuilt", b->rank);
    TRY_OUT(fsio_path(from, "%s/%s", b->tmp, file));
    TRY_OUT(fsio_path(to, "%s/%s", b->lost->dir, file));
    TRY_OUT(fsio_parent(to, parent));
    TRY_OUT(fsio_mkdirs(parent));
    if (rename(from, to) != 0)
        rc = err_errno("%s: rename", to);
out:
    ckpt_read_destroy(reader);
    return rc;
}

enum err ckpt_rebuild_chain_run(struct ckpt_rebuild_run *b,
                                struct ckpt_rebuild_job *job)
{
    enum err rc = ERR_OK;
    struct part part;
    int place = place_in(b, job);
    if (place < 0)
        return ERR_OK;
    part.rc = open_part(b, job, place, &part);
    TRY_OUT(run_chain(b, &part));
    if (part.rc == ERR_OK && part.to < 0)
        part.rc = take(b, job);
    job->code = part.rc;
    if (part.rc != ERR_OK)
        log_warn("%s", err_text());
out:
    for (int i = 0; i < FILES; i++)
        fsio_close(part.files[i].fd);
    return rc;
}
