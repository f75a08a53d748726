/* Large transfers between memory and one file, past the page cache where the
 * file system takes that, one at a time in a thread of its own, so that the
 * caller can compute checksums meanwhile.
 *
 * Where O_DIRECT is refused, at open or at the first transfer, the same calls
 * go through the page cache. */
#ifndef TESSERA_CHECKPOINT_CKPT_IO_H
#define TESSERA_CHECKPOINT_CKPT_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* What direct transfers need of memory, offset and length. */
#define CKPT_IO_ALIGN 4096
/* Smaller files are not worth a wait for the disk. */
#define CKPT_IO_DIRECT_BYTES ((int64_t)1 << 20)

struct ckpt_io;

/* Open an existing file, to read it or to overwrite it. The thread starts with
 * the first transfer. */
enum err ckpt_io_open(const char *path, bool writing, bool direct,
                      struct ckpt_io **out);
/* Waits for the transfer under way; NULL is fine. */
void ckpt_io_close(struct ckpt_io *io);

int ckpt_io_fd(const struct ckpt_io *io);
/* Whether transfers still go past the page cache. */
bool ckpt_io_is_direct(const struct ckpt_io *io);

/* Begin a transfer; none may be under way, and the memory stays untouched until
 * ckpt_io_wait(), which gives its error. A read that meets the end of the file
 * is short; *bytes is what was transferred, NULL is fine. Waiting without a
 * transfer gives ERR_OK and 0. */
enum err ckpt_io_start(struct ckpt_io *io, void *data, size_t bytes,
                       int64_t offset);
enum err ckpt_io_wait(struct ckpt_io *io, size_t *bytes);

/* Aligned memory for transfers, released with free(); NULL: none left. */
void *ckpt_io_buffer(size_t bytes);

#endif
