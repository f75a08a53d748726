/* The cache of Hugging Face's hub on this machine: HF_HUB_CACHE, HF_HOME/hub or
 * ~/.cache/huggingface/hub, whose folders are models--ORG--NAME/snapshots/COMMIT, and
 * refs/BRANCH a commit. Nothing is fetched. */
#pragma once

#include <stdbool.h>

#include "src/base/fsio.h"

/* The snapshot of a branch, or of a commit, of "org/name"; false: it is not there. */
bool hub_cache_find(const char *name, const char *revision,
                    char out[FSIO_PATH_MAX]);
