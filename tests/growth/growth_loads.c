#include "tests/growth/growth.h"
const struct growth_row growth_loads[] = { { 0 } };
const struct growth_row growth_saves[] = { { 0 } };
