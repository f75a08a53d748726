/* tessera-data head: the first samples of a data set, as text. */
#include <stdio.h>

#include "src/cmd/data_tools.h"
#include "src/data/prepare/show.h"
#include "src/job/stop.h"

#define HEAD_SAMPLES 3

enum err data_head(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct dataset *dataset = NULL;
    const struct show_options show = {
        .first = options->from,
        .count = options->count < INT64_MAX ? options->count : HEAD_SAMPLES,
        .tokens = options->tokens,
        .stop = stop_requested,
    };
    TRY_OUT(data_one_folder(options));
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(show_samples(dataset, &show, stdout));
out:
    dataset_close(dataset);
    return rc;
}
