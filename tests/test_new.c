/* Memory in one line: what is given, and what is said when it is not. */

#include "src/base/new.h"
#include "tests/tap.h"

int main(void)
{
    double *values = NULL;
    char *text = NULL, *part = NULL;
    tap_ok(new_zeroed(&values, 3) == ERR_OK && values[2] == 0, "zeros");
    tap_ok(new_text(&text, "weights") == ERR_OK, "a copy of a text");
    tap_is_str(text, "weights", "which is the same");
    tap_ok(new_text_part(&part, text, 3) == ERR_OK, "a part of one");
    tap_is_str(part, "wei", "its first bytes");
    free(part);
    free(text);
    free(values);
    tap_ok(new_room(&text, SIZE_MAX / 2) == ERR_MEMORY && text == NULL,
           "more than there can be: ERR_MEMORY and NULL");
    tap_is_str(
        err_text(),
        "out of memory: 9223372036854775807 bytes for text of tests/test_new.c",
        "what for, and how much");
    tap_ok(new_zeroed(&values, SIZE_MAX / 2) == ERR_MEMORY && values == NULL,
           "a product that no size_t holds: %s", err_text());
    tap_ok(new_room(&values, SIZE_MAX / 8 + 1) == ERR_MEMORY,
           "without zeros too: %s", err_text());
    return tap_done();
}
