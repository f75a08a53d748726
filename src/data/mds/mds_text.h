/* JSON as Python's json module writes it with sorted keys, for an index.json
 * that is the same bytes: ", " and ": " between things, and ASCII only. */
#pragma once

#include <jansson.h>

#include "src/base/array.h"
#include "src/base/err.h"

/* Adds the value's text, and releases it; ERR_MEMORY where it is NULL. */
enum err mds_text_add(struct buffer *text, json_t *value);
