/* A text to tokens: repair, added tokens, normalizer, words, tokens of words.
 * Most words come again and again: each encoder remembers those of up to 15
 * bytes with up to 4 tokens, in a table of fixed size in which a new word takes
 * the place of an old one.
 *
 * The order of stages is the library's. An added token, as <|im_end|>, is found
 * before anything else so that nothing else changes it, but those that are
 * declared "normalized" are looked for in the normalized text. Added tokens are
 * also where a text falls into parts: each is normalized and divided by itself.
 *
 * A table that forgets needs no lists, no growth and no lock: its one entry per
 * place is replaced by what comes next, and each encoder has one of its own. A
 * word's bytes are two numbers, with their count at the top of the second, so
 * comparing words is comparing numbers. */
#include "src/text/tokenizer/tokenizer_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/base/new.h"

#define CACHE_BITS 16
#define CACHE_WORD_MAX 15
#define CACHE_TOKENS 4
#define CUT_TRIES 64 /* places in the middle of added tokens, one after other */

/* A word and its tokens; key[1] ends with its length, 0: none. */
struct encode_entry {
    uint64_t key[2];
    int32_t token[CACHE_TOKENS]; /* behind the last: -1 */
};

struct tokenizer_encoder {
    const struct tokenizer *tokenizer;
    struct encode_entry *cache;
    struct bpe_word *word;
    struct pretoken_work *pretoken;
    struct buffer repaired;
    struct normalizer_work normalized;
    struct token_list *out;
    bool special;
    enum pretoken_place place; /* of the part between added tokens */
};

enum err tokenizer_encoder_create(const struct tokenizer *tokenizer,
                                  struct tokenizer_encoder **out)
{
    assert(tokenizer != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct tokenizer_encoder *work = NULL;
    TRY(new_zeroed(&work, 1));
    work->tokenizer = tokenizer;
    if (tokenizer->bpe != NULL) {
        TRY_OUT(new_zeroed(&work->cache, (size_t)1 << CACHE_BITS));
        TRY_OUT(bpe_word_create(tokenizer->bpe, &work->word));
        TRY_OUT(pretoken_work_create(&work->pretoken));
    }
out:
    return new_or_none(rc, work, out, tokenizer_encoder_destroy);
}

void tokenizer_encoder_destroy(struct tokenizer_encoder *work)
{
    if (work == NULL)
        return;
    free(work->cache);
    bpe_word_destroy(work->word);
    pretoken_work_destroy(work->pretoken);
    buffer_free(&work->repaired);
    normalizer_work_free(&work->normalized);
    free(work);
}

uint64_t tokenizer_encoder_lost(const struct tokenizer_encoder *work)
{
    return work->word == NULL ? 0 : bpe_word_lost(work->word);
}

/* Up to 8 bytes as a number, without reading behind them and without a loop:
 * two reads that overlap for 4 to 7, three single bytes for 1 to 3. */
static inline uint64_t encode_load(const uint8_t *text, size_t bytes)
{
    uint64_t value = 0;
    uint32_t low = 0, high = 0;
    if (bytes >= 8) {
        memcpy(&value, text, 8);
    } else if (bytes >= 4) {
        memcpy(&low, text, 4);
        memcpy(&high, text + bytes - 4, 4);
        value = low | (uint64_t)high << 8 * (bytes - 4);
    } else if (bytes > 0) {
        value = text[0] | (uint64_t)text[bytes / 2] << 8 * (bytes / 2) |
                (uint64_t)text[bytes - 1] << 8 * (bytes - 1);
    }
    return value;
}

static inline struct encode_entry *encode_find(struct tokenizer_encoder *work,
                                               const uint64_t key[2])
{
    uint64_t hash =
        (key[0] ^ (key[1] << 29 | key[1] >> 35)) * UINT64_C(0x9E3779B97F4A7C15);
    hash ^= hash >> 32;
    hash *= UINT64_C(0xD6E8FEB86659FD93);
    return &work->cache[hash >> (64 - CACHE_BITS)];
}

/* A word that is not remembered. */
static enum err encode_new(struct tokenizer_encoder *work, const uint8_t *word,
                           size_t bytes, const uint64_t key[2],
                           struct encode_entry *entry)
{
    struct token_list *out = work->out;
    size_t before = out->count;
    uint64_t lost = bpe_word_lost(work->word);
    TRY(bpe_word_encode(work->word, word, bytes, out));
    size_t count = out->count - before;
    if (count <= CACHE_TOKENS && lost == bpe_word_lost(work->word)) {
        entry->key[0] = key[0];
        entry->key[1] = key[1];
        for (size_t i = 0; i < CACHE_TOKENS; i++)
            entry->token[i] = i < count ? out->token[before + i] : -1;
    }
    return ERR_OK;
}

static enum err encode_word(struct tokenizer_encoder *work, const uint8_t *word,
                            size_t bytes)
{
    struct token_list *out = work->out;
    if (bytes > CACHE_WORD_MAX)
        return bpe_word_encode(work->word, word, bytes, out);
    uint64_t key[2] = { encode_load(word, bytes),
                        bytes > 8 ? encode_load(word + 8, bytes - 8) : 0 };
    key[1] |= (uint64_t)bytes << 56;
    struct encode_entry *entry = encode_find(work, key);
    if (entry->key[0] != key[0] || entry->key[1] != key[1])
        return encode_new(work, word, bytes, key, entry);
    if (out->capacity - out->count < CACHE_TOKENS)
        return token_list_add(out, entry->token,
                              (size_t)(1 + (entry->token[1] >= 0) +
                                       (entry->token[2] >= 0) +
                                       (entry->token[3] >= 0)));
    memcpy(out->token + out->count, entry->token, sizeof entry->token);
    out->count += (size_t)(1 + (entry->token[1] >= 0) + (entry->token[2] >= 0) +
                           (entry->token[3] >= 0));
    return ERR_OK;
}

static enum err encode_plain(void *arg, const uint8_t *word, size_t bytes)
{
    return encode_word(arg, word, bytes);
}

static bool encode_marked(const struct tokenizer *tokenizer, size_t mark_bytes,
                          const uint8_t *text)
{
    return *text == (uint8_t)tokenizer->mark[0] &&
           memcmp(text, tokenizer->mark, mark_bytes) == 0;
}

/* A word that no merge crosses where a mark follows another character: each
 * part is a word, one that comes again more often. */
static enum err encode_marks(void *arg, const uint8_t *word, size_t bytes)
{
    struct tokenizer_encoder *work = arg;
    const struct tokenizer *tokenizer = work->tokenizer;
    size_t mark_bytes = strlen(tokenizer->mark), begin = 0, i = 0;
    bool after = true; /* a mark, or nothing */
    while (i < bytes) {
        bool mark = bytes - i >= mark_bytes &&
                    encode_marked(tokenizer, mark_bytes, word + i);
        if (mark && !after) {
            TRY(encode_word(work, word + begin, i - begin));
            begin = i;
        }
        after = mark;
        i += mark ? mark_bytes : 1;
    }
    return encode_word(work, word + begin, bytes - begin);
}

/* A part of the text, between its matches of added tokens. */
typedef enum err encode_part_fn(struct tokenizer_encoder *work,
                                const uint8_t *text, size_t bytes);

static enum err encode_words(struct tokenizer_encoder *work,
                             const uint8_t *text, size_t bytes)
{
    const struct tokenizer *tokenizer = work->tokenizer;
    return pretoken_run(tokenizer->pretoken, tokenizer->unicode, work->pretoken,
                        work->place, text, bytes,
                        tokenizer->marks_break ? encode_marks : encode_plain,
                        work);
}

static enum err encode_around(struct tokenizer_encoder *work,
                              const struct added *added, const uint8_t *text,
                              size_t bytes, encode_part_fn *part)
{
    struct added_search search = { 0 };
    struct added_match match;
    while (added_next(added, work->tokenizer->unicode, text, bytes,
                      work->special, &search, &match)) {
        if (match.start > search.done)
            TRY(part(work, text + search.done, match.start - search.done));
        TRY(token_list_add(work->out, &match.token, 1));
        search.done = match.end;
        work->place = PRETOKEN_LATER;
    }
    return search.done < bytes
               ? part(work, text + search.done, bytes - search.done)
               : ERR_OK;
}

static enum err encode_normalized(struct tokenizer_encoder *work,
                                  const uint8_t *text, size_t bytes)
{
    const struct tokenizer *tokenizer = work->tokenizer;
    TRY(normalizer_run(tokenizer->normalizer, &work->normalized,
                       work->place != PRETOKEN_INSIDE, &text, &bytes));
    if (bytes == 0)
        return ERR_OK;
    return encode_around(work, tokenizer->added_normalized, text, bytes,
                         encode_words);
}

/* Warns once, when a text could not be encoded without loss. */
static void encode_warn(const struct tokenizer_encoder *work)
{
    struct tokenizer_lacks *lacks = work->tokenizer->lacks;
    if (lacks != NULL && bpe_word_lacking(work->word) > 0 &&
        !atomic_flag_test_and_set(&lacks->told))
        log_warn("%s", lacks->text);
}

/* "bytes" in rows of 256, as tokens are four times as long. */
static enum err encode_bytes(const uint8_t *text, size_t bytes,
                             struct token_list *out)
{
    int32_t tokens[256];
    for (size_t i = 0; i < bytes;) {
        size_t count = 0;
        while (count < 256 && i < bytes)
            tokens[count++] = text[i++];
        TRY(token_list_add(out, tokens, count));
    }
    return ERR_OK;
}

enum err tokenizer_encode(struct tokenizer_encoder *work, const uint8_t *text,
                          size_t bytes, unsigned flags, struct token_list *out)
{
    assert(work != NULL && out != NULL);
    const struct tokenizer *tokenizer = work->tokenizer;
    bool template = (flags & TOKENIZER_TEMPLATE) != 0;
    if (tokenizer->bpe == NULL)
        return encode_bytes(text, bytes, out);
    work->out = out;
    work->special = (flags & TOKENIZER_SPECIAL) != 0;
    work->place =
        (flags & TOKENIZER_INSIDE) != 0 ? PRETOKEN_INSIDE : PRETOKEN_FIRST;
    if (unicode_valid(text, bytes) < bytes) {
        work->repaired.bytes = 0;
        TRY(unicode_repair(text, bytes, &work->repaired));
        text = work->repaired.data;
        bytes = work->repaired.bytes;
    }
    if (template)
        TRY(token_list_add(out, tokenizer->before.token,
                           tokenizer->before.count));
    TRY(encode_around(work, tokenizer->added, text, bytes, encode_normalized));
    encode_warn(work);
    return template ? token_list_add(out, tokenizer->behind.token,
                                     tokenizer->behind.count)
                    : ERR_OK;
}

/* Whether no added token lies across any cut for a reason that its text does
 * not show: it looks at what is beside it, or is found in another text. */
static bool encode_cuts(const struct tokenizer *tokenizer)
{
    unsigned normalized = added_flags(tokenizer->added_normalized);
    unsigned any = added_flags(tokenizer->added) | normalized;
    if ((any & (ADDED_SINGLE_WORD | ADDED_REPLACEMENT)) != 0)
        return false;
    return !normalizer_has(tokenizer->normalizer, NORMALIZER_NFC) ||
           (normalized & (ADDED_BLANK | ADDED_RSTRIP)) == 0;
}

/* Whether a file of characters begins a word at `cut`, and puts nothing in
 * front of what follows: a blank becomes a mark, behind another character. */
static bool encode_cuts_marks(const struct tokenizer *tokenizer,
                              const uint8_t *text, size_t cut)
{
    size_t mark_bytes = strlen(tokenizer->mark);
    return text[cut] == ' ' && text[cut - 1] > ' ' &&
           (tokenizer->unicode->of[unicode_before(text, cut)] &
            UNICODE_SPACE) == 0 &&
           (cut < mark_bytes ||
            !encode_marked(tokenizer, mark_bytes, text + cut - mark_bytes));
}

/* Whether the parts of a text with these steps are words of their own at marks,
 * and no added token that is found in normalized text goes across one. */
static bool encode_marks_cut(const struct tokenizer *tokenizer)
{
    return (tokenizer->marks_break || tokenizer->marks_split) &&
           tokenizer->blanks_marked && !tokenizer->added_across &&
           pretoken_only_metaspace(tokenizer->pretoken) &&
           normalizer_marks_blanks(tokenizer->normalizer,
                                   (const uint8_t *)tokenizer->mark,
                                   strlen(tokenizer->mark));
}

static bool encode_cuts_at(const struct tokenizer *tokenizer,
                           const uint8_t *text, size_t cut)
{
    return tokenizer->byte_level ? pretoken_cuts(tokenizer->pretoken,
                                                 tokenizer->unicode, text, cut)
                                 : encode_cuts_marks(tokenizer, text, cut);
}

/* A first look: where white space begins, or a line where no added token takes
 * the line ends before it. */
static bool encode_may_cut(const uint8_t *text, size_t cut, bool strips)
{
    return text[cut - 1] > ' '
               ? text[cut] <= ' '
               : !strips && (text[cut - 1] == '\n' || text[cut - 1] == '\r');
}

/* From the end, as parts should be long. A place has to satisfy everyone that
 * could see across it: words, added tokens that lie over it or take blanks
 * beside them, and the normalizer. After a number of places in added tokens,
 * which a text can have in any number, the rest of it is waited for. */
size_t tokenizer_cut(const struct tokenizer *tokenizer, const uint8_t *text,
                     size_t bytes)
{
    assert(tokenizer != NULL && (text != NULL || bytes == 0));
    if (tokenizer->bpe == NULL)
        return bytes;
    bool byte_level = tokenizer->byte_level;
    if (!encode_cuts(tokenizer) ||
        (byte_level ? normalizer_has(tokenizer->normalizer, NORMALIZER_REPLACE)
                    : !encode_marks_cut(tokenizer)))
        return 0;
    bool strips = ((added_flags(tokenizer->added) |
                    added_flags(tokenizer->added_normalized)) &
                   (ADDED_LSTRIP | ADDED_RSTRIP)) != 0;
    int tries = 0;
    for (size_t cut = bytes; cut-- > 1 && tries < CUT_TRIES;) {
        if (!encode_may_cut(text, cut, strips) ||
            !encode_cuts_at(tokenizer, text, cut))
            continue;
        if (!added_straddles(tokenizer->added, text, bytes, cut, !byte_level) &&
            !added_straddles(tokenizer->added_normalized, text, bytes, cut,
                             false))
            return cut;
        tries++;
    }
    return 0;
}
