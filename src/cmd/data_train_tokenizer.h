/* tessera-data train-tokenizer. */
#pragma once

#include "src/base/err.h"
#include "src/cmd/data_options.h"

/* Keys of its options, above those of fine-tuning. */
enum data_train_tokenizer_key {
    DATA_TRAIN_TOKENIZER_PATTERN = 400,
    DATA_TRAIN_TOKENIZER_SPECIAL,
    DATA_TRAIN_TOKENIZER_FREQUENCY
};

/* Take the option `key` with getopt's value. */
enum err data_train_tokenizer_set(struct data_options *options,
                                  const char *name, int key);
enum err data_train_tokenizer_run(struct data_options *options);
