/* tessera-data tokenize --chat and --prompts. */
#pragma once

#include "src/base/err.h"
#include "src/cmd/data_options.h"

/* Takes --target-prompts, into a struct data_options. */
enum err data_finetune_targets(void *into, char *text);
/* Is it fine-tuning data that was asked for? */
bool data_finetune_asked(const struct data_options *options);
/* The command, once out and operands are known to be there. template: the text
 * of the model's own chat template, for want of --template; NULL: it has none. */
enum err data_finetune_run(struct data_options *options, const char *template);
