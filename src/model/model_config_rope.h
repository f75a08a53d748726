/* Part of model_config_check(): what is said of rotary positions. */
#pragma once

#include "src/base/err.h"
#include "src/model/model_config.h"

/* ERR_USAGE names the setting. */
enum err model_config_rope_check(const struct model_config *config);
