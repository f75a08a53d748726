/* Standard output of tessera-generate and tessera-chat. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"

bool generate_show_terminal(void);

/* Written at once: to a file or pipe as it is, to a terminal as visible_add()
 * has it. Whole characters of valid UTF-8. */
enum err generate_show(const char *text, size_t bytes);
