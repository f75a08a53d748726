/* Large transfers between memory and one file, past the page cache where the
 * file system takes that, one after the other in a thread of its own, so that
 * the caller can compute checksums meanwhile. The next one waits in a queue, so
 * that the disk need not wait for the caller to wake up.
 *
 * Where O_DIRECT is refused, at open or at the first transfer, the same calls
 * go through the page cache. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* What direct transfers need of memory, offset and length. */
#define CKPT_IO_ALIGN 4096
/* Smaller files are not worth a wait for the disk. */
#define CKPT_IO_DIRECT_BYTES ((int64_t)1 << 20)
/* Transfers under way: one moves, one waits. */
#define CKPT_IO_QUEUE 2

struct ckpt_io;

/* Open a file, to read it or to overwrite it (or make it). The thread starts with
 * the first transfer. */
enum err ckpt_io_open(const char *path, bool writing, bool direct,
                      struct ckpt_io **out);
/* Waits for the transfer under way; NULL is fine. */
void ckpt_io_close(struct ckpt_io *io);

int ckpt_io_fd(const struct ckpt_io *io);

/* Begin a transfer, after waiting for a place in the queue. The memory stays
 * untouched until the transfer has ended. Its error is given by the next call
 * that waits; what stands behind it is dropped. */
enum err ckpt_io_start(struct ckpt_io *io, void *data, size_t bytes,
                       int64_t offset);
/* Wait until no more than the `left` latest are under way. */
enum err ckpt_io_drain(struct ckpt_io *io, int left);
/* Wait for all. *bytes is what the latest has transferred: a read that meets
 * the end of the file is short; NULL is fine. Waiting without a transfer gives
 * ERR_OK and 0. */
enum err ckpt_io_wait(struct ckpt_io *io, size_t *bytes);

/* Nothing is under way: transfers of the file go past the page cache from here
 * on, if that is how it was opened, or not. */
enum err ckpt_io_direct(struct ckpt_io *io, bool direct);

/* Aligned memory for transfers, released with free(). */
enum err ckpt_io_buffer(char **buffer, size_t bytes);
