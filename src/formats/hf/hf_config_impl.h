/* What the parts of hf_config share: tables of keys. */
#pragma once

#include <stddef.h>

#include "src/formats/hf/hf_config.h"

/* What keys are read into. */
struct hf_values {
    struct model_config model;
    int64_t head_dim;    /* 0: d_model / n_heads */
    int64_t window;      /* of attention; 0: none */
    bool attention_bias; /* of queries, keys, values and output */
    double balance;      /* model.balance_weight / model.experts_top_k */
};

enum hf_key_kind {
    HF_INT,    /* of a field; null is 0 */
    HF_REAL,   /* of a field; null is 0 */
    HF_WHOLE,  /* a real, written without a point where it is whole */
    HF_CLIP,   /* a real, written as null where it is 0 */
    HF_LENGTH, /* a whole number, written as null where it is 0 */
    HF_BOOL,   /* of a field */
    HF_NAME,   /* of an enum field: one of `names` */
    HF_MUST,   /* one of the values in the JSON array `allowed` */
    HF_FULL,   /* an array in which each element is "full_attention" */
    HF_NOTHING /* does not change what the model computes */
};

struct hf_name {
    const char *name; /* NULL: the end */
    int value;
};

/* `absent`: JSON of what the library takes where the key is not there; "":
 * nothing; NULL: the key must be there. */
struct hf_key {
    const char *name; /* "attn_config.clip_qkv": of an object within */
    enum hf_key_kind kind;
    size_t offset;
    const char *absent;
    double min, max;
    const char *allowed;
    const struct hf_name *names;
};

struct hf_arch_row {
    const char *name;
    const char *model_type;
    const char *also; /* another name of the same, or NULL */
    enum model_positions positions;
    enum model_norm_kind norm;
    enum model_ffn ffn;
    enum model_activation activation;
    double router_normalize;
    bool bias, qkv_bias;
    const struct hf_key *keys; /* up to one without a name */
};

extern const struct hf_arch_row hf_config_archs[HF_ARCHS];
/* Keys that any file may have. */
extern const struct hf_key hf_config_common[];
