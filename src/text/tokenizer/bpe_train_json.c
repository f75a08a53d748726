/* A learned vocabulary as a tokenizer.json, as the Hugging Face library writes
 * one of a byte-level BPE.
 *
 * The Hugging Face library then encodes as bpe_train.c has learned: the file
 * says how texts are divided into words, too, and with other words the same
 * merges give other tokens. */
#include <assert.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/tokenizer/bpe_train.h"
#include "src/text/tokenizer/bpe_train_impl.h"
#include "src/base/jsontext.h"

/* Llama 3's words. */
#define BPE_TRAIN_LLAMA3_PATTERN                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"   \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static json_t *bpe_train_byte_level(bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     (int)use_regex);
}

static json_t *bpe_train_pre_tokenizer(enum bpe_train_pattern pattern)
{
    if (pattern == BPE_TRAIN_GPT2)
        return bpe_train_byte_level(true);
    json_t *first =
        pattern == BPE_TRAIN_DIGITS
            ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
            : json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
                        "Regex", BPE_TRAIN_LLAMA3_PATTERN, "behavior",
                        "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers",
                     first, bpe_train_byte_level(pattern == BPE_TRAIN_DIGITS));
}

static const char *bpe_train_text(const struct bpe_train *train, size_t token)
{
    return (const char *)train->text.data + train->token[token].first;
}

static json_t *bpe_train_vocab(const struct bpe_train *train)
{
    json_t *vocab = json_object();
    for (size_t t = 0; t < train->count; t++)
        jsontext_set_part(&vocab, bpe_train_text(train, t),
                          train->token[t].bytes, json_integer((int)t));
    return vocab;
}

/* "a b", in order. No token that is merged has a blank in its text. */
static json_t *bpe_train_merges(const struct bpe_train *train)
{
    json_t *merges = json_array();
    for (size_t m = 0; m < train->merges; m++) {
        const struct bpe_train_merge *merge = &train->merge[m];
        size_t a = (size_t)merge->a, b = (size_t)merge->b;
        jsontext_append(&merges,
                        json_sprintf("%.*s %.*s", (int)train->token[a].bytes,
                                     bpe_train_text(train, a),
                                     (int)train->token[b].bytes,
                                     bpe_train_text(train, b)));
    }
    return merges;
}

static json_t *bpe_train_added(const struct bpe_train *train)
{
    json_t *added = json_array();
    for (size_t i = 0; i < train->options->special_count; i++)
        jsontext_append(&added,
                        json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                  (int)i, "content", train->options->special[i],
                                  "single_word", 0, "lstrip", 0, "rstrip", 0,
                                  "normalized", 0, "special", 1));
    return added;
}

enum err bpe_train_json(const struct bpe_train *train, char **text)
{
    assert(train != NULL && text != NULL);
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, "
        "s:b, s:b, s:b, s:o, s:o}}",
        "version", "1.0", "truncation", "padding", "added_tokens",
        bpe_train_added(train), "normalizer", "pre_tokenizer",
        bpe_train_pre_tokenizer(train->options->pattern), "post_processor",
        bpe_train_byte_level(true), "decoder", bpe_train_byte_level(true),
        "model", "type", "BPE", "dropout", "unk_token",
        "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
        "byte_fallback", 0, "ignore_merges", 0, "vocab", bpe_train_vocab(train),
        "merges", bpe_train_merges(train));
    *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    return *text != NULL ? ERR_OK
                         : err_set(ERR_MEMORY, "no memory for a tokenizer");
}

json_t *bpe_train_config(json_t *bos, json_t *eos, json_t *pad)
{
    if (pad == NULL)
        pad = json_incref(eos);
    return json_pack("{s:s, s:[s, s], s:s, s:b, s:o*, s:o*, s:o*}",
                     "tokenizer_class", "PreTrainedTokenizerFast",
                     "model_input_names", "input_ids", "attention_mask",
                     "padding_side", "left", "clean_up_tokenization_spaces", 0,
                     "bos_token", bos, "eos_token", eos, "pad_token", pad);
}
