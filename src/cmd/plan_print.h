/* How tessera-plan prints. */
#pragma once

#include "src/cmd/plan_figures.h"

/* A table for people. */
void plan_print(const struct plan_figures *figures);

/* One JSON object with every key, null where a number is not known. */
enum err plan_print_json(const struct plan_figures *figures);
