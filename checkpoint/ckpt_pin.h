/* Pins: a checkpoint with a file PINNED in its folder is never deleted to make
 * room. The file holds the reason. */
#ifndef TESSERA_CHECKPOINT_CKPT_PIN_H
#define TESSERA_CHECKPOINT_CKPT_PIN_H

#include <stdbool.h>

#include "src/base/err.h"

/* Pin a committed checkpoint, or change the reason of its pin; ERR_CHECKPOINT
 * when the folder is none. */
enum err ckpt_index_pin(const char *checkpoint_dir, const char *reason);

/* One that is not pinned is fine. */
enum err ckpt_index_unpin(const char *checkpoint_dir);

bool ckpt_index_pinned(const char *checkpoint_dir);

#endif
