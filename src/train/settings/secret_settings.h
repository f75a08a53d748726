/* Settings whose text may hold a token or a password: nothing that leaves the
 * run's folder repeats it. */
#ifndef TESSERA_TRAIN_SECRET_SETTINGS_H
#define TESSERA_TRAIN_SECRET_SETTINGS_H

#include <stdbool.h>

struct train_settings;

/* Is the setting of this key, as this text, one of them? */
bool secret_settings_has(const char *key, const char *text);
/* Do these settings have any? */
bool secret_settings_any(const struct train_settings *settings);

#endif
