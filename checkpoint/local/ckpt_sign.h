/* The signature of a node-local checkpoint, file SIGNATURE beside its manifest:
 * HMAC-SHA256 of the manifest's text, which holds the checksums of all else. Who
 * does not have the key, the run's secret, can lay no checkpoint there that a run
 * believes; DESIGN.md says what that is good for, and what not. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

/* Keys are texts; NULL is "". */
enum err ckpt_sign(const char *checkpoint_dir, const char *key,
                   const char *manifest, size_t bytes);
bool ckpt_sign_is_good(const char *checkpoint_dir, const char *key,
                       const char *manifest, size_t bytes);
