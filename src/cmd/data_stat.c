/* tessera-data stat: what is in a data set. */
#include <stdio.h>
#include <stdlib.h>

#include "src/cmd/data_tools.h"
#include "src/data/prepare/census.h"
#include "src/job/stop.h"

enum err data_stat(struct data_options *options)
{
    enum err rc = ERR_OK;
    struct census census;
    char *text = NULL;
    TRY_OUT(data_one_folder(options));
    TRY_OUT(
        census_dataset(options->operands[0], true, stop_requested, &census));
    TRY_OUT(census_format(&census, options->json, &text));
    fputs(text, stdout);
out:
    free(text);
    return rc;
}
