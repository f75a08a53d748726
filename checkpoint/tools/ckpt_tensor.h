/* A tensor of a checkpoint as one array, whatever parts it is stored in: any
 * interval of the flattened tensor, each byte checked against its CRC before
 * it is given. Verified blocks are kept, so that walking a tensor in ascending
 * windows reads a block once, also where it is stored in up to
 * CKPT_TENSOR_BLOCKS boxes side by side. */
#pragma once

#include "checkpoint/files/ckpt_manifest.h"

/* Blocks of CKPT_BLOCK_BYTES that a reader keeps, its memory, of a tensor in as
 * many boxes; of one in intervals two. */
#define CKPT_TENSOR_BLOCKS 16
/* What those who walk a tensor ask for at a time. */
#define CKPT_TENSOR_WINDOW_BYTES ((int64_t)CKPT_BLOCK_BYTES)

struct ckpt_tensor_reader;

/* The manifest is lent and must outlive the reader. */
enum err ckpt_tensor_create(const char *checkpoint_dir,
                            const struct ckpt_manifest *manifest,
                            struct ckpt_tensor_reader **out);
void ckpt_tensor_destroy(struct ckpt_tensor_reader *reader);

/* Put elements [begin, end) of tensor number `tensor` into data. Damage is
 * ERR_CHECKPOINT. */
enum err ckpt_tensor_read(struct ckpt_tensor_reader *reader, int tensor,
                          int64_t begin, int64_t end, void *data);

/* Elements of this tensor's window that begins at element `at`. */
int64_t ckpt_tensor_window(const struct ckpt_tensor *tensor, int64_t at);
