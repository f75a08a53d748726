/* Tokens into text: characters that tokens cut, and stop texts. Text is shown as
 * it comes, and what was shown cannot be taken back. So two kinds of endings are
 * held back: bytes that may become a character with the next token, and text with
 * which a stop text may begin; both come out when it is known that they do not, or
 * nothing follows. */
#include "src/infer/generate_text.h"

#include <assert.h>
#include <string.h>

#include "src/text/unicode.h"

void generate_text_free(struct generate_text *text)
{
    buffer_free(&text->text);
    buffer_free(&text->pending);
}

/* A number that the tokenizer has given to no token has no text. */
static void generate_text_decode(struct generate_text *text, int32_t token,
                                 const uint8_t **bytes, size_t *length)
{
    if (tokenizer_decode_next(text->options->tokenizer, &text->decoder, token,
                              bytes, length) != ERR_OK)
        *length = 0;
}

void generate_text_begin(struct generate_text *text,
                         const struct generate_text_options *options,
                         const int32_t *prompt, size_t count)
{
    const uint8_t *bytes;
    size_t length;
    text->options = options;
    text->decoder = (struct tokenizer_decoder){ .inside = false };
    text->text.bytes = text->pending.bytes = text->ready = 0;
    text->stopped = false;
    for (size_t i = 0; i < count; i++)
        generate_text_decode(text, prompt[i], &bytes, &length);
}

/* Whether more bytes could make a character of these, `count` of at most 3. */
static bool generate_text_begins(const uint8_t *bytes, size_t count)
{
    static const uint8_t fillers[] = { 0x80, 0xBF };
    size_t length = bytes[0] >= 0xF0 ? 4 : bytes[0] >= 0xE0 ? 3 : 2;
    if (bytes[0] < 0xC0 || count >= length)
        return false;
    for (size_t f = 0; f < sizeof fillers; f++) {
        uint8_t whole[4];
        memcpy(whole, bytes, count);
        whole[count] = fillers[f];
        memset(whole + count + 1, 0x80, sizeof whole - count - 1);
        if (unicode_valid(whole, length) == length)
            return true;
    }
    return false;
}

/* Whole characters of what is pending become text. */
static enum err generate_text_settle(struct generate_text *text, bool all)
{
    struct buffer *pending = &text->pending;
    size_t keep = 0;
    for (size_t n = 1; !all && n < 4 && n <= pending->bytes; n++)
        if (generate_text_begins(pending->data + pending->bytes - n, n))
            keep = n;
    size_t whole = pending->bytes - keep;
    if (whole == 0)
        return ERR_OK;
    TRY(unicode_repair(pending->data, whole, &text->text));
    memmove(pending->data, pending->data + whole, keep);
    pending->bytes = keep;
    return ERR_OK;
}

/* Whether a stop text is at `at`, or, `begun`, the beginning of one is all that
 * is left there. */
static bool generate_text_match(const struct generate_text *text, size_t at,
                                bool begun)
{
    const struct generate_text_options *options = text->options;
    size_t left = text->text.bytes - at;
    for (size_t s = 0; s < options->stop_count; s++) {
        size_t length = strlen(options->stop[s]);
        assert(length > 0);
        if (begun == (left < length) &&
            memcmp(text->text.data + at, options->stop[s],
                   begun ? left : length) == 0)
            return true;
    }
    return false;
}

/* Ends the text at the first stop text; otherwise all is ready but what may be
 * the beginning of one. */
static void generate_text_stop(struct generate_text *text, bool all)
{
    for (; text->ready < text->text.bytes; text->ready++) {
        if (generate_text_match(text, text->ready, false)) {
            text->text.bytes = text->ready;
            text->stopped = true;
            return;
        }
        if (!all && generate_text_match(text, text->ready, true))
            return;
    }
}

enum err generate_text_add(struct generate_text *text, int32_t token)
{
    const uint8_t *bytes;
    size_t length;
    if (text->stopped)
        return ERR_OK;
    generate_text_decode(text, token, &bytes, &length);
    if (!tokenizer_is_special(text->options->tokenizer, token))
        TRY(buffer_add(&text->pending, bytes, length));
    TRY(generate_text_settle(text, false));
    generate_text_stop(text, false);
    return ERR_OK;
}

enum err generate_text_end(struct generate_text *text)
{
    if (text->stopped)
        return ERR_OK;
    TRY(generate_text_settle(text, true));
    generate_text_stop(text, true);
    return ERR_OK;
}
