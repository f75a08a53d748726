/* tessera-data split: a data set as several. */
#include <stdio.h>

#include "src/base/clean.h"
#include "src/cmd/data_tools.h"
#include "src/data/prepare/split.h"
#include "src/job/stop.h"

enum err data_split(struct data_options *options)
{
    const struct split_options split = {
        .out = options->tokenize.out,
        .parts = options->parts,
        .fraction = options->tokenize.eval_fraction,
        .shard_bytes = options->tokenize.shard_bytes,
        .show = true,
        .stop = stop_requested,
    };
    if (split.parts > 0 && split.fraction > 0)
        return err_set(ERR_USAGE,
                       "split takes one of --parts N and --fraction F");
    TRY(split_set(options->operands[0], &split));
    if (split.parts > 0)
        clean_printf("%s/part.00000 and so on: %lld data sets\n", split.out,
                     (long long)split.parts);
    else
        clean_printf("%s/train, %s/eval: 2 data sets\n", split.out, split.out);
    return ERR_OK;
}
