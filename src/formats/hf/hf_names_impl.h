/* What tables of names share: those of Hugging Face folders (hf_names.c) and
 * those of GGUF files (gguf_names.c). */
#pragma once

#include "src/formats/hf/hf_names.h"

enum hf_names_part {
    HF_NAMES_WHOLE,
    HF_NAMES_QUERIES, /* of Wqkv */
    HF_NAMES_KEYS,
    HF_NAMES_VALUES,
    HF_NAMES_QUERIES_PAIRS, /* rows in the order of pairs */
    HF_NAMES_KEYS_PAIRS,
    HF_NAMES_EACH /* one tensor for each expert; the name has %d for it */
};

struct hf_names_row {
    enum param_role role;
    const char *name; /* after the layer's prefix */
    enum hf_names_part part;
    bool transposed;
};

#define HF_NAMES_END                                                           \
    {                                                                          \
        PARAM_ROLES, NULL, HF_NAMES_WHOLE, false                               \
    }
#define HF_NAMES_ONE(role, name)                                               \
    {                                                                          \
        PARAM_##role, name, HF_NAMES_WHOLE, false                              \
    }
#define HF_NAMES_TURNED(role, name)                                            \
    {                                                                          \
        PARAM_##role, name, HF_NAMES_WHOLE, true                               \
    }
#define HF_NAMES_PART(role, name, part)                                        \
    {                                                                          \
        PARAM_##role, name, HF_NAMES_##part, false                             \
    }

struct hf_names_table {
    const char *what;   /* of which architecture it is, for messages */
    const char *layers; /* prefix of a layer's names, with %d for its number */
    const struct hf_names_row *rows;
};

/* As hf_names_create(). */
enum err hf_names_make(const struct hf_names_table *table,
                       const struct model_config *model,
                       const struct params *params, int64_t vocab,
                       struct hf_names **out);
