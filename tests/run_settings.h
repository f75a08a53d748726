/* The settings of a run as tests write them. */
#pragma once

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/train/start/start_settings.h"

#define RUN_SETTINGS_MAX 64

/* Those of a text in the form of printf: words of "key=value" with blanks
 * between; '~' is a blank in a value. */
static inline enum err run_settings(struct train_settings *out,
                                    const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static inline enum err run_settings(struct train_settings *out,
                                    const char *format, ...)
{
    static char text[8 * SETTINGS_TEXT_BYTES];
    char *words[RUN_SETTINGS_MAX], *rest = NULL;
    int count = 0;
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *word = strtok_r(text, " ", &rest);
         word != NULL && count < RUN_SETTINGS_MAX;
         word = strtok_r(NULL, " ", &rest)) {
        for (char *c = word; *c != '\0'; c++)
            *c = *c == '~' ? ' ' : *c;
        words[count++] = word;
    }
    return start_settings_load(NULL, words, count, out);
}
