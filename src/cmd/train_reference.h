/* The tables of what a run can do, as Markdown: docs/reference/training.md. */
#pragma once

#include <stdio.h>

void train_reference(FILE *out);
