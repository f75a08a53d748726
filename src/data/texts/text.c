/* Reads a text and divides it into documents, a piece at a time. What becomes
 * of the text is the caller's business.
 *
 * A separator is a whole line, so a place needs two bits beside its offset:
 * whether a document has begun before it, and whether it is in the middle of a
 * line, where no separator can begin. With these reading goes on anywhere. A
 * line whose end is not in the buffer yet may be a separator or not
 * (TEXT_UNKNOWN): nothing of it is given until more is read. The buffer is
 * longer than the longest separator, so that is decided at last. */
#include "src/data/texts/text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

#define TEXT_SEPARATOR_BYTES_MAX 4096

struct text {
    struct source *source;
    const char *separator; /* NULL: none */
    size_t separator_bytes;
    uint8_t *buffer;         /* [TEXT_SPAN_BYTES_MAX] */
    size_t begin, end;       /* what is read and not yet given */
    bool ended;              /* the source has no more */
    struct text_place place; /* of buffer[begin] */
};

enum err text_check_separator(const char *separator)
{
    if (separator == NULL || (strlen(separator) <= TEXT_SEPARATOR_BYTES_MAX &&
                              strchr(separator, '\n') == NULL))
        return ERR_OK;
    return err_set(ERR_USAGE, "a separator is one line of at most %d bytes",
                   TEXT_SEPARATOR_BYTES_MAX);
}

enum err text_open(const char *path, const char *separator, bool binary,
                   const struct source_options *watch, struct text **out)
{
    assert(path != NULL && out != NULL);
    enum err rc = ERR_OK;
    struct text *text = NULL;
    TRY(new_zeroed(&text, 1));
    TRY_OUT(text_check_separator(separator));
    text->separator = separator;
    text->separator_bytes = separator != NULL ? strlen(separator) : 0;
    TRY_OUT(new_room(&text->buffer, TEXT_SPAN_BYTES_MAX));
    TRY_OUT(source_open(path, binary ? SOURCE_ANY : SOURCE_TEXT, watch,
                        &text->source));
out:
    return new_or_none(rc, text, out, text_close);
}

void text_close(struct text *text)
{
    if (text == NULL)
        return;
    source_close(text->source);
    free(text->buffer);
    free(text);
}

enum err text_go(struct text *text, struct text_place place)
{
    assert(text->end == 0 && place.offset >= 0);
    text->place = place;
    return source_skip(text->source, place.offset);
}

/* More at the end of the buffer, which is not full of one line's beginning. */
static enum err text_fill(struct text *text)
{
    size_t got = 0, used = text->end - text->begin;
    memmove(text->buffer, text->buffer + text->begin, used);
    text->begin = 0;
    text->end = used;
    assert(used < TEXT_SPAN_BYTES_MAX);
    TRY(source_read(text->source, text->buffer + used,
                    TEXT_SPAN_BYTES_MAX - used, &got));
    text->end += got;
    text->ended = got == 0;
    return ERR_OK;
}

enum text_line { TEXT_OTHER, TEXT_SEPARATOR, TEXT_UNKNOWN };

/* What the line that begins at buffer[at] is; *taken: its bytes, if there are so
 * many, with a carriage return, as Windows ends lines. */
static enum text_line text_line(const struct text *text, size_t at,
                                size_t *taken)
{
    size_t rest = text->end - at, bytes = text->separator_bytes;
    const uint8_t *line = text->buffer + at;
    size_t same = rest < bytes ? rest : bytes;
    if (memcmp(line, text->separator, same) != 0)
        return TEXT_OTHER;
    bytes += rest > bytes && line[bytes] == '\r';
    *taken = bytes + 1;
    if (rest > bytes)
        return line[bytes] == '\n' ? TEXT_SEPARATOR : TEXT_OTHER;
    if (!text->ended)
        return TEXT_UNKNOWN;
    return rest == bytes ? TEXT_SEPARATOR : TEXT_OTHER;
}

/* Bytes from the beginning of the buffer that are of one document. */
static size_t text_extent(const struct text *text, bool midline)
{
    size_t at = text->begin, taken = 0;
    if (text->separator == NULL)
        return text->end - at;
    while (at < text->end) {
        if (!midline && text_line(text, at, &taken) != TEXT_OTHER)
            break;
        const uint8_t *line = text->buffer + at;
        const uint8_t *last = memchr(line, '\n', text->end - at);
        midline = last == NULL;
        at = last == NULL ? text->end : (size_t)(last + 1 - text->buffer);
    }
    return at - text->begin;
}

/* Give `bytes` of the buffer; a separator is taken, and not given. */
static void text_take(struct text *text, size_t bytes, size_t separator,
                      struct text_span *span)
{
    struct text_place *place = &text->place;
    *span = (struct text_span){ .text = text->buffer + text->begin,
                                .bytes = bytes,
                                .begins = !place->inside,
                                .ends = bytes == 0,
                                .place = *place };
    text->begin += bytes + separator;
    place->offset += (int64_t)(bytes + separator);
    place->inside = bytes > 0;
    place->midline = bytes > 0 && span->text[bytes - 1] != '\n';
}

enum err text_next(struct text *text, struct text_span *span, bool *more)
{
    for (;;) {
        size_t rest = text->end - text->begin, line = 0;
        size_t bytes = text_extent(text, text->place.midline);
        bool inside = text->place.inside;
        *more = true;
        /* text of a document; then a separator, which ends it; then the end,
         * which does; else the buffer has too little to tell */
        if (bytes > 0) {
            text_take(text, bytes, 0, span);
            return ERR_OK;
        }
        if (rest > 0 && text_line(text, text->begin, &line) == TEXT_SEPARATOR) {
            text_take(text, 0, line < rest ? line : rest, span);
        } else if (text->ended) {
            text_take(text, 0, 0, span);
            *more = inside;
            return ERR_OK;
        } else {
            TRY(text_fill(text));
            continue;
        }
        /* an end that no beginning was given for is of an empty document */
        if (inside)
            return ERR_OK;
    }
}

int64_t text_position(const struct text *text)
{
    return source_position(text->source);
}
