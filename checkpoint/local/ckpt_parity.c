/* The form of parity files: chunks, XOR, head and checksums. Which nodes form a
 * group, and the messages between them, are in ckpt_xor.c.
 *
 * With three members a, b, c, each shard in two chunks, it looks so:
 *
 *   a keeps  b1 ^ c0     b keeps  a0 ^ c1     c keeps  a1 ^ b0
 *
 * Each chunk is at one other member, and no parity has a chunk of its keeper's
 * own. Where b is lost, b0 is c's parity and a1, and b1 is a's parity and c0: the
 * work is everybody's alike, as are room and traffic. */
#include "checkpoint/local/ckpt_parity.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/new.h"

#define PAGE 4096
#define MAGIC "TSPARITY"

struct head {
    char magic[8];
    uint32_t crc; /* of everything behind it, to the parity */
    uint32_t manifest_crc;
    int64_t step;
    int64_t bytes;
    int32_t set, member, members, zero;
};

static_assert(sizeof(struct head) == 48, "the file has no gaps");

#define CRC_FROM (offsetof(struct head, crc) + sizeof(uint32_t))

enum err ckpt_parity_path(char out[FSIO_PATH_MAX], const char *dir,
                          const struct ckpt_parity *parity)
{
    return fsio_path(out, "%s/" CKPT_PARITY_PREFIX "%05d-%02d", dir,
                     parity->set, parity->member);
}

/* --- chunks --- */

int64_t ckpt_parity_chunk_bytes(const struct ckpt_parity *parity,
                                const struct ckpt_manifest *manifest)
{
    assert(parity->members >= 2 && parity->members <= CKPT_PARITY_MEMBERS_MAX);
    int64_t largest = 0;
    for (int m = 0; m < parity->members; m++) {
        int shard = parity->shards[m];
        if (shard >= 0 && manifest->shards[shard].bytes > largest)
            largest = manifest->shards[shard].bytes;
    }
    return (largest + parity->members - 2) / (parity->members - 1);
}

int ckpt_parity_chunk(const struct ckpt_parity *parity, int of, int to)
{
    assert(of >= 0 && of < parity->members);
    assert(to >= 0 && to < parity->members);
    assert(of != to);
    return (to - of - 1 + parity->members) % parity->members;
}

int64_t ckpt_parity_inside(int64_t shard_bytes, int64_t offset, int64_t bytes)
{
    assert(bytes >= 0);
    int64_t left = shard_bytes - offset;
    if (left < 0)
        return 0;
    return left < bytes ? left : bytes;
}

void ckpt_parity_xor(void *to, const void *from, int64_t bytes)
{
    char *out = to;
    const char *in = from;
    const int64_t word = sizeof(uint64_t);
    int64_t i = 0;
    for (; i + word <= bytes; i += word) {
        uint64_t a, b;
        memcpy(&a, out + i, sizeof a);
        memcpy(&b, in + i, sizeof b);
        a ^= b;
        memcpy(out + i, &a, sizeof a);
    }
    for (; i < bytes; i++)
        out[i] = (char)(out[i] ^ in[i]);
}

/* --- the file --- */

static int64_t block_count(const struct ckpt_parity *parity)
{
    return ckpt_manifest_block_count(parity->bytes);
}

int64_t ckpt_parity_offset(const struct ckpt_parity *parity)
{
    int64_t head =
        (int64_t)sizeof(struct head) +
        (int64_t)sizeof(uint32_t) * (parity->members + block_count(parity));
    return (head + PAGE - 1) / PAGE * PAGE;
}

static int64_t block_bytes(const struct ckpt_parity *parity, int64_t block)
{
    return ckpt_parity_inside(parity->bytes, block * CKPT_BLOCK_BYTES,
                              CKPT_BLOCK_BYTES);
}

/* Behind the fixed part of the head: the number of each member's shard, and then
 * the CRC of each block. */
static uint32_t *numbers_of(void *file)
{
    return (uint32_t *)(void *)((char *)file + sizeof(struct head));
}

static uint32_t head_crc(const void *file, const struct ckpt_parity *parity)
{
    return crc32c(0, (const char *)file + CRC_FROM,
                  (size_t)ckpt_parity_offset(parity) - CRC_FROM);
}

void ckpt_parity_seal(const struct ckpt_parity *parity, void *file)
{
    assert(parity->bytes > 0 && parity->member >= 0);
    assert(parity->member < parity->members);
    char *data = (char *)file + ckpt_parity_offset(parity);
    /* The sum of the head is of all that stands behind it, so it comes last. */
    struct head head = { .manifest_crc = parity->manifest_crc,
                         .step = parity->step,
                         .bytes = parity->bytes,
                         .set = parity->set,
                         .member = parity->member,
                         .members = parity->members };
    memcpy(head.magic, MAGIC, sizeof head.magic);
    memcpy(file, &head, sizeof head);
    uint32_t *numbers = numbers_of(file);
    for (int m = 0; m < parity->members; m++)
        *numbers++ = (uint32_t)parity->shards[m];
    for (int64_t b = 0; b < block_count(parity); b++)
        *numbers++ = crc32c(0, data + b * CKPT_BLOCK_BYTES,
                            (size_t)block_bytes(parity, b));
    head.crc = head_crc(file, parity);
    memcpy(file, &head, sizeof head);
}

static enum err damaged(const char *path, const char *what)
{
    return err_set(ERR_CHECKPOINT, "%s: parity file: %s", path, what);
}

/* Nothing of the head is believed before its sum is right, but the length of
 * what is summed stands in it. So the fixed part is held to limits first, and
 * must give the very size that the file has. */
static enum err read_fixed(int fd, const char *path, struct head *head,
                           struct ckpt_parity *out)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return err_errno("%s: stat", path);
    if (status.st_size < PAGE)
        return damaged(path, "truncated");
    TRY(fsio_pread(fd, head, sizeof *head, 0, path));
    if (memcmp(head->magic, MAGIC, sizeof head->magic) != 0 ||
        head->members < 2 || head->members > CKPT_PARITY_MEMBERS_MAX ||
        head->member < 0 || head->member >= head->members || head->set < 0 ||
        head->bytes < 1 || head->bytes >= status.st_size)
        return damaged(path, "damaged head");
    *out = (struct ckpt_parity){ .step = head->step,
                                 .bytes = head->bytes,
                                 .manifest_crc = head->manifest_crc,
                                 .set = head->set,
                                 .member = head->member,
                                 .members = head->members };
    if (ckpt_parity_offset(out) + out->bytes != status.st_size)
        return damaged(path, "has another size than it says");
    return ERR_OK;
}

static enum err check_head(const char *path, const struct head *head,
                           void *file, const struct ckpt_manifest *manifest,
                           uint32_t manifest_crc, struct ckpt_parity *out)
{
    if (head_crc(file, out) != head->crc)
        return damaged(path, "damaged head (its CRC32C does not match)");
    if (out->manifest_crc != manifest_crc || out->step != manifest->step)
        return damaged(path, "belongs to another manifest");
    for (int m = 0; m < out->members; m++) {
        int32_t shard = (int32_t)numbers_of(file)[m];
        if (shard < -1 || shard >= manifest->shard_count)
            return damaged(path, "names a shard that the manifest lacks");
        out->shards[m] = shard;
    }
    if (ckpt_parity_chunk_bytes(out, manifest) != out->bytes)
        return damaged(path, "does not fit its shards");
    return ERR_OK;
}

static enum err check_blocks(int fd, const char *path,
                             const struct ckpt_parity *parity, void *file)
{
    enum err rc = ERR_OK;
    char *buffer = NULL;
    TRY(new_room(&buffer, CKPT_BLOCK_BYTES));
    for (int64_t b = 0; b < block_count(parity); b++) {
        int64_t at = ckpt_parity_offset(parity) + b * CKPT_BLOCK_BYTES;
        size_t bytes = (size_t)block_bytes(parity, b);
        uint32_t want = numbers_of(file)[parity->members + b];
        TRY_OUT(fsio_pread(fd, buffer, bytes, at, path));
        if (crc32c(0, buffer, bytes) != want)
            TRY_OUT(err_set(ERR_CHECKPOINT,
                            "%s: parity damaged in bytes [%" PRId64 ", %" PRId64
                            ") of the file",
                            path, at, at + (int64_t)bytes));
    }
out:
    free(buffer);
    return rc;
}

enum err ckpt_parity_read(const char *path,
                          const struct ckpt_manifest *manifest,
                          uint32_t manifest_crc, bool all,
                          struct ckpt_parity *out)
{
    enum err rc = ERR_OK;
    struct head head;
    char *file = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_errno("%s: open", path);
    TRY_OUT(read_fixed(fd, path, &head, out));
    size_t bytes = (size_t)ckpt_parity_offset(out);
    TRY_OUT(new_room(&file, bytes));
    TRY_OUT(fsio_pread(fd, file, bytes, 0, path));
    TRY_OUT(check_head(path, &head, file, manifest, manifest_crc, out));
    if (all)
        TRY_OUT(check_blocks(fd, path, out, file));
out:
    if (rc == ERR_DATA) /* it ended while it was read */
        rc = ERR_CHECKPOINT;
    free(file);
    close(fd);
    return rc;
}

/* Writing to a mapping that the file system can't back would be SIGBUS, so its
 * space is reserved first. */
enum err ckpt_map_file(const char *path, int64_t bytes, bool make,
                       struct ckpt_map *out)
{
    enum err rc = ERR_OK;
    int failed = 0;
    int fd = -1;
    assert(bytes > 0);
    *out = (struct ckpt_map){ 0 };
    if (make) {
        /* very many shards are in folders of their own */
        char parent[FSIO_PATH_MAX];
        TRY_OUT(fsio_parent(path, parent));
        TRY_OUT(fsio_mkdirs(parent));
    }
    fd = make ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)
              : open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        TRY_OUT(err_errno("%s: open", path));
    if (make)
        failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed != 0) {
        errno = failed;
        TRY_OUT(err_errno("%s: reserve %lld bytes", path, (long long)bytes));
    }
    void *data =
        mmap(NULL, (size_t)bytes, make ? PROT_READ | PROT_WRITE : PROT_READ,
             MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        TRY_OUT(err_errno("%s: map", path));
    *out = (struct ckpt_map){ .data = data, .bytes = (size_t)bytes };
out:
    fsio_close(fd);
    return rc;
}

void ckpt_map_release(struct ckpt_map *map)
{
    if (map->data != NULL)
        munmap(map->data, map->bytes);
    *map = (struct ckpt_map){ 0 };
}
