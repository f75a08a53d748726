/* JSON as text in which a real number has as few digits as make it again: 1e-05
 * where jansson's own writer has 1.0000000000000001e-05. */
#pragma once

#include <jansson.h>

#include "src/base/err.h"

/* indent: blanks of a level, 0 for one line without blanks. Members have the
 * order in which they were set. *text is malloc'ed; ERR_MEMORY alone, also when
 * value is NULL. */
enum err jsontext_make(const json_t *value, int indent, char **text);

/* Such a number alone; "null" where it is not finite. */
#define JSONTEXT_NUMBER_BYTES 32
void jsontext_number(double value, char text[JSONTEXT_NUMBER_BYTES]);

/* A string, in which bytes that are no UTF-8 become '?': JSON is UTF-8, a path
 * need not be, nor an error text that was cut. NULL: out of memory. */
json_t *jsontext_string(const char *text);
