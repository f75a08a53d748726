/* tessera-data tokenize --chat and --prompts. */
#pragma once

#include "src/base/err.h"
#include "src/cmd/data_options.h"

/* Rows of tokenize's table of options; keys above all letters. */
enum data_finetune_key {
    DATA_FINETUNE_CHAT = 300,
    DATA_FINETUNE_PROMPTS,
    DATA_FINETUNE_TEMPLATE,
    DATA_FINETUNE_RESPONSES,
    DATA_FINETUNE_TARGETS,
    DATA_FINETUNE_LONG,
    DATA_FINETUNE_PACKING
};
#define DATA_FINETUNE_OPTIONS                                                  \
    { "chat", no_argument, NULL, DATA_FINETUNE_CHAT },                         \
        { "prompts", no_argument, NULL, DATA_FINETUNE_PROMPTS },               \
        { "template", required_argument, NULL, DATA_FINETUNE_TEMPLATE },       \
        { "target-responses", required_argument, NULL,                         \
          DATA_FINETUNE_RESPONSES },                                           \
        { "target-prompts", required_argument, NULL, DATA_FINETUNE_TARGETS },  \
        { "too-long", required_argument, NULL, DATA_FINETUNE_LONG },           \
    {                                                                          \
        "packing", required_argument, NULL, DATA_FINETUNE_PACKING              \
    }
#define DATA_FINETUNE_DEFAULTS                                                 \
    {                                                                          \
        .rules = { .target_prompts = FINETUNE_NO_PROMPTS, .eos = -1 },         \
        .eos_token = -1                                                        \
    }

/* Take the option `key` with getopt's value. */
enum err data_finetune_set(struct data_options *options, const char *name,
                           int key);
/* The command, once out and operands are known to be there. template: the text
 * of the model's own chat template, for want of --template; NULL: it has none. */
enum err data_finetune_run(struct data_options *options, const char *template);
