/* tessera-bench ckpt, the process that starts the ranks. */
#include "src/cmd/bench_ckpt.h"

#include "src/cmd/bench_ranks.h"

enum err bench_ckpt(const struct bench_options *options, json_t **result)
{
    return bench_ranks("ckpt", options, result);
}
