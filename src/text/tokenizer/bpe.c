/* The tables of a byte pair encoding.
 *
 * A vocabulary of words lacks many words of the next text; one of letters makes
 * rows of numbers that are five times as long. Byte pair encoding lies between
 * (Gage 1994, to compress; Sennrich et al. 2016,
 * https://arxiv.org/abs/1508.07909, to translate; from bytes since GPT-2). A
 * word begins as single characters or bytes, and a list of merges, learned from
 * much text, says which two neighbours become one token: a common word ends as
 * one token, a rare one as several, and none is without tokens. A merge's place
 * in the list is its rank. To encode is to do, of all merges that are possible,
 * the one of the lowest rank, again and again (bpe_word.c), which is what
 * learning has done to the same word.
 *
 * What is asked most is whether two tokens merge, once for each two neighbours
 * and twice after each merge. So the pairs are in an open hash table that is at
 * most half full. */
#include "src/text/tokenizer/bpe.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/text/unicode.h"
#include "src/text/tokenizer/bpe_impl.h"

#define BPE_NO_TOKEN UINT32_MAX

static size_t bpe_power(size_t at_least)
{
    size_t power = 16;
    while (power < at_least)
        power *= 2;
    return power;
}

enum err bpe_create(const struct bpe_options *options, size_t tokens,
                    size_t merges, int32_t highest, struct bpe **out)
{
    assert(options != NULL && highest >= -1 && out != NULL);
    enum err rc = ERR_OK;
    struct bpe *bpe = NULL;
    size_t pairs = bpe_power(2 * merges);
    size_t numbers = (size_t)highest + 1;
    TRY(new_zeroed(&bpe, 1));
    bpe->options = *options;
    bpe->highest = highest;
    TRY_OUT(new_room(&bpe->token, numbers));
    TRY_OUT(new_room(&bpe->pair, pairs));
    TRY_OUT(map_room(&bpe->found, tokens));
    for (size_t i = 0; i < numbers; i++)
        bpe->token[i] = (struct bpe_token){ .text_bytes = BPE_NO_TOKEN };
    for (size_t i = 0; i < pairs; i++)
        bpe->pair[i] = (struct bpe_pair){ .rank = BPE_NO_RANK };
    bpe->pair_mask = pairs - 1;
out:
    return new_or_none(rc, bpe, out, bpe_destroy);
}

void bpe_destroy(struct bpe *bpe)
{
    if (bpe == NULL)
        return;
    buffer_free(&bpe->texts);
    free(bpe->token);
    map_free(&bpe->found);
    free(bpe->pair);
    free(bpe);
}

int32_t bpe_find(const struct bpe *bpe, const uint8_t *text, size_t bytes)
{
    uint32_t hash = map_hash_bytes(text, bytes);
    for (size_t at = 0, i; map_next(&bpe->found, hash, &at, &i);)
        if (bpe->token[i].key_bytes == bytes &&
            memcmp(bpe->texts.data + bpe->token[i].key, text, bytes) == 0)
            return (int32_t)i;
    return -1;
}

enum err bpe_show(struct bpe *bpe, int32_t token, const uint8_t *text,
                  size_t bytes)
{
    assert(token >= 0 && token <= bpe->highest);
    size_t at = bpe->texts.bytes;
    TRY(buffer_add(&bpe->texts, text, bytes));
    bpe->token[token].text = at;
    bpe->token[token].text_bytes = (uint32_t)bytes;
    return ERR_OK;
}

enum err bpe_add(struct bpe *bpe, int32_t token, const uint8_t *text,
                 size_t bytes, bool found)
{
    assert(token >= 0 && token <= bpe->highest);
    struct bpe_token *into = &bpe->token[token];
    if (into->text_bytes != BPE_NO_TOKEN)
        return err_set(ERR_DATA, "token %d is given twice", token);
    int32_t same = found ? bpe_find(bpe, text, bytes) : -1;
    if (same >= 0)
        return err_set(ERR_DATA, "tokens %d and %d have the same text", same,
                       token);
    if (found)
        TRY(map_add(&bpe->found, map_hash_bytes(text, bytes), (size_t)token));
    TRY(bpe_show(bpe, token, text, bytes));
    into->key = into->text;
    into->key_bytes = into->text_bytes;
    return ERR_OK;
}

void bpe_merge(struct bpe *bpe, int32_t left, int32_t right, int32_t both)
{
    assert(left >= 0 && right >= 0 && both >= 0);
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t i = bpe_pair_hash(key) & bpe->pair_mask;
    while (bpe->pair[i].rank != BPE_NO_RANK && bpe->pair[i].key != key)
        i = (i + 1) & bpe->pair_mask;
    bpe->pair[i] = (struct bpe_pair){ .key = key,
                                      .rank = (uint32_t)bpe->merges,
                                      .both = both };
    bpe->merges++;
}

/* In a file of characters one that has no token is written as the bytes of its
 * UTF-8, each as a token "<0xNN>" (SentencePiece's byte_fallback), if there are
 * all of them. A file of bytes has a token for each, and never lacks any. */
void bpe_seal(struct bpe *bpe)
{
    for (unsigned b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        char code[8];
        snprintf(code, sizeof code, "<0x%02X>", b);
        bpe->byte_token[b] = bpe_find(bpe, &byte, 1);
        bpe->fallback_token[b] =
            bpe->options.byte_fallback
                ? bpe_find(bpe, (const uint8_t *)code, strlen(code))
                : -1;
    }
}

bool bpe_text(const struct bpe *bpe, int32_t token, const uint8_t **text,
              size_t *bytes)
{
    assert(text != NULL && bytes != NULL);
    if (token < 0 || token > bpe->highest ||
        bpe->token[token].text_bytes == BPE_NO_TOKEN)
        return false;
    *text = bpe->texts.data + bpe->token[token].text;
    *bytes = bpe->token[token].text_bytes;
    return true;
}

int32_t bpe_highest(const struct bpe *bpe)
{
    return bpe->highest;
}

/* GPT-2's way to write bytes in a file of text, where a lone byte cannot stand
 * (bytes_to_unicode() of its encoder.py): 188 that are printed in Latin-1 are
 * their own characters, and the other 68 follow from U+0100 on in their order,
 * which makes a blank U+0120 and a line end U+010A. */
void byte_alphabet_fill(struct byte_alphabet *alphabet)
{
    size_t count = sizeof alphabet->byte / sizeof alphabet->byte[0];
    size_t next = 256;
    for (size_t i = 0; i < count; i++)
        alphabet->byte[i] = -1;
    for (int16_t b = 0; b < 256; b++) {
        bool shown =
            (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        alphabet->byte[shown ? (size_t)b : next++] = b;
    }
    assert(next == count);
}

bool byte_alphabet_bytes(const struct byte_alphabet *alphabet,
                         const uint8_t *text, size_t bytes, uint8_t *out,
                         size_t *out_bytes)
{
    assert(out != NULL && out_bytes != NULL);
    size_t count = 0;
    for (size_t i = 0, length = 0; i < bytes; i += length) {
        uint32_t point = unicode_at(text + i, &length);
        if (point >= sizeof alphabet->byte / sizeof alphabet->byte[0] ||
            alphabet->byte[point] < 0)
            return false;
        out[count++] = (uint8_t)alphabet->byte[point];
    }
    *out_bytes = count;
    return true;
}
