/* A copy of a checkpoint with another number of shards. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"

#define CKPT_RESHARD_RANKS_MAX 99999

/* Copy the checkpoint into the new folder `out`, as `ranks` ranks would have
 * written it: the payload, tensor after tensor, is cut into so many pieces of
 * equal bytes. Step, state and digest stay. Every byte read is checked. Memory
 * is that of one shard of the copy. `out` appears only when it is complete and
 * durable; a failure leaves nothing. ERR_USAGE when it exists or is named like
 * another step. *bytes: payload. */
enum err ckpt_reshard(const char *checkpoint_dir, const char *out, int ranks,
                      int64_t *bytes);
