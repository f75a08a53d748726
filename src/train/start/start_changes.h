/* What has changed in the settings since the attempt before. */
#pragma once

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* Compares with the run directory's config.cfg, which is to be overwritten
 * next: each setting that differs is logged with both values, as a warning if
 * it decides the result, and all of them are the ledger's event "settings". A
 * learning rate that goes on at another value than it would have is a warning
 * with the settings that keep it, as is another evaluation set than the
 * checkpoint's, under whatever name. Rank 0 alone, after the state is restored.
 * A config.cfg that can't be read is a warning; only the ledger can fail. */
enum err start_changes_tell(const struct trainer *trainer);
