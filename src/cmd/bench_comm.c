/* tessera-bench comm, the process that starts the ranks. */
#include "src/cmd/bench_comm.h"

#include "src/cmd/bench_ranks.h"

enum err bench_comm(const struct bench_options *options, json_t **result)
{
    return bench_ranks("comm", options, result);
}
