/* The copy that training waits for. memcpy() of one tensor takes nearly twice
 * as long as that of the whole state: it reads what it overwrites and drives
 * the training's data out of the cache. Stores past the cache do neither. */
#pragma once

#include <stddef.h>

#define CKPT_STAGE_ALIGN ((size_t)4096)

/* `to` is aligned to CKPT_STAGE_ALIGN. */
void ckpt_stage_copy(void *to, const void *from, size_t bytes);
