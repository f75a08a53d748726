/* Are all ranks about to compute the same thing? Ranks on several nodes read
 * their own copies of the configuration, of the data sets and of the libraries;
 * where these differ, bits would depend on where a slot lands. */
#pragma once

#include "src/base/err.h"
#include "src/train/loop/trainer.h"

/* Arithmetic, the content of the data sets, and every setting that is not
 * SETTING_LOCAL (the paths of the data sets, hardware.*, log.level) must be
 * those of rank 0; the error
 * names what differs and where. Processors and their kernel sets may differ.
 * Collective, after the data sets are open. */
enum err start_same(struct trainer *trainer);
