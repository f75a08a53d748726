/* What the listener of norms (on_norms.c) takes, for the plan. */
#pragma once

#include <stddef.h>

#include "src/model/params.h"
#include "src/train/settings/train_settings.h"

/* Bytes of the host's; 0 where monitor.norms is off. */
size_t on_norms_bytes(const struct train_settings *settings,
                      const struct params *params);
