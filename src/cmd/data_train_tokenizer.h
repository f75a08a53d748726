/* tessera-data train-tokenizer. */
#pragma once

#include "src/base/err.h"
#include "src/cmd/data_options.h"

enum err data_train_tokenizer_run(struct data_options *options);
