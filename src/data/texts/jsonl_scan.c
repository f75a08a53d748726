/* A validator of JSON that remembers where one member of the outermost object
 * is. Eight bytes of a string at a time, since strings are most of a line.
 *
 * A tree of a record is many small allocations, to take one text out of it. So
 * this walks over a line once (recursive descent, no memory), and answers only
 * where it is sure that jansson would take the line: common numbers, keys
 * without escapes, few keys, little depth. Of anything else it says that it
 * does not know. That way every rule of JSON that is easy to get wrong stays
 * with the parser that has it right.
 *
 * A word of eight bytes is looked at by arithmetic on all of its bytes at once
 * (Mycroft's test): (w - 0x01..01) & ~w has the high bit of a byte set if one
 * is 0, so w ^ "\"\"..\"" shows quotes, and a like difference shows what is
 * below 0x20. Where any shows, bytes are looked at one by one. */
#include "src/data/texts/jsonl.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "src/text/unicode.h"

/* Beyond these the parser looks. */
#define SCAN_DEPTH_MAX 32
#define SCAN_KEYS_MAX 128
#define SCAN_DIGITS_MAX 18 /* of a 64-bit number */
#define SCAN_REAL_DIGITS_MAX 200
#define SCAN_EXPONENT_DIGITS_MAX 2

#define SCAN_ONES (~(uint64_t)0 / 255)
#define SCAN_HIGHS (SCAN_ONES * 0x80)

struct scan_key {
    const char *text;
    size_t bytes;
};

struct scan {
    const char *at, *end;
    int depth;
    struct scan_key keys[SCAN_KEYS_MAX]; /* of the open objects, as a stack */
    int key_count;
};

static bool scan_value(struct scan *scan);

static uint64_t scan_zeros(uint64_t word)
{
    return (word - SCAN_ONES) & ~word & SCAN_HIGHS;
}

/* Bytes at `at` that mean themselves in a string and are ASCII. */
static const char *scan_plain(const char *at, const char *end)
{
    while (end - at >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        uint64_t control = (word - SCAN_ONES * 0x20) & ~word;
        uint64_t special = (word | control) & SCAN_HIGHS;
        special |= scan_zeros(word ^ SCAN_ONES * '"');
        special |= scan_zeros(word ^ SCAN_ONES * '\\');
        if (special != 0)
            break;
        at += 8;
    }
    while (at < end && (uint8_t)*at >= 0x20 && (uint8_t)*at < 0x80 &&
           *at != '"' && *at != '\\')
        at++;
    return at;
}

/* Four hexadecimal digits; -1: they are not. */
static int32_t scan_hex(const char *at, const char *end)
{
    int32_t value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

/* The character of the escape \uXXXX, or of a pair of them, whose digits begin
 * at *at, which is moved behind it; -1: it is none, or NUL. */
static int32_t scan_escape(const char **at, const char *end)
{
    int32_t value = scan_hex(*at, end);
    *at += 4;
    if (value <= 0 || (value >= 0xdc00 && value < 0xe000))
        return -1;
    /* half of a pair (UTF-16), whose other half has to follow as an escape */
    if (value < 0xd800 || value >= 0xe000)
        return value;
    if (end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
        return -1;
    int32_t low = scan_hex(*at + 2, end);
    *at += 6;
    if (low < 0xdc00 || low >= 0xe000)
        return -1;
    return 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
}

/* A string, whose opening quote is at scan->at. */
static bool scan_string(struct scan *scan, struct jsonl_scan *out)
{
    const char *at = scan->at + 1, *end = scan->end;
    *out = (struct jsonl_scan){ .text = at };
    for (;;) {
        at = scan_plain(at, end);
        const uint8_t *high = (const uint8_t *)at;
        while (at < end && (uint8_t)*at >= 0x80)
            at++;
        size_t bytes = (size_t)((const uint8_t *)at - high);
        if (at == end || unicode_valid(high, bytes) != bytes)
            return false;
        if (*at == '"')
            break;
        if ((uint8_t)*at < 0x20)
            return false;
        if (*at != '\\')
            continue;
        out->escaped = true;
        if (++at == end)
            return false;
        char kind = *at++;
        if (kind == 'u' && scan_escape(&at, end) < 0)
            return false;
        if (kind == '\0' || strchr("\"\\/bfnrtu", kind) == NULL)
            return false;
    }
    out->bytes = (size_t)(at - out->text);
    scan->at = at + 1;
    return true;
}

static void scan_blanks(struct scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\t' ||
                                    *scan->at == '\r' || *scan->at == '\n'))
        scan->at++;
}

/* Whether the next byte is this one, and step over it. */
static bool scan_take(struct scan *scan, char byte)
{
    if (scan->at == scan->end || *scan->at != byte)
        return false;
    scan->at++;
    return true;
}

static size_t scan_digits(struct scan *scan)
{
    const char *begin = scan->at;
    while (scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9')
        scan->at++;
    return (size_t)(scan->at - begin);
}

/* One that surely fits a 64-bit number or a double. */
static bool scan_number(struct scan *scan)
{
    (void)scan_take(scan, '-');
    bool zero = scan->at < scan->end && *scan->at == '0';
    bool real = false;
    size_t digits = scan_digits(scan), part = 0;
    if (digits == 0 || (zero && digits > 1))
        return false;
    if (scan_take(scan, '.')) {
        real = true;
        part = scan_digits(scan);
        if (part == 0)
            return false;
        digits += part;
    }
    if (scan_take(scan, 'e') || scan_take(scan, 'E')) {
        real = true;
        if (!scan_take(scan, '-'))
            (void)scan_take(scan, '+');
        part = scan_digits(scan);
        if (part == 0 || part > SCAN_EXPONENT_DIGITS_MAX)
            return false;
    }
    /* so few fit whatever they are; jansson refuses what does not */
    return digits <= (real ? SCAN_REAL_DIGITS_MAX : SCAN_DIGITS_MAX);
}

static bool scan_word(struct scan *scan, const char *word)
{
    size_t bytes = strlen(word);
    if ((size_t)(scan->end - scan->at) < bytes ||
        memcmp(scan->at, word, bytes) != 0)
        return false;
    scan->at += bytes;
    return true;
}

/* A key of the object whose keys begin at `first`, and its colon. */
static bool scan_key(struct scan *scan, int first, struct jsonl_scan *key)
{
    scan_blanks(scan);
    if (scan->at == scan->end || *scan->at != '"' || !scan_string(scan, key) ||
        key->escaped || scan->key_count == SCAN_KEYS_MAX)
        return false;
    /* jansson refuses a key that an object has twice */
    for (int k = first; k < scan->key_count; k++)
        if (scan->keys[k].bytes == key->bytes &&
            memcmp(scan->keys[k].text, key->text, key->bytes) == 0)
            return false;
    scan->keys[scan->key_count++] =
        (struct scan_key){ .text = key->text, .bytes = key->bytes };
    scan_blanks(scan);
    return scan_take(scan, ':');
}

/* What follows '{'. `out` gets the member `field`, unless that is NULL. */
static bool scan_object(struct scan *scan, const char *field,
                        struct jsonl_scan *out)
{
    int first = scan->key_count;
    struct jsonl_scan key, value;
    size_t field_bytes = field != NULL ? strlen(field) : 0;
    scan_blanks(scan);
    if (scan_take(scan, '}'))
        return true;
    do {
        if (!scan_key(scan, first, &key))
            return false;
        scan_blanks(scan);
        bool wanted = field != NULL && key.bytes == field_bytes &&
                      memcmp(key.text, field, field_bytes) == 0;
        bool string = scan->at < scan->end && *scan->at == '"';
        if (string ? !scan_string(scan, &value) : !scan_value(scan))
            return false;
        if (wanted && string)
            *out = value;
        scan_blanks(scan);
    } while (scan_take(scan, ','));
    scan->key_count = first;
    return scan_take(scan, '}');
}

/* What follows '['. */
static bool scan_array(struct scan *scan)
{
    scan_blanks(scan);
    if (scan_take(scan, ']'))
        return true;
    do {
        if (!scan_value(scan))
            return false;
        scan_blanks(scan);
    } while (scan_take(scan, ','));
    return scan_take(scan, ']');
}

static bool scan_value(struct scan *scan)
{
    struct jsonl_scan string;
    bool good = false;
    scan_blanks(scan);
    if (scan->at == scan->end || scan->depth == SCAN_DEPTH_MAX)
        return false;
    scan->depth++;
    switch (*scan->at) {
    case '"':
        good = scan_string(scan, &string);
        break;
    case '{':
        scan->at++;
        good = scan_object(scan, NULL, NULL);
        break;
    case '[':
        scan->at++;
        good = scan_array(scan);
        break;
    case 't':
        good = scan_word(scan, "true");
        break;
    case 'f':
        good = scan_word(scan, "false");
        break;
    case 'n':
        good = scan_word(scan, "null");
        break;
    default:
        good = scan_number(scan);
    }
    scan->depth--;
    return good;
}

bool jsonl_scan(const char *line, size_t bytes, const char *field,
                struct jsonl_scan *out)
{
    assert(line != NULL && field != NULL && out != NULL);
    struct scan scan;
    scan.at = line;
    scan.end = line + bytes;
    scan.depth = scan.key_count = 0;
    *out = (struct jsonl_scan){ .text = NULL };
    scan_blanks(&scan);
    if (!scan_take(&scan, '{') || !scan_object(&scan, field, out))
        return false;
    scan_blanks(&scan);
    return scan.at == scan.end;
}

size_t jsonl_scan_unescape(const char *text, size_t bytes, char *to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    const char *at = text, *end = text + bytes;
    char *begin = to;
    while (at < end) {
        const char *escape = memchr(at, '\\', (size_t)(end - at));
        size_t plain = (size_t)((escape != NULL ? escape : end) - at);
        memcpy(to, at, plain);
        to += plain;
        at += plain;
        if (escape == NULL)
            break;
        assert(end - at >= 2);
        char kind = at[1];
        at += 2;
        if (kind == 'u')
            to += unicode_put((uint32_t)scan_escape(&at, end), (uint8_t *)to);
        else
            *to++ = values[strchr(names, kind) - names];
    }
    return (size_t)(to - begin);
}
