/* tessera-data merge: several data sets as one. */
#include <inttypes.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/cmd/data_tools.h"
#include "src/data/prepare/merge.h"
#include "src/job/stop.h"

enum err data_merge(struct data_options *options)
{
    struct merge_result result;
    const char *out = options->tokenize.out;
    TRY(merge_sets(out, options->operands, options->operand_count,
                   stop_requested, &result));
    clean_printf("%s: %" PRId64 " samples, %" PRId64 " tokens, %" PRId64
                 " shards",
                 out, result.samples, result.tokens, result.shards);
    if (result.copied > 0)
        printf("; %" PRId64 " files could not be linked and are copies",
               result.copied);
    putchar('\n');
    return ERR_OK;
}
