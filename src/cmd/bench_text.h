/* Text for benchmarks that train from a data set. */
#ifndef TESSERA_CMD_BENCH_TEXT_H
#define TESSERA_CMD_BENCH_TEXT_H

#include <stdint.h>

#include "src/base/err.h"

/* Make the data set `data`, byte by byte in samples of seq_len tokens, 8 MiB of
 * them; `dir` exists and is for scratch files. */
enum err bench_text(const char *dir, const char *data, int64_t seq_len);

#endif
