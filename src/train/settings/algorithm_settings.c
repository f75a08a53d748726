/* The table of the algorithms' settings, made of the rows of the header: a kind
 * of list items for each algorithm, in the order of ALGORITHMS, which is that of
 * the table of their functions (src/train/run/algorithm.c) as well. */
#include "src/train/settings/algorithm_settings.h"

#define ROW(kind, type, field, ...)                                            \
    SETTINGS_ROW(offsetof(struct algorithm_##kind, field), #field, type,       \
                 __VA_ARGS__),
#define SCHEMA(name, settings, help)                                           \
    static const struct setting name##_schema[] = { settings(ROW) };
#define KIND(name_, settings, help_)                                           \
    { .name = #name_,                                                          \
      .help = help_,                                                           \
      .schema = name_##_schema,                                                \
      .count = (int)(sizeof name_##_schema / sizeof name_##_schema[0]) },

ALGORITHMS(SCHEMA)

const struct settings_kind algorithm_kinds[] = { ALGORITHMS(KIND){ 0 } };
