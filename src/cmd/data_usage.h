/* The usage of tessera-data. */
#pragma once

#include <stdio.h>

/* Commands, and their options. */
void data_usage(FILE *out);
