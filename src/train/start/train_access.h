/* Who may see a run: run.mode and run.group. Everything below the run directory
 * is made with the process's umask, and belongs to the group of its folder. */
#pragma once

#include "src/base/err.h"
#include "src/train/settings/train_settings.h"

/* ERR_USAGE where run.mode or run.group cannot be meant. */
enum err train_access_check(const struct train_settings *settings);
/* On every rank, before anything of the run is made, but after the folders
 * above it: the umask that leaves run.mode; without one it stays as it is. */
void train_access_mask(const struct train_settings *settings);
/* Gives the run directory, which must be there, run.mode and run.group and has
 * all that is made in it take the group over. ERR_USAGE if that is refused. So
 * it does with the folders that an earlier start has made in it; what is
 * refused there is a warning. */
enum err train_access_give(const struct train_settings *settings);
