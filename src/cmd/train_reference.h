/* The tables of what a run can do, as Markdown: docs/reference/training.md. */
#ifndef TESSERA_CMD_TRAIN_REFERENCE_H
#define TESSERA_CMD_TRAIN_REFERENCE_H

#include <stdio.h>

void train_reference(FILE *out);

#endif
