/* tessera-data info --columns, and head --column: looks at any MDS data set, without a
 * sidecar. */
#pragma once

#include "src/base/err.h"
#include "src/cmd/data_options.h"

/* Name, encoding and size of each column, a line each. */
enum err data_columns_list(const char *folder);

/* The column of samples [from, from + count), a line each; raw: its bytes with
 * nothing between them. */
enum err data_columns_cat(const struct data_options *options);
