/* Which parameters are frozen: for params.c alone. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/model/params.h"

/* tuning may be NULL: then nothing is. Of the parameter name and role are
 * known. */
bool params_tuning_freezes(const struct params_tuning *tuning,
                           const struct param *param);

/* Before the table is made: what does not depend on it. */
enum err params_tuning_check(const struct model_config *config,
                             const struct params_tuning *tuning);

/* After it: whether each glob has matched, something trains, and what goes
 * together is together. */
enum err params_tuning_fits(const struct params_tuning *tuning,
                            const struct params *params);
