/* The data set that tessera-hash trains on: the text of hash_text.h, cut into
 * samples. */
#pragma once

#include <stdint.h>

#include "src/base/err.h"
#include "src/base/fsio.h"

/* In a new folder in TMPDIR or /tmp, whose path it returns. */
enum err hash_data_create(int64_t samples, int64_t seq_len,
                          char folder[FSIO_PATH_MAX]);
/* "" is fine. */
void hash_data_remove(const char *folder);
