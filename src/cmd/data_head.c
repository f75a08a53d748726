/* tessera-data head: samples of a data set, as text, tokens, or a column. */
#include <stdio.h>

#include "src/cmd/data_columns.h"
#include "src/cmd/data_tools.h"
#include "src/data/prepare/describe.h"
#include "src/data/prepare/show.h"
#include "src/job/stop.h"

#define HEAD_SAMPLES 3 /* of text */

enum err data_head(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct dataset *dataset = NULL;
    const struct show_options show = {
        .first = options->from,
        .count = options->count < INT64_MAX ? options->count : HEAD_SAMPLES,
        .stop = stop_requested,
    };
    if (options->tokens && options->column != NULL)
        return err_set(ERR_USAGE, "--tokens and --column: give one of them");
    if (options->column != NULL || options->raw)
        return data_columns_cat(options);
    TRY_OUT(dataset_open(options->operands[0], &dataset));
    TRY_OUT(options->tokens
                ? describe_print(dataset, options->from, options->count, stdout,
                                 stop_requested)
                : show_samples(dataset, &show, stdout));
out:
    dataset_close(dataset);
    return rc;
}
