/* Words of the tables in arch.c, arch_tensors.c and arch_gguf.c. */
#pragma once

#include "src/formats/arch/arch.h"

#define AT(field) offsetof(struct arch_values, model.field)
#define NUMBER(key, kind_, at, low, high, otherwise)                           \
    {                                                                          \
        .name = (key), .kind = (kind_), .offset = (at), .absent = (otherwise), \
        .min = (low), .max = (high)                                            \
    }
#define INT(key, field, low, high, otherwise)                                  \
    NUMBER(key, ARCH_INT, AT(field), low, high, otherwise)
#define REAL(key, field, low, high, otherwise)                                 \
    NUMBER(key, ARCH_REAL, AT(field), low, high, otherwise)
#define WHOLE(key, field, low, high, otherwise)                                \
    NUMBER(key, ARCH_WHOLE, AT(field), low, high, otherwise)
#define CLIP(key, field, high) NUMBER(key, ARCH_CLIP, AT(field), 0, high, "0")
#define DROPOUT(key, field, otherwise) REAL(key, field, 0, 0.99, otherwise)
#define HEAD_DIM(key, low, otherwise)                                          \
    NUMBER(key, ARCH_INT, offsetof(struct arch_values, head_dim), low, 65536,  \
           otherwise)
/* The library adds up a token's choices, as if each were all of them. */
#define BALANCE(key, otherwise)                                                \
    NUMBER(key, ARCH_REAL, offsetof(struct arch_values, balance), 0, 1e3,      \
           otherwise)
#define QUERY_SCALAR(key, otherwise)                                           \
    NUMBER(key, ARCH_WHOLE, offsetof(struct arch_values, query_scalar), 1e-6,  \
           1e9, otherwise)
#define WINDOW(key, otherwise)                                                 \
    NUMBER(key, ARCH_LENGTH, AT(window), 0, 1e12, otherwise)
#define BOOL(key, field, otherwise)                                            \
    NUMBER(key, ARCH_BOOL, AT(field), 0, 0, otherwise)
#define ONE(key, field, otherwise)                                             \
    NUMBER(key, ARCH_ONE, AT(field), 0, 0, otherwise)
#define ATTENTION_BIAS(key)                                                    \
    NUMBER(key, ARCH_BOOL, offsetof(struct arch_values, attention_bias), 0, 0, \
           "false")
#define NAME(key, field, names_, otherwise)                                    \
    {                                                                          \
        .name = (key), .kind = ARCH_NAME, .offset = AT(field),                 \
        .absent = (otherwise), .names = (names_)                               \
    }
#define MUST(key, values, otherwise)                                           \
    {                                                                          \
        .name = (key), .kind = ARCH_MUST, .absent = (otherwise),               \
        .allowed = (values)                                                    \
    }
#define FULL(key) NUMBER(key, ARCH_FULL, 0, 0, 0, "")
#define LAYERS(key) NUMBER(key, ARCH_LAYERS, AT(window_interval), 0, 0, "null")
#define TURNS(key, field) NUMBER(key, ARCH_TURNS, AT(field), 0, 0, "")
#define NOTHING(key) NUMBER(key, ARCH_NOTHING, 0, 0, 0, "")

/* Tensors. */
#define T_PART(role, name, part)                                               \
    {                                                                          \
        PARAM_##role, name, ARCH_##part, false                                 \
    }
#define T_ONE(role, name) T_PART(role, name, WHOLE_PARAM)
#define T_TURNED(role, name)                                                   \
    {                                                                          \
        PARAM_##role, name, ARCH_WHOLE_PARAM, true                             \
    }

/* Names of tensors in safetensors files (arch_tensors.c). */
extern const struct arch_tensor arch_tensors_llama[], arch_tensors_mistral[],
    arch_tensors_phi3[], arch_tensors_qwen2[], arch_tensors_qwen3[],
    arch_tensors_olmo2[], arch_tensors_gemma3[], arch_tensors_mixtral[],
    arch_tensors_qwen3_moe[], arch_tensors_gpt2[], arch_tensors_mpt[],
    arch_tensors_dbrx[];
