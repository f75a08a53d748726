/* The commands of tessera-data that look at data sets and make others of them:
 * data_NAME.c each. */
#pragma once

#include "src/cmd/data_options.h"

enum err data_head(struct data_options *options);
enum err data_merge(struct data_options *options);
enum err data_split(struct data_options *options);
