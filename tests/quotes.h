/* JSON and settings in the tables of tests, with ' for ". */
#pragma once

#include <stdlib.h>
#include <string.h>

/* Lent until the call after the next. */
static inline const char *quoted(const char *text)
{
    static char out[2][8192];
    static int turn;
    char *to = out[turn ^= 1];
    size_t bytes = strlen(text);
    if (bytes >= sizeof out[0])
        abort();
    for (size_t i = 0; i <= bytes; i++)
        to[i] = text[i] == '\'' ? '"' : text[i];
    return to;
}
