/* The vocabulary, the merges and the added tokens of a tokenizer.json.
 *
 * Vocabulary and merges are written as texts and become numbers here: a merge
 * "a b" is the tokens of a, of b and of both together. Their order is their rank.
 *
 * Some added tokens are in the vocabulary too; the library counts the others on
 * from its size, whatever the file says. Where the two disagree the file is
 * refused, since either may be what a model was trained with. */
#include "src/text/tokenizer/tokenizer_decode.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "src/base/new.h"
#include "src/text/tokenizer/bpe.h"

/* Numbers without a token: a few are common, a table of 2^31 is not. */
#define MODEL_GAPS_MAX 1000000

struct model_reader {
    struct tokenizer_node root, model, vocab, merges, added;
    struct tokenizer *tokenizer;
    struct byte_alphabet alphabet;
    bool byte_level;
    struct buffer text; /* of one token, or of a pair */
    struct bpe_options options;
    struct normalizer_work work;
    struct tokenizer_decode decode;
    bool complete; /* every character has a token, or its bytes have */
    bool across;   /* a merge has a mark behind another character */
};

/* The model's own number of this text; -1: it has none. */
static int32_t model_number(const struct model_reader *reader, const char *text)
{
    const json_t *value = json_object_get(reader->vocab.value, text);
    return value == NULL ? -1 : (int32_t)json_integer_value(value);
}

static enum err model_flag_off(const struct tokenizer_node *model,
                               const char *key)
{
    struct tokenizer_node node = tokenizer_reader_member(model, key);
    bool empty =
        json_is_string(node.value) && json_string_length(node.value) == 0;
    return node.value == NULL || empty
               ? ERR_OK
               : tokenizer_reader_refuse(&node, "only null is known here");
}

/* Is there a token of a byte, "<0xNN>"? */
static bool model_falls_back(const struct model_reader *reader)
{
    bool found = false;
    for (unsigned b = 0; b < 256 && !found; b++) {
        char code[8];
        snprintf(code, sizeof code, "<0x%02X>", b);
        found = model_number(reader, code) >= 0;
    }
    return found;
}

static enum err model_options(struct model_reader *reader,
                              struct bpe_options *options)
{
    static const char *const keys[] = { "type",
                                        "dropout",
                                        "unk_token",
                                        "continuing_subword_prefix",
                                        "end_of_word_suffix",
                                        "fuse_unk",
                                        "byte_fallback",
                                        "ignore_merges",
                                        "vocab",
                                        "merges",
                                        NULL };
    const struct tokenizer_node *model = &reader->model;
    const char *type = "BPE", *unk = NULL;
    struct tokenizer_node named = tokenizer_reader_member(model, "type");
    if (named.value != NULL)
        TRY(tokenizer_reader_string(model, "type", &type));
    if (strcmp(type, "BPE") != 0)
        return tokenizer_reader_refuse(
            &named, "'%s' can't be done here; there is: BPE", type);
    TRY(tokenizer_reader_keys(model, keys));
    TRY(model_flag_off(model, "dropout"));
    TRY(model_flag_off(model, "continuing_subword_prefix"));
    TRY(model_flag_off(model, "end_of_word_suffix"));
    TRY(tokenizer_reader_bool(model, "fuse_unk", false, &options->fuse_unk));
    TRY(tokenizer_reader_bool(model, "byte_fallback", false,
                              &options->byte_fallback));
    TRY(tokenizer_reader_bool(model, "ignore_merges", false,
                              &options->ignore_merges));
    /* transformers writes it for every file that it has converted, also of
     * bytes, where it means nothing without such tokens */
    if (reader->byte_level && !model_falls_back(reader))
        options->byte_fallback = false;
    named = tokenizer_reader_member(model, "unk_token");
    options->unk = -1;
    options->bytes = reader->byte_level;
    if (named.value == NULL)
        return ERR_OK;
    TRY(tokenizer_reader_string(model, "unk_token", &unk));
    options->unk = model_number(reader, unk);
    return options->unk >= 0
               ? ERR_OK
               : tokenizer_reader_refuse(&named,
                                         "'%s' is not in the vocabulary", unk);
}

/* Every number of the vocabulary is one, and the highest of them. */
static enum err model_highest(const struct model_reader *reader,
                              int32_t *highest)
{
    const char *key = NULL;
    json_t *value = NULL;
    *highest = -1;
    json_object_foreach((json_t *)reader->vocab.value, key, value)
    {
        int32_t token = 0;
        struct tokenizer_node node = { .path = reader->vocab.path,
                                       .value = value };
        enum err rc = tokenizer_reader_token(&node, &token);
        if (rc != ERR_OK) {
            node = reader->vocab;
            return tokenizer_reader_refuse(
                &node,
                "the token '%s' has no whole number from 0 to 2147483646", key);
        }
        if (token > *highest)
            *highest = token;
    }
    return ERR_OK;
}

/* Whether a mark follows another character there. */
static bool model_across(const struct tokenizer *tokenizer, const uint8_t *text,
                         size_t bytes)
{
    size_t mark_bytes = strlen(tokenizer->mark);
    bool after = true; /* a mark, or nothing */
    for (size_t i = 0; i < bytes;) {
        bool mark = bytes - i >= mark_bytes &&
                    memcmp(text + i, tokenizer->mark, mark_bytes) == 0;
        if (mark && !after)
            return true;
        after = mark;
        i += mark ? mark_bytes : 1;
    }
    return false;
}

/* What a token of characters is decoded to. */
static enum err model_show(struct model_reader *reader, const char *text,
                           int32_t token)
{
    reader->text.bytes = 0;
    TRY(tokenizer_decode_text(&reader->decode, text, &reader->text));
    return bpe_show(reader->tokenizer->bpe, token, reader->text.data,
                    reader->text.bytes);
}

/* A token with the text that it stands for. */
static enum err model_add(struct model_reader *reader, const char *text,
                          int32_t token, bool found)
{
    struct bpe *bpe = reader->tokenizer->bpe;
    size_t bytes = strlen(text);
    if (!reader->byte_level) {
        TRY(bpe_add(bpe, token, (const uint8_t *)text, bytes, found));
        return model_show(reader, text, token);
    }
    reader->text.bytes = 0;
    TRY(buffer_reserve(&reader->text, bytes + 1));
    if (byte_alphabet_bytes(&reader->alphabet, (const uint8_t *)text, bytes,
                            reader->text.data, &bytes))
        return bpe_add(bpe, token, reader->text.data, bytes, found);
    /* no word is made of such characters */
    return bpe_add(bpe, token, (const uint8_t *)text, strlen(text), false);
}

static enum err model_vocab(struct model_reader *reader)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)reader->vocab.value, key, value)
    {
        enum err rc =
            model_add(reader, key, (int32_t)json_integer_value(value), true);
        if (rc == ERR_DATA)
            rc = tokenizer_reader_refuse(&reader->vocab, "'%s': %s", key,
                                         err_text());
        TRY(rc);
    }
    return ERR_OK;
}

/* The halves of a merge: ["a", "b"], or "a b" with one blank, of which *left has
 * left_bytes. */
static enum err model_halves(const struct tokenizer_node *merge,
                             const char **left, size_t *left_bytes,
                             const char **right)
{
    if (json_is_array(merge->value)) {
        *left = json_string_value(json_array_get(merge->value, 0));
        *right = json_string_value(json_array_get(merge->value, 1));
        if (*left != NULL && *right != NULL &&
            json_array_size(merge->value) == 2) {
            *left_bytes = strlen(*left);
            return ERR_OK;
        }
    } else if (json_is_string(merge->value)) {
        *left = json_string_value(merge->value);
        const char *blank = strchr(*left, ' ');
        if (blank != NULL && strchr(blank + 1, ' ') == NULL) {
            *left_bytes = (size_t)(blank - *left);
            *right = blank + 1;
            return ERR_OK;
        }
    }
    return tokenizer_reader_refuse(
        merge, "\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"] is expected");
}

static enum err model_merge(struct model_reader *reader,
                            const struct tokenizer_node *merge)
{
    const char *left = NULL, *right = NULL;
    size_t left_bytes = 0;
    struct buffer *text = &reader->text;
    TRY(model_halves(merge, &left, &left_bytes, &right));
    if (left_bytes == 0 || *right == '\0')
        return tokenizer_reader_refuse(merge, "one half is empty");
    /* the left half, then both, as texts that end with a NUL */
    text->bytes = 0;
    TRY(buffer_add(text, left, left_bytes));
    TRY(buffer_add(text, "", 1));
    int32_t left_token = model_number(reader, (const char *)text->data);
    text->bytes--;
    TRY(buffer_add(text, right, strlen(right) + 1));
    int32_t right_token = model_number(reader, right);
    int32_t both = model_number(reader, (const char *)text->data);
    if (left_token < 0 || right_token < 0 || both < 0)
        return tokenizer_reader_refuse(merge, "'%s' is not in the vocabulary",
                                       right_token < 0 ? right
                                       : both < 0 ? (const char *)text->data
                                                  : left);
    bpe_merge(reader->tokenizer->bpe, left_token, right_token, both);
    reader->tokenizer->about[both] |= TOKENIZER_IS_MERGED;
    reader->across =
        reader->across ||
        model_across(reader->tokenizer, text->data, text->bytes - 1);
    return ERR_OK;
}

static enum err model_merges(struct model_reader *reader)
{
    for (size_t i = 0; i < json_array_size(reader->merges.value); i++) {
        struct tokenizer_node merge =
            tokenizer_reader_element(&reader->merges, i);
        const char *line = json_string_value(merge.value);
        /* the first line of an older form */
        if (line != NULL && strncmp(line, "#version", 8) == 0)
            continue;
        TRY(model_merge(reader, &merge));
    }
    return ERR_OK;
}

/* Into the search for added tokens, as texts to which the normalizer comes
 * first or not. */
static enum err model_added_search(struct model_reader *reader,
                                   const char *content, int32_t token,
                                   unsigned flags, bool normalized)
{
    struct tokenizer *tokenizer = reader->tokenizer;
    const uint8_t *text = (const uint8_t *)content;
    size_t bytes = strlen(content);
    if (normalized) {
        TRY(normalizer_run(tokenizer->normalizer, &reader->work, true, &text,
                           &bytes));
        tokenizer->added_across =
            tokenizer->added_across ||
            (normalizer_has(tokenizer->normalizer, NORMALIZER_REPLACE) &&
             model_across(tokenizer, text, bytes));
    }
    TRY(added_add(normalized ? tokenizer->added_normalized : tokenizer->added,
                  text, bytes, token, flags));
    if ((flags & ADDED_SPECIAL) != 0)
        tokenizer->about[token] |= TOKENIZER_IS_SPECIAL;
    return ERR_OK;
}

/* Characters that have no token become tokens of their bytes if all of those
 * are there. */
static enum err model_characters(struct model_reader *reader)
{
    unsigned lacking = 0, first = 0;
    for (unsigned b = 0; b < 256; b++) {
        char code[8];
        bool never = b == 0xC0 || b == 0xC1 || b >= 0xF5;
        snprintf(code, sizeof code, "<0x%02X>", b);
        if (never ||
            (reader->options.byte_fallback && model_number(reader, code) >= 0))
            continue;
        first = lacking++ == 0 ? b : first;
    }
    reader->complete = lacking == 0;
    if (lacking == 0)
        return ERR_OK;
    return tokenizer_reader_lacks(
        &reader->root, lacking, first,
        reader->options.unk >= 0
            ? "a character without a token that has one of them becomes the "
              "unknown one, so that tokens do not give the text back"
            : "a character without a token that has one of them is left out "
              "of every text",
        &reader->tokenizer->lacks);
}

/* Whether words can give this token, too: by merges, as one character or byte,
 * as what is unknown, or as a word that is a token. */
static bool model_in_words(const struct model_reader *reader,
                           const char *content, int32_t token, bool new)
{
    size_t length = 0;
    unicode_at((const uint8_t *)content, &length);
    return !new &&
           ((reader->tokenizer->about[token] & TOKENIZER_IS_MERGED) != 0 ||
            content[length] == '\0' || strncmp(content, "<0x", 3) == 0 ||
            (token == reader->options.unk && !reader->complete) ||
            reader->options.ignore_merges);
}

/* A token that only stands where it is written, and what comes behind it. */
static void model_border(struct model_reader *reader, int32_t token,
                         bool normalized)
{
    struct tokenizer *tokenizer = reader->tokenizer;
    bool always = pretoken_prepends(tokenizer->pretoken) == PRETOKEN_ALWAYS;
    tokenizer->about[token] |= TOKENIZER_IS_ADDED;
    if (always || (!normalized &&
                   normalizer_has(tokenizer->normalizer, NORMALIZER_PREPEND)))
        tokenizer->about[token] |= TOKENIZER_IS_BORDER;
}

/* One added token. *next: the number that the next one gets which the
 * vocabulary lacks, as the Hugging Face library counts. */
static enum err model_added_token(struct model_reader *reader,
                                  const struct tokenizer_node *node,
                                  int32_t *next)
{
    static const char *const keys[] = { "id",      "content", "single_word",
                                        "lstrip",  "rstrip",  "normalized",
                                        "special", NULL };
    const char *content = NULL;
    int32_t token = 0;
    bool single_word = false, lstrip = false, rstrip = false;
    bool normalized = true, special = false;
    struct tokenizer_node id = tokenizer_reader_member(node, "id");
    TRY(tokenizer_reader_keys(node, keys));
    TRY(tokenizer_reader_token(&id, &token));
    TRY(tokenizer_reader_string(node, "content", &content));
    TRY(tokenizer_reader_bool(node, "single_word", false, &single_word));
    TRY(tokenizer_reader_bool(node, "lstrip", false, &lstrip));
    TRY(tokenizer_reader_bool(node, "rstrip", false, &rstrip));
    TRY(tokenizer_reader_bool(node, "normalized", true, &normalized));
    TRY(tokenizer_reader_bool(node, "special", false, &special));
    int32_t number = model_number(reader, content);
    bool new = number < 0;
    if (new)
        number = (*next)++;
    if (number != token)
        return tokenizer_reader_refuse(
            &id, "'%s' has the number %d, but %s it would be %d", content,
            token, new ? "counted on from the vocabulary" : "in the vocabulary",
            number);
    unsigned flags =
        (special ? ADDED_SPECIAL : 0u) | (lstrip ? ADDED_LSTRIP : 0u) |
        (rstrip ? ADDED_RSTRIP : 0u) | (single_word ? ADDED_SINGLE_WORD : 0u);
    enum err rc = new ? model_add(reader, content, token, false) : ERR_OK;
    if (rc == ERR_OK && reader->byte_level)
        rc = bpe_show(reader->tokenizer->bpe, token, (const uint8_t *)content,
                      strlen(content));
    if (rc == ERR_OK)
        rc = model_added_search(reader, content, token, flags, normalized);
    if (rc == ERR_OK && !model_in_words(reader, content, token, new))
        model_border(reader, token, normalized);
    return rc == ERR_DATA ? tokenizer_reader_refuse(node, "%s", err_text())
                          : rc;
}

static enum err model_added(struct model_reader *reader)
{
    int32_t next = (int32_t)json_object_size(reader->vocab.value);
    for (size_t i = 0; i < json_array_size(reader->added.value); i++) {
        struct tokenizer_node node =
            tokenizer_reader_element(&reader->added, i);
        TRY(model_added_token(reader, &node, &next));
    }
    return ERR_OK;
}

/* Bytes of valid UTF-8 that have no token. With unk_token or byte_fallback the
 * Hugging Face library has something else for them; else it leaves them out. */
static enum err model_bytes(struct model_reader *reader)
{
    const struct bpe_options *options = &reader->options;
    unsigned lost = 0, first = 0;
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        bool never = b == 0xC0 || b == 0xC1 || b >= 0xF5;
        if (never || bpe_find(reader->tokenizer->bpe, &byte, 1) >= 0)
            continue;
        if (options->byte_fallback)
            return tokenizer_reader_refuse(
                &reader->vocab,
                "there is no token for the byte 0x%02X, and byte_fallback "
                "with ByteLevel can't be done here",
                b);
        first = lost++ == 0 ? b : first;
    }
    return lost > 0 && options->unk < 0
               ? tokenizer_reader_lacks(&reader->root, lost, first,
                                        "they are left out of every text",
                                        &reader->tokenizer->lacks)
               : ERR_OK;
}

static void model_marks(struct model_reader *reader)
{
    struct tokenizer *tokenizer = reader->tokenizer;
    const uint8_t *mark = (const uint8_t *)tokenizer->mark;
    tokenizer->marks_break =
        !reader->byte_level && !reader->across &&
        !reader->options.ignore_merges &&
        bpe_find(tokenizer->bpe, mark, strlen(tokenizer->mark)) >= 0;
}

static enum err model_open(struct model_reader *reader)
{
    int32_t highest = 0;
    TRY(tokenizer_reader_object(&reader->model));
    TRY(tokenizer_reader_object(&reader->vocab));
    TRY(tokenizer_reader_array(&reader->merges));
    if (reader->added.value != NULL)
        TRY(tokenizer_reader_array(&reader->added));
    TRY(model_highest(reader, &highest));
    TRY(model_options(reader, &reader->options));
    size_t tokens = json_object_size(reader->vocab.value);
    size_t added = json_array_size(reader->added.value);
    if (tokens == 0)
        return tokenizer_reader_refuse(&reader->vocab, "it is empty");
    if ((size_t)highest >= tokens + MODEL_GAPS_MAX)
        return tokenizer_reader_refuse(
            &reader->vocab, "the highest of %zu tokens has the number %d",
            tokens, highest);
    for (size_t i = 0; i < added; i++) {
        const json_t *token = json_array_get(reader->added.value, i);
        json_int_t id = json_integer_value(json_object_get(token, "id"));
        /* one beyond is refused with its place */
        if (id > highest && id < (json_int_t)(tokens + added))
            highest = (int32_t)id;
    }
    TRY(bpe_create(&reader->options, tokens + added,
                   json_array_size(reader->merges.value), highest,
                   &reader->tokenizer->bpe));
    TRY(new_zeroed(&reader->tokenizer->about, (size_t)highest + 1));
    TRY(model_vocab(reader));
    TRY(model_merges(reader));
    if (!reader->byte_level)
        TRY(model_characters(reader));
    TRY(model_added(reader));
    bpe_seal(reader->tokenizer->bpe);
    model_marks(reader);
    return reader->byte_level ? model_bytes(reader) : ERR_OK;
}

enum err tokenizer_model_read(const struct tokenizer_node *root,
                              const struct tokenizer_decode *decode,
                              struct tokenizer *tokenizer)
{
    assert(decode != NULL && tokenizer->unicode != NULL);
    struct model_reader reader = { .root = *root,
                                   .tokenizer = tokenizer,
                                   .decode = *decode,
                                   .byte_level = tokenizer->byte_level };
    byte_alphabet_fill(&reader.alphabet);
    reader.model = tokenizer_reader_member(root, "model");
    reader.added = tokenizer_reader_member(root, "added_tokens");
    reader.vocab = tokenizer_reader_member(&reader.model, "vocab");
    reader.merges = tokenizer_reader_member(&reader.model, "merges");
    enum err rc = model_open(&reader);
    buffer_free(&reader.text);
    normalizer_work_free(&reader.work);
    return rc;
}
