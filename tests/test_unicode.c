/* The table of characters, and patterns' categories by it: the same on every
 * system, whatever its libraries know. */
#include "src/text/unicode.h"

#include "src/base/digest.h"
#include "src/text/tokenizer/normalizer.h"
#include "src/text/tokenizer/pretoken_regex.h"
#include "tests/tap.h"

static struct unicode *unicode;
static struct buffer all; /* every code point but surrogates, by number */

static void test_table(void)
{
    static const struct {
        uint32_t point;
        int category;
    } rows[] = {
        { 'A', UNICODE_LU },     { 'z', UNICODE_LL },
        { 0x1C5, UNICODE_LT },   { 0x4E2D, UNICODE_LO },
        { 0x301, UNICODE_MN },   { 0x1FA77, UNICODE_SO }, /* Unicode 15 */
        { 0x1C89, UNICODE_LU },  { 0x105C9, UNICODE_LO }, /* 16 */
        { 0x10D40, UNICODE_ND }, { 0x11DE0, UNICODE_CN }, /* 17 has it */
        { 0xD800, UNICODE_CS },  { 0x10FFFD, UNICODE_CO },
        { 0xFFFF, UNICODE_CN },  { 0x20, UNICODE_ZS },
    };
    char hex[65] = "";
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        tap_is_int(unicode->category[rows[r].point], rows[r].category,
                   "category of U+%04X", (unsigned)rows[r].point);
    tap_ok(digest_bytes(unicode->category, UNICODE_COUNT, hex) == ERR_OK,
           "digest");
    tap_is_str(
        hex, "e0ac15bd18ca734483b4fba72e8fd3262203db3e81be576c511111101ba5700f",
        "all categories of Unicode " UNICODE_VERSION);
    tap_ok(digest_bytes(unicode->of, UNICODE_COUNT, hex) == ERR_OK, "digest");
    tap_is_str(
        hex, "d2702adf8b74f5cb2559527e431ce621bb8f63a8d2054f15ed4b9ea58d6861eb",
        "all classes");
}

/* Of the code points that are matches, how many are not in `categories`, and of
 * those the other way round. */
static size_t wrong(const char *pattern, uint32_t categories, bool space)
{
    struct pretoken_regex *regex = NULL;
    struct pretoken_spans spans = { 0 };
    size_t count = 0, length = 0;
    if (pretoken_regex_create(unicode, pattern, false, &regex) != ERR_OK ||
        pretoken_regex_split(regex, all.data, all.bytes, &spans) != ERR_OK)
        return tap_ok(false, "%s: %s", pattern, err_text()), 1;
    for (size_t s = 0; s < spans.count; s++)
        for (size_t i = spans.span[s].start; i < spans.span[s].end;
             i += length) {
            uint32_t point = unicode_at(all.data + i, &length);
            bool in = (categories >> unicode->category[point] & 1) != 0 ||
                      (space && (unicode->of[point] & UNICODE_SPACE) != 0);
            count += in != spans.span[s].match;
        }
    pretoken_regex_free(&spans);
    pretoken_regex_destroy(regex);
    return count;
}

#define LETTERS 0x1Fu
#define MARKS 0xE0u
#define NUMBERS 0x700u
#define EVERY ((1u << UNICODE_CATEGORIES) - 1)

static void test_patterns(void)
{
    static const struct {
        const char *pattern;
        uint32_t categories;
        bool space;
    } rows[] = {
        { "\\p{L}+", LETTERS, false },
        { "\\p{M}+", MARKS, false },
        { "\\p{N}+", NUMBERS, false },
        { "\\p{P}+", 0x3F800, false },
        { "\\p{S}+", 0x3C0000, false },
        { "\\p{Z}+", 0x1C00000, false },
        { "\\p{Lu}+", 1u << UNICODE_LU, false },
        { "\\p{Pd}+", 1u << UNICODE_PD, false },
        { "\\p{Cc}+", 1u << UNICODE_CC, false },
        { "\\d+", 1u << UNICODE_ND, false },
        { "\\D+", EVERY ^ 1u << UNICODE_ND, false },
        { "\\P{L}+", EVERY ^ LETTERS, false },
        { "[^\\P{L}]+", LETTERS, false },
        { "[\\s\\d]+", 1u << UNICODE_ND, true },
        { "[\\p{L}\\p{M}]+", LETTERS | MARKS, false },
        { "(?:\\p{Lu}|[\\p{Ll}\xC3\xA9-\xC3\xAA])+", 3, false },
        { "(?:(?i:['s])|\\p{L}|(?=\\p{N})\\p{Nd})+",
          LETTERS | 1u << UNICODE_ND | 1u << 31, false },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        tap_is_int((long long)wrong(rows[r].pattern, rows[r].categories,
                                    rows[r].space),
                   (rows[r].categories >> 31) != 0, "%s", rows[r].pattern);
}

/* Characters that a pattern names beside categories, and what has none. */
static void test_named(void)
{
    static const struct {
        const char *pattern, *text, *want; /* words in brackets, or "!" text */
    } rows[] = {
        { "[\xE4\xB8\x80-\xE9\xBE\xA5]+|\\p{L}+", "\xE4\xB8\xAD\xE6\x96\x87x",
          "[\xE4\xB8\xAD\xE6\x96\x87][x]" },
        { "\xC3\xA9|\\p{Ll}+", "e\xC3\xA8\xC3\xA9", "[e\xC3\xA8\xC3\xA9]" },
        { "\\p{Lu}\xC3\xA9|\\d",
          "A\xC3\xA9\xC3\xA9"
          "1",
          "[A\xC3\xA9]\xC3\xA9[1]" },
        { "[!-\xC3\xA9]\\p{N}",
          "\xC3\xA9"
          "1\xC3\xAA"
          "2a3~4",
          "[\xC3\xA9"
          "1]\xC3\xAA"
          "2[a3][~4]" },
        { "\\s\\p{L}", "\xC2\x85x\xC2\xA0y\xE1\xA0\x8Ez",
          "[\xC2\x85x][\xC2\xA0y]\xE1\xA0\x8Ez" },
        { "(?i:k)\\p{N}",
          "\xE2\x84\xAA"
          "1K2k3",
          "[\xE2\x84\xAA"
          "1][K2][k3]" },
        { "(?i:\\p{Lu})", "", "!a category where case does not matter" },
        { "\\p{N}(?i:a(?:\xC3\xA9))", "",
          "!a character where case does not matter" },
        { "(?i:a)\xC3\xA9\\p{N}",
          "a\xC3\xA9"
          "1",
          "[a\xC3\xA9"
          "1]" },
        { "[\xC3\xAA-\xC3\xA9]\\d", "", "!a range that is none" },
        { "[\\--\xC3\xA9]\\d", "", "!a range that begins with a \\" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct pretoken_regex *regex = NULL;
        struct pretoken_spans spans = { 0 };
        char shown[128] = "";
        const char *text = rows[r].text;
        enum err rc =
            pretoken_regex_create(unicode, rows[r].pattern, false, &regex);
        if (rc == ERR_OK)
            rc = pretoken_regex_split(regex, (const uint8_t *)text,
                                      strlen(text), &spans);
        for (size_t s = 0; s < spans.count; s++) {
            const struct pretoken_span *span = &spans.span[s];
            strcat(shown, span->match ? "[" : "");
            strncat(shown, text + span->start, span->end - span->start);
            strcat(shown, span->match ? "]" : "");
        }
        if (rows[r].want[0] == '!')
            tap_ok(rc == ERR_DATA && strstr(err_text(), rows[r].want + 1),
                   "%s: %s", rows[r].pattern, rc == ERR_OK ? "" : err_text());
        else
            tap_is_str(rc == ERR_OK ? shown : err_text(), rows[r].want, "%s",
                       rows[r].pattern);
        pretoken_regex_free(&spans);
        pretoken_regex_destroy(regex);
    }
}

/* What Unicode 9 did not have stays where it is, as the library has it. */
static void test_normalize(void)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "e\xCC\x81", "\xC3\xA9" },
        { "e\xCC\x81\xCC\xA3", "\xE1\xBA\xB9\xCC\x81" },
        /* U+07FD, of Unicode 11, has a class of 220 */
        { "e\xCC\x81\xDF\xBD", "\xC3\xA9\xDF\xBD" },
        { "e\xDF\xBD\xCC\x81", "e\xDF\xBD\xCC\x81" },
        /* U+11938, of Unicode 13, is made of two */
        { "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0",
          "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0" },
        { "\xF0\x91\xA4\xB8", "\xF0\x91\xA4\xB8" },
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct buffer out = { 0 };
        bool done = normalizer_nfc(unicode, (const uint8_t *)rows[r].text,
                                   strlen(rows[r].text), &out) == ERR_OK &&
                    buffer_add(&out, "", 1) == ERR_OK;
        tap_is_str(done ? (char *)out.data : err_text(), rows[r].want,
                   "normal form %zu", r);
        buffer_free(&out);
    }
}

int main(void)
{
    if (unicode_create(&unicode) != ERR_OK ||
        buffer_reserve(&all, 4 * UNICODE_COUNT) != ERR_OK)
        return 1;
    for (uint32_t p = 0; p < UNICODE_COUNT; p++)
        if (p < 0xD800 || p > 0xDFFF)
            all.bytes += unicode_put(p, all.data + all.bytes);
    test_table();
    test_patterns();
    test_named();
    test_normalize();
    buffer_free(&all);
    unicode_destroy(unicode);
    return tap_done();
}
