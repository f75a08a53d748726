/* Parity files: the XOR of shards of other nodes, from which any one lost shard
 * of a set is made again.
 *
 * A set has one member on each of N >= 2 nodes. Every member's shard, filled up
 * with zeros to (N - 1) * C bytes, is cut into N - 1 chunks of C, one for each
 * other member; member k keeps the XOR of the N - 1 chunks that are meant for
 * it. Chunk c of member m is meant for member (m + 1 + c) mod N. Who loses a
 * member finds each of its chunks as the XOR of that parity and of what the
 * others gave to it. A set of two is a copy.
 *
 * The file is a head of whole 4 KiB pages and the parity:
 *
 *   "TSPARITY", CRC32C of the head behind this number, CRC32C of MANIFEST.json,
 *   step, C (64 bits each), set, member, N, 0,
 *   number of each member's shard in the manifest (-1: it has none),
 *   CRC32C of each CKPT_BLOCK_BYTES of parity, zeros
 *
 * all 32 bits, little-endian, where nothing else is said. So no byte of it can
 * change unseen, and it is of use with its own manifest only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "src/base/err.h"
#include "src/base/fsio.h"

#define CKPT_PARITY_MEMBERS_MAX 32
#define CKPT_PARITY_PREFIX "parity-"

struct ckpt_parity {
    int64_t step;
    int64_t bytes; /* of the parity: one chunk */
    uint32_t manifest_crc;
    int set, member, members;
    int shards[CKPT_PARITY_MEMBERS_MAX]; /* of the members; -1: none */
};

/* DIR/parity-SET-MEMBER */
enum err ckpt_parity_path(char out[FSIO_PATH_MAX], const char *dir,
                          const struct ckpt_parity *parity);

/* Bytes of a chunk; 0 when no member has a shard. */
int64_t ckpt_parity_chunk_bytes(const struct ckpt_parity *parity,
                                const struct ckpt_manifest *manifest);
/* Which chunk of member `of` is meant for member `to`; they differ. */
int ckpt_parity_chunk(const struct ckpt_parity *parity, int of, int to);
/* How many of the bytes [offset, offset + bytes) a shard of so many bytes has;
 * what is behind its end counts as zeros. */
int64_t ckpt_parity_inside(int64_t shard_bytes, int64_t offset, int64_t bytes);

/* to[i] ^= from[i] */
void ckpt_parity_xor(void *to, const void *from, int64_t bytes);

/* Where the parity begins in the file. */
int64_t ckpt_parity_offset(const struct ckpt_parity *parity);

/* Put the head before the parity, in the whole file as memory, zero before. */
void ckpt_parity_seal(const struct ckpt_parity *parity, void *file);

/* Read the head and, if wanted, check all parity. ERR_CHECKPOINT when it is
 * damaged, or of another manifest than this one, whose text has that CRC32C. */
enum err ckpt_parity_read(const char *path,
                          const struct ckpt_manifest *manifest,
                          uint32_t manifest_crc, bool all,
                          struct ckpt_parity *out);

/* A whole file as memory, for bytes that travel between nodes without a copy. */
struct ckpt_map {
    void *data; /* NULL: nothing is mapped */
    size_t bytes;
};

/* Map a file of `bytes` > 0 bytes to read it; or make it, with its folder, all
 * zero, its space reserved, to write it. */
enum err ckpt_map_file(const char *path, int64_t bytes, bool make,
                       struct ckpt_map *out);
/* Nothing mapped is fine. */
void ckpt_map_release(struct ckpt_map *map);
