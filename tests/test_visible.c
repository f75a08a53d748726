/* What a terminal would obey is written out, and nothing else is changed. */

#include "src/text/unicode.h"
#include "tests/tap.h"

static void check(const char *text, const char *want)
{
    struct buffer out = { 0 };
    enum err rc = unicode_add_visible(text, strlen(text), &out);
    if (rc == ERR_OK)
        rc = buffer_add(&out, "", 1);
    tap_ok(rc == ERR_OK && strcmp((char *)out.data, want) == 0, "%s", want);
    buffer_free(&out);
}

/* Every character: itself, or an escape that names it. */
static void check_all(void)
{
    bool right = true;
    for (uint32_t point = 0; point < UNICODE_COUNT; point++) {
        struct buffer out = { 0 };
        uint8_t bytes[4];
        bool control = point < 0x20 || (point >= 0x7F && point < 0xA0);
        if (point >= 0xD800 && point < 0xE000)
            continue;
        size_t length = unicode_put(point, bytes);
        right =
            unicode_add_visible((char *)bytes, length, &out) == ERR_OK && right;
        bool same = out.bytes == length && memcmp(out.data, bytes, length) == 0;
        bool escape = out.bytes == 6 && memcmp(out.data, "\\u00", 4) == 0;
        right = right &&
                (control && point != '\n' && point != '\t' ? escape : same);
        buffer_free(&out);
    }
    tap_ok(right, "all characters");
}

int main(void)
{
    check("", "");
    check("a\tb\n", "a\tb\n");
    check("\033[2J\033]0;title\007", "\\u001b[2J\\u001b]0;title\\u0007");
    check("a\rb\177", "a\\u000db\\u007f");
    check("\xc2\x9b"
          "31m \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80",
          "\\u009b31m \xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80");
    check_all();
    return tap_done();
}
