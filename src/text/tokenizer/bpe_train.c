/* The vocabulary that is learned, and the loop that learns it: take the pair
 * that occurs most often, make it a token, replace it in every word that has
 * it, and correct the counts of the pairs around (Sennrich et al. 2016).
 *
 * Counting all pairs again for every token would cost vocabulary times text.
 * Two things make it cheap. Text counts as distinct words with a number each,
 * of which even a large text has few; and a merge changes no pair but those
 * beside the ones that it replaces, so bpe_pairs.h keeps for each pair its
 * count and the words that may have it, and a heap of the counts. A step then
 * costs what it changes. Ties go to the pair of the smaller tokens, so the
 * vocabulary is a function of the text alone.
 *
 * The tokenizer.json is as the Hugging Face library writes one. It also says how
 * texts are divided into words, for with other words the same merges give other
 * tokens. */
#include "src/text/tokenizer/bpe_train.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/jsontext.h"
#include "src/base/map.h"
#include "src/base/new.h"
#include "src/text/tokenizer/bpe_pairs.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/unicode.h"

#define BPE_TRAIN_BYTES 256

/* A token as files write it: bytes as characters. */
struct bpe_train_token {
    size_t first; /* of its text */
    uint32_t bytes;
};

struct bpe_train_merge {
    int32_t a, b;
};

struct bpe_train {
    const struct bpe_train_options *options;
    struct buffer text; /* of all tokens */
    struct bpe_train_token *token;
    size_t count, capacity;
    struct map numbers; /* of tokens, by their texts */
    struct bpe_train_merge *merge;
    size_t merges, merge_capacity;
    int32_t of_byte[256];
};

/* The words as tokens, one behind the other. */
struct bpe_train_words {
    int32_t *token;
    size_t *first;   /* of each word's */
    uint32_t *count; /* tokens that it has left */
    int64_t *times;  /* that it occurs */
};

/* The token with this text, made if there is none. */
static enum err bpe_train_token(struct bpe_train *train, const uint8_t *text,
                                size_t bytes, int32_t *out)
{
    uint32_t hash = map_hash_bytes(text, bytes);
    for (size_t at = 0, i; map_next(&train->numbers, hash, &at, &i);) {
        const struct bpe_train_token *token = &train->token[i];
        *out = (int32_t)i;
        if (token->bytes == bytes &&
            memcmp(train->text.data + token->first, text, bytes) == 0)
            return ERR_OK;
    }
    assert(train->count < train->capacity);
    *out = (int32_t)train->count;
    TRY(map_add(&train->numbers, hash, train->count));
    train->token[train->count++] =
        (struct bpe_train_token){ train->text.bytes, (uint32_t)bytes };
    return buffer_add(&train->text, text, bytes);
}

/* A special token that text makes, too, would divide documents where none
 * ends. */
static enum err bpe_train_unlike(const struct bpe_train *train, int32_t token)
{
    size_t number = (size_t)token;
    if (number >= train->options->special_count)
        return ERR_OK;
    return err_set(ERR_USAGE,
                   "the special token %s is also a word of the text; take one "
                   "that no text has, such as <|%s|>",
                   train->options->special[number],
                   train->options->special[number]);
}

static enum err bpe_train_specials(struct bpe_train *train)
{
    const struct bpe_train_options *options = train->options;
    for (size_t i = 0; i < options->special_count; i++) {
        const uint8_t *text = (const uint8_t *)options->special[i];
        size_t bytes = strlen(options->special[i]), before = train->count;
        int32_t token = 0;
        if (bytes == 0 || bytes > 1024 || unicode_valid(text, bytes) < bytes)
            return err_set(ERR_USAGE, "a special token has to be UTF-8 text of "
                                      "1 to 1024 bytes");
        TRY(bpe_train_token(train, text, bytes, &token));
        if (train->count == before)
            return err_set(ERR_USAGE, "the special token %s is given twice",
                           options->special[i]);
    }
    return ERR_OK;
}

static enum err bpe_train_alphabet(struct bpe_train *train)
{
    struct byte_alphabet alphabet;
    byte_alphabet_fill(&alphabet);
    size_t points = sizeof alphabet.byte / sizeof alphabet.byte[0];
    for (size_t point = 0; point < points; point++) {
        uint8_t text[4];
        if (alphabet.byte[point] < 0)
            continue;
        size_t bytes = unicode_put((uint32_t)point, text);
        int32_t *token = &train->of_byte[alphabet.byte[point]];
        TRY(bpe_train_token(train, text, bytes, token));
        TRY(bpe_train_unlike(train, *token));
    }
    return ERR_OK;
}

static enum err bpe_train_fill(struct bpe_train *train)
{
    const struct bpe_train_options *options = train->options;
    int64_t least = (int64_t)options->special_count + BPE_TRAIN_BYTES;
    if (options->vocab_size < least ||
        options->vocab_size > BPE_TRAIN_VOCAB_MAX)
        return err_set(ERR_USAGE,
                       "--vocab-size has to be in [%lld, %lld], not %lld: "
                       "there are 256 bytes and %zu special tokens",
                       (long long)least, (long long)BPE_TRAIN_VOCAB_MAX,
                       (long long)options->vocab_size, options->special_count);
    train->capacity = (size_t)options->vocab_size;
    TRY(new_room(&train->token, train->capacity));
    TRY(bpe_train_specials(train));
    return bpe_train_alphabet(train);
}

enum err bpe_train_create(const struct bpe_train_options *options,
                          struct bpe_train **out)
{
    struct bpe_train *train = NULL;
    TRY(new_zeroed(&train, 1));
    train->options = options;
    enum err rc = bpe_train_fill(train);
    return new_or_none(rc, train, out, bpe_train_destroy);
}

void bpe_train_destroy(struct bpe_train *train)
{
    if (train == NULL)
        return;
    buffer_free(&train->text);
    free(train->token);
    map_free(&train->numbers);
    free(train->merge);
    free(train);
}

int64_t bpe_train_tokens(const struct bpe_train *train)
{
    return (int64_t)train->count;
}

static enum err bpe_train_words_fill(const struct bpe_train *train,
                                     const struct bpe_words *from,
                                     struct bpe_train_words *words)
{
    size_t count = bpe_words_count(from), total = 0;
    for (size_t w = 0; w < count; w++)
        total += bpe_words_at(from, w).bytes;
    TRY(new_room(&words->token, total + 1));
    TRY(new_room(&words->first, count + 1));
    TRY(new_room(&words->count, count + 1));
    TRY(new_room(&words->times, count + 1));
    total = 0;
    for (size_t w = 0; w < count; w++) {
        struct bpe_word word = bpe_words_at(from, w);
        words->first[w] = total;
        words->count[w] = word.bytes;
        words->times[w] = word.count;
        for (uint32_t i = 0; i < word.bytes; i++)
            words->token[total++] = train->of_byte[word.text[i]];
    }
    return ERR_OK;
}

/* Replace a, b by `merged` in one word, and count its pairs anew. Of a row of
 * equal tokens the first two are a pair, then the next two. */
static enum err bpe_train_replace(struct bpe_train_words *words, uint32_t w,
                                  int32_t a, int32_t b, int32_t merged,
                                  struct bpe_pairs *pairs)
{
    int32_t *token = words->token + words->first[w];
    uint32_t count = words->count[w], to = 0;
    int64_t times = words->times[w];
    for (uint32_t i = 0; i < count; i++) {
        if (i + 1 == count || token[i] != a || token[i + 1] != b) {
            token[to++] = token[i];
            continue;
        }
        /* what is before is replaced already, what is behind is not yet */
        if (to > 0) {
            TRY(bpe_pairs_add(pairs, token[to - 1], a, -times, w));
            TRY(bpe_pairs_add(pairs, token[to - 1], merged, times, w));
        }
        if (i + 2 < count) {
            TRY(bpe_pairs_add(pairs, b, token[i + 2], -times, w));
            TRY(bpe_pairs_add(pairs, merged, token[i + 2], times, w));
        }
        token[to++] = merged;
        i++;
    }
    words->count[w] = to;
    return ERR_OK;
}

/* The token that a pair makes. It is new: what lies between two places that no
 * merge has crossed is divided the same way everywhere, so no other pair makes
 * it. */
static enum err bpe_train_join(struct bpe_train *train, int32_t a, int32_t b,
                               int32_t *merged)
{
    const struct bpe_train_token *left = &train->token[a];
    const struct bpe_train_token *right = &train->token[b];
    size_t bytes = (size_t)left->bytes + right->bytes;
    struct buffer text = { 0 };
    enum err rc = buffer_reserve(&text, bytes);
    if (rc == ERR_OK) {
        memcpy(text.data, train->text.data + left->first, left->bytes);
        memcpy(text.data + left->bytes, train->text.data + right->first,
               right->bytes);
        rc = bpe_train_token(train, text.data, bytes, merged);
        if (rc == ERR_OK)
            rc = bpe_train_unlike(train, *merged);
    }
    buffer_free(&text);
    if (rc != ERR_OK)
        return rc;
    TRY(array_room(&train->merge, &train->merge_capacity, train->merges + 1));
    train->merge[train->merges++] = (struct bpe_train_merge){ a, b };
    return ERR_OK;
}

static enum err bpe_train_learn(struct bpe_train *train,
                                struct bpe_train_words *words,
                                struct bpe_pairs *pairs, int (*stop)(void))
{
    struct bpe_pairs_top top;
    while (train->count < train->capacity && bpe_pairs_pop(pairs, &top)) {
        enum err rc = ERR_OK;
        int32_t merged = 0;
        if (top.count < 1 || top.count < train->options->min_frequency) {
            free(top.word);
            break;
        }
        rc = bpe_train_join(train, top.a, top.b, &merged);
        for (size_t i = 0; i < top.words && rc == ERR_OK; i++)
            rc = bpe_train_replace(words, top.word[i], top.a, top.b, merged,
                                   pairs);
        free(top.word);
        TRY(rc);
        TRY(bpe_pairs_settle(pairs));
        if (stop != NULL && stop() != 0)
            return err_set(ERR_IO, "interrupted; no tokenizer was written");
    }
    return ERR_OK;
}

enum err bpe_train_run(struct bpe_train *train, const struct bpe_words *from,
                       int (*stop)(void))
{
    assert(train->merges == 0);
    enum err rc = ERR_OK;
    struct bpe_train_words words = { 0 };
    struct bpe_pairs *pairs = NULL;
    TRY_OUT(bpe_train_words_fill(train, from, &words));
    TRY_OUT(bpe_pairs_create(&pairs));
    for (size_t w = 0; w < bpe_words_count(from); w++) {
        const int32_t *token = words.token + words.first[w];
        for (uint32_t i = 0; i + 1 < words.count[w]; i++)
            TRY_OUT(bpe_pairs_add(pairs, token[i], token[i + 1], words.times[w],
                                  (uint32_t)w));
    }
    TRY_OUT(bpe_pairs_settle(pairs));
    TRY_OUT(bpe_train_learn(train, &words, pairs, stop));
out:
    bpe_pairs_destroy(pairs);
    free(words.token);
    free(words.first);
    free(words.count);
    free(words.times);
    return rc;
}

/* --- the file --- */

/* Llama 3's words. */
#define BPE_TRAIN_LLAMA3_PATTERN                                               \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"   \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

json_t *bpe_train_byte_level(bool trim_offsets, bool use_regex)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel",
                     "add_prefix_space", 0, "trim_offsets", (int)trim_offsets,
                     "use_regex", (int)use_regex);
}

static json_t *bpe_train_pre_tokenizer(enum bpe_train_pattern pattern)
{
    if (pattern == BPE_TRAIN_GPT2)
        return bpe_train_byte_level(true, true);
    json_t *first =
        pattern == BPE_TRAIN_DIGITS
            ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
            : json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern",
                        "Regex", BPE_TRAIN_LLAMA3_PATTERN, "behavior",
                        "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers",
                     first,
                     bpe_train_byte_level(true, pattern == BPE_TRAIN_DIGITS));
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
        bpe_train_byte_level(true, true), "decoder",
        bpe_train_byte_level(true, true), "model", "type", "BPE", "dropout",
        "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
        "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", 0, "vocab",
        bpe_train_vocab(train), "merges", bpe_train_merges(train));
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
