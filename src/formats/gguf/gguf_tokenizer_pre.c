/* Pre-tokenizers by name: those of the models' own tokenizer.json files, which
 * is what programs that read GGUF do by these names.
 *
 * A file says "llama-bpe" where tokenizer.json has a regular expression, and to
 * divide texts otherwise than the model was trained would give other tokens for
 * the same text without a word. So names stand here with what they mean, and
 * one that does not is refused. Writing, the way back is the same table: the
 * parts of a tokenizer.json are compared with those that each row would make.
 */
#include "src/formats/gguf/gguf_tokenizer_pre.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/text/tokenizer/bpe_train.h"

#include <assert.h>
#include <string.h>

/* instead of a pattern: digits one by one */
static const char pre_digits[] = "digits";

#define PRE_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define PRE_SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* that of GPT-4 but for the length of numbers */
#define PRE_WORDS(numbers)                                                     \
    PRE_CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" numbers                 \
                     "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" PRE_SPACES
/* words that begin with a capital letter, and those that do not */
#define PRE_CASED(behind, numbers)                                             \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*"              \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+" behind                                    \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"             \
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*" behind "|" numbers                        \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" PRE_SPACES

static const struct gguf_tokenizer_pre pre_known[] = {
    { .name = { "gpt-2", "mpt", "olmo", "phi-2" }, .gpt2 = true },
    { .name = { "smollm", "starcoder", "refact" },
      .step = { pre_digits },
      .gpt2 = true },
    { .name = { "llama-bpe", "llama3", "llama-v3" },
      .step = { PRE_WORDS("\\p{N}{1,3}") },
      .whole = true,
      .bos = true },
    { .name = { "dbrx" }, .step = { PRE_WORDS("\\p{N}{1,3}") } },
    { .name = { "qwen2" }, .step = { PRE_WORDS("\\p{N}") }, .nfc = true },
    { .name = { "gpt-4o" },
      .step = { PRE_CASED(PRE_CONTRACTIONS "?", "\\p{N}{1,3}") } },
    { .name = { "tekken" },
      .step = { PRE_CASED("", "\\p{N}") },
      .whole = true,
      .bos = true },
    { .name = { "deepseek-coder" },
      .step = { "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+",
                "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", pre_digits } },
    { .name = { "deepseek-v3" },
      .step = { "\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                " ?[\\p{P}\\p{S}]+[\\r\\n]*|" PRE_SPACES } },
};

#define PRE_KNOWN (sizeof pre_known / sizeof *pre_known)

const struct gguf_tokenizer_pre *gguf_tokenizer_pre_find(const char *name,
                                                         size_t bytes)
{
    for (size_t p = 0; p < PRE_KNOWN; p++)
        for (int i = 0;
             i < GGUF_TOKENIZER_PRE_NAMES && pre_known[p].name[i] != NULL; i++)
            if (strlen(pre_known[p].name[i]) == bytes &&
                memcmp(pre_known[p].name[i], name, bytes) == 0)
                return &pre_known[p];
    return NULL;
}

void gguf_tokenizer_pre_names(char *out, size_t size)
{
    assert(out != NULL && size > 0);
    out[0] = '\0';
    for (size_t p = 0; p < PRE_KNOWN; p++)
        for (int i = 0;
             i < GGUF_TOKENIZER_PRE_NAMES && pre_known[p].name[i] != NULL; i++)
            clean_join(out, size, ", ", "%s", pre_known[p].name[i]);
}

json_t *gguf_tokenizer_pre_normalizer(const struct gguf_tokenizer_pre *pre)
{
    return pre->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
}

static json_t *pre_step(const char *step)
{
    return step == pre_digits ? json_pack("{s:s, s:b}", "type", "Digits",
                                          "individual_digits", 1)
                              : json_pack("{s:s, s:{s:s}, s:s, s:b}", "type",
                                          "Split", "pattern", "Regex", step,
                                          "behavior", "Isolated", "invert", 0);
}

json_t *gguf_tokenizer_pre_tokenizer(const struct gguf_tokenizer_pre *pre)
{
    json_t *bytes = bpe_train_byte_level(false, pre->gpt2);
    if (pre->step[0] == NULL)
        return bytes;
    json_t *steps = json_array();
    for (int i = 0; i < GGUF_TOKENIZER_PRE_STEPS && pre->step[i] != NULL; i++)
        jsontext_append(&steps, pre_step(pre->step[i]));
    jsontext_append(&steps, bytes);
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}

/* --- the other way round --- */

/* What does not change tokens, and forms of the same. */
static void pre_strip(json_t *value)
{
    const char *key;
    json_t *inner;
    size_t i;
    json_object_del(value, "trim_offsets");
    json_object_foreach(value, key, inner)
    {
        pre_strip(inner);
    }
    json_array_foreach(value, i, inner)
    {
        pre_strip(inner);
    }
}

/* A part that is not there, or an empty list of steps, does nothing. */
static bool pre_is_nothing(const json_t *part)
{
    const json_t *steps = json_object_get(part, "normalizers");
    return part == NULL ||
           (json_is_array(steps) && json_array_size(steps) == 0);
}

/* Takes `made`; *whole false: there was no memory to tell. */
static bool pre_same(const json_t *there, json_t *made, bool *whole)
{
    /* compared as JSON, without what makes no difference to tokens */
    json_t *copy = pre_is_nothing(there) ? json_null() : json_deep_copy(there);
    *whole = *whole && copy != NULL && made != NULL;
    pre_strip(copy);
    pre_strip(made);
    bool same = json_equal(copy, made) != 0;
    json_decref(copy);
    json_decref(made);
    return same;
}

/* All that the tokenizers of files with a name have in common. */
static bool pre_is_plain(const json_t *model)
{
    static const char *const nothing[] = { "dropout",
                                           "continuing_subword_prefix",
                                           "end_of_word_suffix" };
    const char *type = json_string_value(json_object_get(model, "type"));
    for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) {
        const json_t *value = json_object_get(model, nothing[i]);
        bool empty = json_is_string(value) && json_string_length(value) == 0;
        if (value != NULL && !json_is_null(value) && !empty)
            return false;
    }
    /* what falls back to bytes needs tokens for them, and of bytes in
     * characters none is unknown */
    return type != NULL && strcmp(type, "BPE") == 0 &&
           json_object_get(json_object_get(model, "vocab"), "<0x00>") == NULL;
}

enum err gguf_tokenizer_pre_of(const json_t *root, const char **name)
{
    bool memory = true;
    const json_t *model = json_object_get(root, "model");
    bool whole = json_is_true(json_object_get(model, "ignore_merges"));
    *name = NULL;
    if (!pre_is_plain(model))
        return ERR_OK;
    for (size_t p = 0; p < PRE_KNOWN && *name == NULL; p++) {
        const struct gguf_tokenizer_pre *pre = &pre_known[p];
        if (pre->whole == whole &&
            pre_same(json_object_get(root, "normalizer"),
                     gguf_tokenizer_pre_normalizer(pre), &memory) &&
            pre_same(json_object_get(root, "pre_tokenizer"),
                     gguf_tokenizer_pre_tokenizer(pre), &memory))
            *name = pre->name[0];
    }
    return memory ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}
