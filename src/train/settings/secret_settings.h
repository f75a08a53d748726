/* Settings whose text may hold a token or a password: nothing that leaves the
 * run's folder repeats it. */
#pragma once

#include <stdbool.h>

struct train_settings;

/* Is the setting of this key, as this text, one of them? */
bool secret_settings_has(const char *key, const char *text);
/* Do these settings have any? */
bool secret_settings_any(const struct train_settings *settings);
