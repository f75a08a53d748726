/* The data sets of data.mixture. */
#pragma once

#include "src/base/err.h"
#include "src/train/start/run_data.h"

/* Open them into `data`, with what identifies all. Those that were opened
 * before a failure are the caller's to close. */
enum err run_data_mixture(const struct train_settings *s,
                          struct run_data *data);
