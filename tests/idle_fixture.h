/* What start_idle() tells of settings, as lines. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "src/train/start/start_settings.h"

struct idle_lines {
    char text[4096];
    int count;
};

static inline void idle_add(void *arg, const char *text)
{
    struct idle_lines *lines = arg;
    size_t used = strlen(lines->text);
    snprintf(lines->text + used, sizeof lines->text - used, "%s\n", text);
    lines->count++;
}

static inline struct idle_lines idle_of(const struct train_settings *settings,
                                        const struct train_settings *before,
                                        const struct trainer_schedule *plan)
{
    struct idle_lines lines = { .count = 0 };
    start_idle(&(struct start_idle){ settings, before, plan }, idle_add,
               &lines);
    return lines;
}

/* The settings told of are those, "KEY KEY ...". */
static inline bool idle_are(const struct train_settings *settings,
                            const char *keys)
{
    struct idle_lines lines = idle_of(settings, NULL, NULL);
    char all[4096];
    int count = 0;
    bool right = true;
    snprintf(all, sizeof all, "%s", keys);
    for (char *key = strtok(all, " "); key != NULL; key = strtok(NULL, " ")) {
        char line[160];
        snprintf(line, sizeof line, "%s is given, but changes nothing: ", key);
        right = right && strstr(lines.text, line) != NULL;
        count++;
    }
    return right && count == lines.count;
}
