/* Memory in one line: what is given, and what is said when it is not. */
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "tests/tap.h"

struct thing {
    double *values;
    char *name;
};

static enum err thing_fill(struct thing *thing, size_t count, const char *name)
{
    TRY(new_zeroed(&thing->values, count));
    return new_text(&thing->name, name);
}

int main(void)
{
    struct thing thing = { 0 };
    tap_ok(thing_fill(&thing, 3, "weights") == ERR_OK, "there is memory");
    tap_ok(thing.values[0] == 0 && thing.values[2] == 0, "which is zeroed");
    tap_ok(strcmp(thing.name, "weights") == 0, "and a copy of the text");
    free(thing.name);
    free(thing.values);

    char *part = NULL;
    tap_ok(new_text_part(&part, "weights", 3) == ERR_OK &&
               strcmp(part, "wei") == 0,
           "a part of a text");
    free(part);

    char kept;
    char *room = &kept;
    tap_ok(new_room(&room, SIZE_MAX / 2) == ERR_MEMORY && room == NULL,
           "more than there can be: ERR_MEMORY and NULL");
    tap_ok(strstr(err_text(), "out of memory: 9223372036854775807 bytes for "
                              "room") != NULL,
           "what for and how much: %s", err_text());
    tap_ok(thing_fill(&thing, SIZE_MAX / 2, "") == ERR_MEMORY &&
               thing.values == NULL,
           "a product that no size_t holds");
    tap_ok(strstr(err_text(), "times 8 bytes for thing->values") != NULL,
           "its message has both factors: %s", err_text());
    double *some = NULL;
    tap_ok(new_room(&some, SIZE_MAX / 8 + 1) == ERR_MEMORY && some == NULL,
           "without zeros too");
    return tap_done();
}
