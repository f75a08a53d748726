/* The architectures whose files are read and written: a row each.
 *
 * A row has what all its models share, and for each kind of file its name
 * there, the keys of its configuration and the names of its tensors. Both are
 * tables that are read in both directions: arch_keys.h takes a configuration
 * through its keys, hf_names.h divides our parameters into the tensors of a
 * file. Who adds an architecture adds an entry of enum arch here, its row in
 * arch.c, its names in arch_tensors.c and, where there are GGUF files of it, its
 * form in arch_gguf.c. */
#pragma once

#include <stddef.h>

#include "src/model/model_config.h"
#include "src/model/params.h"

enum arch {
    ARCH_LLAMA,
    ARCH_MISTRAL, /* Llama whose layers may all have a window */
    ARCH_PHI3,    /* read alone: Mistral whose matrices lie in fewer tensors */
    ARCH_QWEN2,   /* Llama with biases of queries, keys and values alone */
    ARCH_QWEN3,   /* ... without these, with norms of each query and key */
    ARCH_OLMO2,   /* norms after the branches, and of all queries and keys */
    ARCH_OLMO3,   /* OLMo 2 with a window in three of four layers */
    ARCH_GEMMA3,  /* its texts: norms around of 1 + w, a scaled embedding */
    ARCH_SMOLLM3, /* Llama with layers whose positions do not turn */
    ARCH_GPT2,
    ARCH_MPT, /* ALiBi, no biases, tied */
    ARCH_MIXTRAL,
    ARCH_QWEN3_MOE,
    ARCH_DBRX,
    ARCHS
};

/* What keys are read into. */
struct arch_values {
    struct model_config model;
    int64_t head_dim;    /* 0: d_model / n_heads */
    bool plain_windows;  /* scaled angles are not for layers with a window */
    double query_scalar; /* model.attention_scale^-2 */
    bool root_embedding; /* model.embedding_scale is sqrt(d_model) */
    bool attention_bias; /* of queries, keys, values and output */
    double balance;      /* model.balance_weight / model.experts_top_k */
};

enum arch_kind {
    ARCH_INT,    /* of a field; null is 0 */
    ARCH_REAL,   /* of a field; null is 0 */
    ARCH_WHOLE,  /* a real, written without a point where it is whole */
    ARCH_CLIP,   /* a real, written as null where it is 0 */
    ARCH_LENGTH, /* a whole number, written as null where it is 0 */
    ARCH_BOOL,   /* of a field */
    ARCH_ONE,    /* a real that is 1 or 0, as true and false */
    ARCH_NAME,   /* of an enum field: one of `names` */
    ARCH_LAYERS, /* an array, "full_attention" for each layer of an interval,
                    which is read into the field, else "sliding_attention" */
    ARCH_MUST,   /* one of the values in the JSON array `allowed` */
    ARCH_FULL,   /* an array in which each element is "full_attention" */
    ARCH_TURNS,  /* an array, 0 for each layer of an interval, which is read
                    into the field, and 1 for others */
    ARCH_NOTHING /* does not change what the model computes */
};

struct arch_name {
    const char *name; /* NULL: the end */
    int value;
};

/* `absent`: JSON of what is meant where the key is not there; "": nothing;
 * NULL: the key must be there. */
struct arch_key {
    const char *name; /* "attn_config.clip_qkv": of an object within */
    enum arch_kind kind;
    size_t offset; /* in struct arch_values */
    const char *absent;
    double min, max;
    const char *allowed;
    const struct arch_name *names;
};

enum arch_part {
    ARCH_WHOLE_PARAM,
    ARCH_QUERIES, /* of Wqkv */
    ARCH_KEYS,
    ARCH_VALUES,
    ARCH_QUERIES_PAIRS, /* rows in the order of pairs (gguf.h) */
    ARCH_KEYS_PAIRS,
    ARCH_UPPER, /* the first or second half of a tensor's rows */
    ARCH_LOWER,
    ARCH_EACH /* one tensor for each expert; the name has %d for it */
};

/* A tensor: which of our parameters it is, or which part of one. */
struct arch_tensor {
    enum param_role role;
    const char *name; /* after the layer's prefix */
    enum arch_part part;
    bool transposed;
};

/* An architecture in one kind of file. */
struct arch_form {
    const char *name;            /* "LlamaForCausalLM", "llama" */
    const char *layers;          /* prefix of a layer's tensors, with %d */
    const struct arch_key *keys; /* up to one without a name */
    const struct arch_tensor *tensors; /* up to one without a name */
};

struct arch_row {
    const char *title;      /* for messages */
    const char *model_type; /* of config.json */
    const char *also;       /* another of hf.name, or NULL */
    bool alias;             /* of a row above: not chosen for what is written */
    enum model_positions positions;
    enum model_norm_kind norm;
    enum model_ffn ffn;
    enum model_activation activation; /* where no key says */
    double router_normalize;
    enum model_qk_norm qk_norm;
    enum model_norm_place norm_place;
    int64_t window_interval;            /* where no key says */
    bool plain_windows, root_embedding; /* struct arch_values */
    bool norm_plus_one;
    bool bias, qkv_bias;
    struct arch_form hf;
    const struct arch_form *gguf; /* NULL: there are no such files */
    /* What names begin with in safetensors files, and lack in those of a model
     * without its output layer, as GPT-2's are published. */
    const char *prefix;
    const char *buffers; /* globs of tensors that are no weights */
};

extern const struct arch_row arch_rows[ARCHS];

/* Forms of GGUF files (arch_gguf.c). */
extern const struct arch_form arch_gguf_llama, arch_gguf_qwen2, arch_gguf_qwen3,
    arch_gguf_olmo2, arch_gguf_gpt2, arch_gguf_mpt;

/* The output layer in safetensors files: one of a tied model may have it once
 * more, and then it must be equal to the embedding. */
#define ARCH_HF_HEAD "lm_head.weight"
/* Ours, model.activation: programs that do not know it take that of the
 * architecture. GPT-2's is gelu_tanh, MPT's gelu where the key is not there. */
#define ARCH_GGUF_ACTIVATION "tessera.activation"
/* What such files say of llama3's angles is a table of what each is divided by,
 * a tensor; our keys, where they have some, say what it was made of. */
#define ARCH_GGUF_FREQS "rope_freqs.weight"
#define ARCH_GGUF_LLAMA3 "tessera.rope."

/* "Llama, Mistral, ..", for messages: all, or those of GGUF files. */
#define ARCH_KNOWN(has)                                                        \
    "Tessera " has " those of %s; see docs/elsewhere.md (share/tessera)"
#define ARCH_TITLES_BYTES 160
const char *arch_titles(bool gguf, char out[ARCH_TITLES_BYTES]);
