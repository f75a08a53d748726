/* The usage of tessera-data. */
#ifndef TESSERA_CMD_DATA_USAGE_H
#define TESSERA_CMD_DATA_USAGE_H

#include <stdio.h>

/* Commands, and their options. */
void data_usage(FILE *out);

#endif
