/* What a run computes with: the op table of hardware.backend, and the dtype of
 * train.precision. */
#pragma once

#include <stdbool.h>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/err.h"
#include "src/train/settings/train_settings.h"

/* As far as it does not depend on the machine: ERR_USAGE for a precision that
 * the backend does not have, or not for this shape. */
enum err trainer_backend_check(const struct train_settings *settings);

/* The table of this machine for a run of so many ranks; hardware.backend,
 * hardware.fallback and train.precision are no longer "auto" then.
 * ERR_UNSUPPORTED says what is missing. */
enum err trainer_backend_find(struct train_settings *settings, int ranks,
                              const struct kernels **out);

/* The same for a plan, which needs no GPU: the table may only be asked for
 * sizes, and the settings stay. "auto" counts as cpu, for a plan must not
 * depend on the machine. */
enum err trainer_backend_plan(const struct train_settings *settings,
                              const struct kernels **out);

/* Whether hardware.fallback lets what is slower take the place of what is
 * missing; "auto" counts as that it does. */
bool trainer_backend_falls_back(const struct train_settings *settings);
enum comm_exchange
trainer_backend_exchange(const struct train_settings *settings);

/* The type of weights and activations at work; "auto" as above. */
enum dtype trainer_backend_dtype(const struct train_settings *settings);
/* Whether products are in 8 bits besides. */
bool trainer_backend_fp8(const struct train_settings *settings);
